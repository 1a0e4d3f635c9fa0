"""Outcomes that are missing from the data, drawn given those of the posterior."""

import math

import numpy as np
import xarray as xr

from pymc_coresets.predictive.forward import forward_graphs
from pymc_coresets.predictive.predictions import Predictions
from pymc_coresets.predictive.stand_ins import StandIn
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
        The same where nothing is missing, or draws lack variables that were integrated out, on
        which missing outcomes may depend.
    """
    observations = own.parts[0].observations
    if not observations.held.imputed:
        return idata
    posterior, model = idata["posterior"].to_dataset(), observations.held.whole
    missing = observations.held.imputed.difference(posterior.data_vars)
    if not missing or not observations.held.integrated.issubset(posterior.data_vars):
        return idata
    names = sorted(missing)
    if most < math.inf:
        shapes = model.eval_rv_shapes()
        names = [n for n in names if math.prod(shapes[model.rvs_to_values[model[n]].name]) <= most]
    if not names:
        return idata
    predictions = Predictions(
        model=model,
        graphs=forward_graphs(model, names, means=False),
        posterior=posterior,
        key=random_key(rng),
        drawn=missing,
    )
    added, _ = predictions.in_memory(progressbar=False)
    return idata.assign(posterior=xr.DataTree(posterior.merge(added)))
