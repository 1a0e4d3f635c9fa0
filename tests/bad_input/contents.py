"""Calls that read intact files whose contents make no sense."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import strategies as st

from pymc_coresets import Coreset
from pymc_coresets.storage import write_netcdf
from tests.bad_input import stage
from tests.bad_input.outcomes import Call

_VALUES: list[Any] = [
    np.array([]), np.array([0]), np.array([-1, 0, 1, 2, 3]), np.arange(5) + 10**6, np.zeros(5, int),
    np.array([4, 3, 2, 1, 0]), np.full(5, np.nan), np.full(5, -1.0), np.full(5, np.inf),
    np.zeros(5), np.arange(5.0), np.array(list("abcde")), np.ones((5, 2)), np.array(1.0),
]  # fmt: skip
_ATTRIBUTES: list[Any] = [
    "", "x", "nan", -1, 0, 10**9, 1.5, np.nan, "null", "{}", "[]", "[1]",
    json.dumps({"observed": 1, "dim": None, "allow_local": False}),
    json.dumps({"observed": ["z"], "dim": None, "allow_local": False}),
    json.dumps({"observed": None, "dim": "z", "allow_local": "x"}),
    json.dumps({"observed": None, "dim": None, "allow_local": False, "more": 1}),
    np.array([1, 2]),
]  # fmt: skip

type Change = Callable[[dict[str, xr.Dataset]], dict[str, xr.Dataset]]


@st.composite
def _changes(draw: st.DrawFn) -> tuple[str, Change]:
    kind = draw(st.sampled_from(["variable", "attribute", "drop variable", "drop attribute", "h"]))
    tree = stage.coreset().to_datatree()["coreset"].to_dataset()
    name = draw(st.sampled_from([*tree.data_vars] if "variable" in kind else [*tree.attrs]))
    if kind == "variable":
        value = draw(st.sampled_from(_VALUES))
        dims = [f"{name}_{i}" for i in range(value.ndim)]
        dims = ["row"] if value.shape == (tree.sizes["row"],) else dims
        changed = tree.assign({name: (dims, value)})
        return f"{name}={value!r}", lambda groups: groups | {"coreset": changed}
    if kind == "attribute":
        value = draw(st.sampled_from(_ATTRIBUTES))
        attrs = tree.assign_attrs({name: value})
        return f"{name}={value!r}", lambda groups: groups | {"coreset": attrs}
    if kind == "drop variable":
        dropped = tree.drop_vars(name)
        return f"no {name}", lambda groups: groups | {"coreset": dropped}
    if kind == "drop attribute":
        left = tree.copy()
        del left.attrs[name]
        return f"no {name}", lambda groups: groups | {"coreset": left}
    return "no history", lambda groups: {"coreset": groups["coreset"]}


@st.composite
def contents(draw: st.DrawFn) -> Call:
    said, change = draw(_changes())
    with_model = draw(st.booleans())
    return Call(run=partial(_read, change, with_model=with_model), given={"file": said}, names=())


def _read(change: Change, *, with_model: bool) -> None:
    """Write the file, and use whatever is read from it."""
    groups = {
        name: node.to_dataset() for name, node in stage.coreset().to_datatree().children.items()
    }
    path = Path(stage.folder()) / "odd.nc"
    try:
        write_netcdf(xr.DataTree.from_dict(change(groups)), path)
        found = Coreset.from_netcdf(path, stage.model() if with_model else None)
        repr(found)
        if with_model:
            found.log_ratios(stage.idata())
            assert found.model.free_RVs
    finally:
        path.unlink(missing_ok=True)
