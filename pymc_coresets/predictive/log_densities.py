"""Log-densities of prior and likelihood at draws, as ArviZ's sensitivity diagnostics need them."""

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.diagnostics.posterior_draws import posterior_dataset
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.graphs import parameter_inputs
from pymc_coresets.reading.rewriting.rewrite import POTENTIAL

__all__ = ["densities_at_draws"]

_DIMS = ("chain", "draw")


def densities_at_draws(
    model: pm.Model, idata: xr.DataTree, loglik: np.ndarray
) -> dict[str, xr.Dataset]:
    """Return the groups ``log_prior`` and ``log_likelihood`` for draws.

    Parameters
    ----------
    model : pm.Model
        In which a potential stands for the observations that were summarised.
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    loglik : ndarray of shape (n_chains * n_draws,)
        Value of this potential at the draws, in nats.

    Returns
    -------
    dict of str to xarray.Dataset
        The likelihood has the variable ``coreset_loglik``, and those that the model still observes.

    Raises
    ------
    InvalidDataError
        If the draws lack a variable.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     potential = pm.Potential("coreset_loglik", -(mu**2))
    >>> draws = xr.Dataset({"mu": (("chain", "draw"), [[0.0, 1.0]])})
    >>> idata = xr.DataTree.from_dict({"posterior": draws})
    >>> found = densities_at_draws(model, idata, np.array([0.0, -1.0]))
    >>> found["log_prior"]["mu"].values.round(3), list(found["log_likelihood"])
    (array([[-0.919, -1.419]]), ['coreset_loglik'])
    """
    posterior = posterior_dataset(idata, "idata")
    shapes = {name: v.type.shape for name, v in parameter_inputs(model).items()}
    Draws.of(posterior, shapes)  # which names what the draws lack
    values = loglik.reshape([posterior.sizes[dim] for dim in _DIMS])
    likelihood = xr.Dataset({POTENTIAL: (_DIMS, values)}, {dim: posterior[dim] for dim in _DIMS})
    quietly = {"extend_inferencedata": False, "progressbar": False}
    if model.observed_RVs:
        others = pm.stats.compute_log_likelihood(idata, model=model, **quietly)
        likelihood = likelihood.merge(others)
    prior = pm.stats.compute_log_prior(idata, model=model, **quietly)
    return {"log_prior": prior, "log_likelihood": likelihood}
