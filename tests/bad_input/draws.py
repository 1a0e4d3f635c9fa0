"""Calls with draws that are not those of the model, or no draws at all."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import strategies as st

from pymc_coresets import build_coreset, check_approximation, compare, plot_comparison
from tests.bad_input import stage
from tests.bad_input.junk import POOL
from tests.bad_input.options import _closing, _standing
from tests.bad_input.outcomes import Call

type Spoil = Callable[[xr.Dataset], object]


def _tree(posterior: xr.Dataset, **groups: xr.Dataset) -> xr.DataTree:
    return xr.DataTree.from_dict({"posterior": posterior, **groups})


def _with(entry: Any) -> Spoil:
    """Put a value in place of the first draw."""

    def spoil(data: xr.Dataset) -> xr.Dataset:
        values = data["a"].values.copy()
        values[0, 0] = entry
        return data.assign(a=(("chain", "draw"), values))

    return spoil


def _of_type(dtype: Any) -> Spoil:
    return lambda data: data.assign(a=data["a"].astype(dtype))


def _filled(value: float) -> Spoil:
    return lambda data: data.assign(a=xr.full_like(data["a"], value))


def _stats(values: Any) -> Spoil:
    stats = xr.Dataset({"diverging": (("chain", "draw"), values)})
    return lambda data: _tree(data, sample_stats=stats)


#: Draws that are as good as others.
GOOD: dict[str, Spoil] = {
    "as they are": lambda data: data,
    "draw before chain": lambda data: data.transpose("draw", "chain"),
    "more variables": lambda data: data.assign(b=data["a"] + 1),
    "a variable without draws": lambda data: data.assign(c=("k", [1.0])),
    "labels": lambda data: data.assign_coords(chain=["one", "two"], draw=range(30)),
    "single precision": _of_type(np.float32),
    "divergences": _stats(np.zeros((2, 30), bool)),
}

#: Draws that nothing can be made of.
BAD: dict[str, Spoil] = {
    "NaN": _with(np.nan),
    "infinity": _with(np.inf),
    "far beyond": _with(1e308),
    "no variable": lambda data: data.drop_vars("a"),
    "another name": lambda data: data.rename(a="b"),
    "no chain": lambda data: data.isel(chain=0),
    "no draw": lambda data: data.isel(draw=0),
    "a number": lambda data: data.isel(chain=0, draw=0),
    "other dims": lambda data: data.rename(chain="c", draw="d"),
    "too many dims": lambda data: data.expand_dims(k=3),
    "no draws at all": lambda data: data.isel(draw=slice(0)),
    "no chains at all": lambda data: data.isel(chain=slice(0)),
    "one draw": lambda data: data.isel(draw=[0], chain=[0]),
    "ten draws": lambda data: data.isel(draw=slice(10), chain=[0]),
    "words": _of_type(str),
    "objects": _of_type(object),
    "complex": _of_type(complex),
    "dates": _of_type("datetime64[ns]"),
    "nothing": lambda _: xr.Dataset(),
    "one number for all": lambda data: data.assign(a=1.0),
    "one number for each chain": lambda data: data.assign(a=("chain", [1.0, 2.0])),
}

#: Draws that may be refused, or not.
ODD: dict[str, Spoil] = {
    "all the same": _filled(1.0),
    "all zero": _filled(0.0),
    "one chain": lambda data: data.isel(chain=[0]),
    "whole numbers": _of_type(int),
    "truth values": _of_type(bool),
    "half precision": _of_type(np.float16),
    "huge": _filled(1e200),
    "tiny": _filled(1e-320),
    "odd divergences": _stats(np.full((2, 30), np.nan)),
    "words for divergences": _stats(np.full((2, 30), "x")),
    "more words": lambda data: data.assign(b=data["a"].astype(str)),
    "more dates": lambda data: data.assign(b=data["a"].astype("datetime64[ns]")),
    "more NaN": lambda data: data.assign(b=data["a"] * np.nan),
    "no numbers beside": lambda data: data.assign(b=data["a"].isel(draw=0)),
    "a group of other draws": lambda data: _tree(data, predictions=data.isel(draw=slice(5))),
    "the same label twice": lambda data: data.assign_coords(draw=[0] * 30),
}

_BAD_TYPES = [v for v in POOL if not isinstance(v, xr.Dataset | xr.DataTree)]
_WORDS = ("idata", "draws", "Draws", "'a'", "posterior", "full", "approximation", "weighting")


def _wrapped(found: object) -> object:
    return _tree(found) if isinstance(found, xr.Dataset) else found


@st.composite
def _spoiled(draw: st.DrawFn) -> tuple[str, object, bool | None]:
    kind = draw(st.sampled_from(["good", "bad", "bad", "odd", "odd", "no draws"]))
    if kind == "no draws":
        value = draw(st.sampled_from([*_BAD_TYPES, xr.DataTree(), xr.Dataset(), [1.0, 2.0]]))
        return kind, value, True
    table = {"good": GOOD, "bad": BAD, "odd": ODD}[kind]
    name = draw(st.sampled_from(list(table)))
    data = stage.posterior()
    return name, table[name](data), {"good": False, "bad": True, "odd": None}[kind]


@st.composite
def judgements(draw: st.DrawFn) -> Call:
    """Draws for the methods of a coreset and of a summary."""
    name, value, refused = draw(_spoiled())
    of, method = (
        draw(st.sampled_from(["coreset", "summary"])),
        draw(st.sampled_from(["check", "log_ratios", "reweight"])),
    )
    if of == "summary" and method == "check" and value is None:
        refused = False  # by default it has draws of its own
    if method == "log_ratios" and name in {"one draw", "ten draws"}:
        refused = False  # enough for ratios
    run = partial(getattr(_standing(of), method), _wrapped(value))
    given = {"of": of, "method": method, "idata": value if name == "no draws" else name}
    return Call(run=run, given=given, names=_WORDS, refused=refused)


@st.composite
def weightings(draw: st.DrawFn) -> Call:
    """Draws for the choice of rows."""
    name, value, refused = draw(_spoiled().filter(lambda found: found[1] is not None))
    if isinstance(value, str):
        value = [value]
    if name in {"no chain", "no draw", "other dims", "too many dims", "truth values"}:
        refused = None  # one chain is enough here, and draws have to be on the first axes
    form = draw(st.sampled_from(["tree", "dataset", "mapping"]))
    if isinstance(value, xr.Dataset):
        forms = {"tree": _tree, "dataset": lambda d: d, "mapping": lambda d: dict(d.data_vars)}
        value = forms[form](value)
    run = partial(
        build_coreset,
        stage.model(),
        size=3,
        method="pursuit",
        weighting=value,
        random_seed=1,
        progressbar=False,
    )
    given = {"weighting": value if name == "no draws" else (form, name)}
    return Call(run=run, given=given, names=_WORDS, refused=refused)


@st.composite
def compared(draw: st.DrawFn) -> Call:
    """Draws for comparisons and their plots."""
    name, value, refused = draw(_spoiled())
    other = stage.idata()
    pair = draw(st.sampled_from([(value, other), (other, value)]))
    use = draw(st.sampled_from([compare, compare, partial(_closing, plot_comparison)]))
    if name in {"one draw", "ten draws"}:
        refused = None  # few are enough for a plot
    given = {"use": use, "draws": value if name == "no draws" else name, "second": pair[1] is value}
    return Call(run=partial(use, *pair), given=given, names=_WORDS, refused=refused)


@st.composite
def approximated(draw: st.DrawFn) -> Call:
    """Draws and log-densities of an approximation: one of the two is bad."""
    if draw(st.booleans()):
        name, value, refused = draw(_spoiled())
        value, density = _wrapped(value), lambda x: -np.square(x).sum(axis=1)
        given = {"idata": value if name == "no draws" else name}
    else:
        density = draw(st.sampled_from([v for v in POOL if not callable(v)]))
        value, refused, given = stage.idata(), True, {"log_density": density}
    run = partial(check_approximation, stage.model(), value, density)
    return Call(run=run, given=given, names=("log_density", *_WORDS), refused=refused)
