"""Outcomes that are missing from the data, drawn given those of the posterior."""

import math

import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_coresets.predictive.forward import Forward, forward_graphs
from pymc_coresets.predictive.stand_ins import StandIn
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.keyed import random_key


def with_missing(
    idata: xr.DataTree, own: StandIn, *, rng: np.random.Generator, most: float = math.inf
) -> xr.DataTree:
    """Add draws of missing outcomes under the user's names, where draws lack them.

    Their posterior given all other variables is their distribution in the model: no row depends on
    them.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    own : StandIn
        What stands for all rows.
    rng : numpy.random.Generator
    most : float, default inf
        Leave out variables of more entries.

    Returns
    -------
    xarray.DataTree
        The same, where nothing is missing.
    """
    observations = own.parts[0].observations
    if not observations.held.imputed:
        return idata
    posterior, model = idata["posterior"].to_dataset(), observations.held.whole
    names = sorted(observations.held.imputed.difference(posterior.data_vars))
    if names:
        shapes = model.eval_rv_shapes()
        names = [n for n in names if math.prod(shapes[model.rvs_to_values[model[n]].name]) <= most]
    if not names:
        return idata
    draws, key = Draws.of(posterior, own.free), random_key(rng)
    forward = Forward.of(model, forward_graphs(model, names, means=False), names)
    found = []
    for i in range(draws.n_draws):
        forward.reseed(key, i)
        found.append(forward(draws.at(i)))
    sizes = [posterior.sizes[dim] for dim in SAMPLE_DIMS]
    drawn = {name: np.stack([values[name] for values in found]) for name in names}
    tree = Draws(drawn).to_datatree(
        n_chains=sizes[0], dims=model.named_vars_to_dims, coords=model.coords
    )
    added = tree["posterior"].to_dataset().assign_coords({d: posterior[d] for d in SAMPLE_DIMS})
    return idata.assign(posterior=xr.DataTree(posterior.merge(added)))
