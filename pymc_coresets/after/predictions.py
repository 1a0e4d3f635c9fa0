"""Predictions for all rows, or new ones, from posterior draws."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import Variable

from pymc_coresets.diagnostics.posterior_draws import Chains, draws_tree, thinned
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import flag, generator, names_of, one_of, whole_number
from pymc_coresets.predictive.approximate_posterior import (
    ApproximatePosterior,
    HasApproximatePosterior,
)
from pymc_coresets.predictive.forward import (
    Predictions,
    forward_graphs,
    predicted_names,
    with_missing,
)
from pymc_coresets.predictive.model_data import (
    FilledModel,
    fill_with,
    filled_with_own,
    used_by_value,
)
from pymc_coresets.predictive.new_levels import refuse_lost, with_levels_of
from pymc_coresets.reading.likelihood.prototypes import row_dims
from pymc_coresets.reading.user_model import copy_with_rows, given_model
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.sources.opening import open_rows
from pymc_coresets.rows.sources.row_source import RowSource

type Kind = Literal["mean", "draws"]


_CHANGED = (
    "To predict with these, pass model=... too, your model, perhaps with rows=...; to predict the "
    "rows of the coreset, put the old data back."
)


def predict(  # noqa: PLR0913 - the options of what users know from PyMC
    result: HasApproximatePosterior,
    idata: xr.DataTree,
    *,
    rows: RowSource | Mapping[str, object] | None = None,
    model: pm.Model | None = None,
    kind: Kind = "mean",
    draws: int | None = None,
    to: Callable[[xr.Dataset], object] | None = None,
    var_names: str | Sequence[str] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool | None = None,
) -> xr.DataTree:
    """Predict all rows, or new ones, in blocks, see `Coreset.predict`."""
    own = result.approximation
    means = one_of("kind", kind, ["mean", "draws"]) == "mean"
    names = names_of("var_names", var_names)
    if names == []:
        raise InvalidOptionError("var_names=[]: name a variable to predict, or leave it out.")
    if to is not None and not callable(to):
        raise InvalidOptionError(
            f"to={to!r} must be a function: it is called with each block of the predictions, an "
            "xarray.Dataset, and may append it to a Zarr store."
        )
    rng = generator(random_seed)
    key = random_key(rng)
    show = own.progressbar if progressbar is None else flag("progressbar", progressbar)
    if draws is not None:
        idata = thinned(idata, whole_number("draws", draws, least=1))
    idata = draws_tree(idata)
    if model is None:
        idata = with_missing(own.complete(idata, rng), own, rng=rng)
    its_own = rows is None and model is None
    snapshot = own.parts[0].observations.snapshot
    if its_own:
        snapshot.unchanged(_CHANGED)
    copy = copy_with_rows(snapshot.whole if model is None else given_model(model), {})
    if model is not None:
        refuse_lost(copy, idata, own.lost)
        idata = with_levels_of(copy, idata, rng)
    names = [names] if isinstance(names, str) else names or predicted_names(copy)
    graphs = forward_graphs(copy, names, means=means)
    filled = _filled(own, copy, graphs, rows, model)
    wanted = Predictions(
        model=copy, graphs=graphs, chains=Chains(idata), key=key, means=means, filled=filled
    )
    if to is not None:
        for block in wanted.blocks(progressbar=show):
            to(block)
        return xr.DataTree()
    found, observed = wanted.in_memory(progressbar=show, observed=its_own)
    groups = {"posterior_predictive": found, "observed_data": observed}
    groups = {n: g for n, g in groups.items() if g.data_vars} if its_own else {"predictions": found}
    return xr.DataTree.from_dict(groups)


def _filled(
    own: ApproximatePosterior,
    copy: pm.Model,
    graphs: Mapping[str, Variable],
    rows: RowSource | Mapping[str, object] | None,
    model: pm.Model | None,
) -> FilledModel | None:
    """Prepare a copy of a model for new rows, or for its own; None if it holds them already."""
    if rows is None:
        return filled_with_own(own, copy) if model is None else None
    rows = rows if isinstance(rows, RowSource) else open_rows(rows)
    snapshot, columns = own.parts[0].observations.snapshot, rows.columns
    others = set(snapshot.changed).difference(columns, row_dims(copy, columns))
    used = used_by_value(copy, graphs)
    if model is None and any(n not in copy.named_vars or copy[n] in used for n in others):
        snapshot.unchanged(_CHANGED)  # other data than those in the new rows
    return fill_with(copy, rows, graphs)
