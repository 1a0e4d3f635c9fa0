"""Draws of the full posterior that a construction made, before there was any coreset."""

from typing import Protocol

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws, resample_draws
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.diagnostics.posterior_draws import Chains
from pymc_coresets.exceptions import CoresetError
from pymc_coresets.options import generator, whole_number
from pymc_coresets.predictive.model_data import with_data
from pymc_coresets.predictive.predictions import with_missing
from pymc_coresets.predictive.stand_ins import HasStandIn
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.sampling.stand_in import MANY_ROWS, recorded_names


class HasProposal(HasStandIn, Protocol):
    """A coreset, with the draws that its construction weighed."""

    @property
    def proposal(self) -> Proposal[Draws] | None:
        """These draws, if there are any."""


def importance_draws(
    coreset: HasProposal,
    draws: int | None = None,
    *,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataTree:
    """Return draws of the full posterior that the build made, resampled by importance weights.

    They need no sampler, and do not depend on the chosen rows: ``method="auto"`` draws from around
    the mode of the posterior of all rows, and evaluates all rows there.  Where Pareto k-hat is
    below 0.7, the resampled draws follow the full posterior, which is enough if it is close to
    normal.  Use `sample` for more draws.  Control variates resample the draws that judged the
    coreset instead, which come from its own posterior.

    Parameters
    ----------
    draws : int, optional
        How many; by default as many as were evaluated.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    xarray.DataTree
        One chain, with the data that `sample` adds.  The attributes of its group ``posterior`` hold
        ``pareto_khat`` and ``psis_ess``, the number of independent draws that it is worth.

    Raises
    ------
    CoresetError
        If there are none: by another method, without a mode, or for other data or priors than
        those of the build; or `draws` is not a positive whole number, or `random_seed` not a seed.

    Warns
    -----
    CoresetWarning
        If the weights cannot be relied on.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=5_000)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.importance_draws(random_seed=1)
    >>> bool(abs(idata["posterior"]["mu"].mean() - x.mean()) < 0.005)
    True
    """
    rng = generator(random_seed)
    draws = None if draws is None else whole_number("draws", draws, least=1)
    if coreset.proposal is None:
        raise CoresetError(
            "There are no importance draws: methods 'auto' and 'control_variates' make them, where "
            "the posterior has a mode; they are lost with other variables or data, and with files "
            "for other priors. Use sample()."
        )
    model = coreset.model
    idata = coreset.proposal.draws.to_datatree(dims=model.named_vars_to_dims, coords=model.coords)
    names = recorded_names(coreset)
    posterior = idata["posterior"].to_dataset()
    computed = [v.name for v in model.deterministics if names is None or v.name in names]
    if computed:
        posterior = posterior.merge(
            pm.compute_deterministics(
                posterior,
                var_names=computed,
                model=model,
                progressbar=False,
                compile_kwargs={"mode": PLAIN_MODE},
            )
        )
    found = resample_draws(
        Chains(idata.assign(posterior=xr.DataTree(posterior))),
        EvaluatedDraws.at_all(coreset.proposal.log_ratios[None]),
        rng=rng,
        draws=draws,
        remedy="Use sample().",
        independent=True,
    )
    if doubt := coreset.stand_in.doubt(found):
        found["posterior"].attrs["verdict"] = f"Doubtful: {doubt}"
    found = with_missing(found, coreset.stand_in, rng=rng, most=MANY_ROWS)
    return with_data(found, coreset.stand_in)
