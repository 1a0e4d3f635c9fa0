"""Predictions for all rows, or new ones, from posterior draws."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import Variable

from pymc_coresets.diagnostics.posterior_draws import Chains, draws_tree, thinned
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import flag_or, generator, names_of, one_of, whole_number
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
    HeldRows,
    fill_with,
    filled_with_own,
    used_by_value,
)
from pymc_coresets.predictive.new_levels import refuse_lost, with_levels_of
from pymc_coresets.reading.likelihood.prototypes import row_dims
from pymc_coresets.reading.user_model import (
    ModelSnapshot,
    copy_with_rows,
    given_model,
    settable_data,
)
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.sources.opening import open_columns_of
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
    show = flag_or("progressbar", progressbar, own.progressbar)
    if draws is not None:
        idata = thinned(idata, whole_number("draws", draws, least=1))
    idata = draws_tree(idata)
    snapshot, its_own = own.parts[0].observations.snapshot, rows is None and model is None
    if its_own:
        snapshot.unchanged(_CHANGED)
    copy = copy_with_rows(snapshot.whole if model is None else given_model(model), {})
    names = [names] if isinstance(names, str) else names or predicted_names(copy)
    graphs = forward_graphs(copy, names, means=means)
    filled = filled_with_own(own, copy) if its_own else HeldRows()
    if rows is not None:
        new = rows if isinstance(rows, RowSource) else open_columns_of(rows, settable_data(copy))
        if model is None:
            _require_same_data(snapshot, copy, graphs, new)
        filled = fill_with(copy, new, graphs)
    # Variables of levels may take long to draw: what is refused has been by now.
    if model is None:
        idata = with_missing(own.complete(idata, rng), own, rng=rng)
    else:
        idata = _for_another(copy, idata, own, rng)
    wanted = Predictions(
        model=copy, graphs=graphs, chains=Chains(idata), key=key, means=means, rows=filled
    )
    if to is not None:
        for block in wanted.blocks(progressbar=show):
            to(block)
        return xr.DataTree()
    found, observed = wanted.in_memory(progressbar=show, observed=its_own)
    groups = {"posterior_predictive": found, "observed_data": observed}
    groups = {n: g for n, g in groups.items() if g.data_vars} if its_own else {"predictions": found}
    return xr.DataTree.from_dict(groups)


def _for_another(
    model: pm.Model, idata: xr.DataTree, own: ApproximatePosterior, rng: np.random.Generator
) -> xr.DataTree:
    """Return draws for the levels of another model, of variables that were integrated out too."""
    refuse_lost(model, idata, own.lost)
    if not {rv.name for rv in model.free_RVs} <= set(idata["posterior"].data_vars):
        idata = own.complete(idata, rng, model=model)
    return with_levels_of(model, idata, rng)


def _require_same_data(
    snapshot: ModelSnapshot, copy: pm.Model, graphs: Mapping[str, Variable], rows: RowSource
) -> None:
    """Refuse a model with other data than the coreset's, besides those that new rows replace."""
    others = set(snapshot.changed).difference(rows.columns, row_dims(copy, rows.columns))
    used = used_by_value(copy, graphs)
    if any(n not in copy.named_vars or copy[n] in used for n in others):
        snapshot.unchanged(_CHANGED)
