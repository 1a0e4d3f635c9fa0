"""Values that are valid for an argument, and values that are not."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from operator import index
from typing import Any

import numpy as np
import pandas as pd
import pytensor.tensor as pt
import xarray as xr
from hypothesis import strategies as st

from pymc_coresets import Pursuit

HUGE = 10**30

#: What users pass by mistake, and what breaks comparisons, conversions and truth values.
POOL: list[Any] = [
    None, True, False, np.True_, 0, 1, -1, 3, HUGE, 10**400, -0.0, 0.5, 2.0, -1.5, 1e308, math.nan,
    math.inf, -math.inf, 1 + 2j, "", "x", "1", "nan", b"x", (), (1, 2), [], [[1, [2]]], ["x"],
    {}, {"x": 1}, set(), range(3), np.int8(-3), np.uint64(2**64 - 1), np.float16("nan"),
    np.float32(0.25), np.complex128(1j), np.datetime64("2020-01-01"), np.array([]),
    np.array([1, 2]), np.array(2.5), np.array([[1.0, math.nan]]), np.array(["x", None], object),
    np.ma.masked, np.ma.masked_array([1.0, 2.0], [True, False]), Decimal("0.5"), Fraction(1, 3),
    pd.NA, pd.Series([1.0, 2.0]), pd.DataFrame({"x": [1.0]}), xr.Dataset(), xr.DataTree(),
    xr.DataArray([1.0]), pt.scalar("symbol"), object(), int, dict, Pursuit, len, lambda: 1,
    iter([1]), ..., NotImplemented,
]  # fmt: skip

numbers = st.one_of(st.integers(), st.floats(), st.integers(-3, 30), st.floats(-2.0, 2.0))


@dataclass(frozen=True)
class Argument:
    """Values that an argument accepts, and a test of others that may come along by chance."""

    valid: st.SearchStrategy[Any]
    accepts: Callable[[Any], bool]
    more_junk: st.SearchStrategy[Any] = numbers

    @property
    def junk(self) -> st.SearchStrategy[Any]:
        some = st.one_of(st.sampled_from(POOL), self.more_junk)
        return some.filter(lambda value: not self.accepts(value))


def is_none(value: Any) -> bool:
    return value is None


def whole(least: int, most: int, *, optional: bool = False, drawn: int | None = None) -> Argument:
    """A whole number; the valid ones that are drawn are not above `drawn`."""

    def accepts(value: Any) -> bool:
        try:
            return not isinstance(value, bool | np.bool_) and least <= index(value) <= most
        except TypeError:
            return optional and value is None

    some = st.integers(least, min(most, least + 40) if drawn is None else drawn)
    kinds = st.one_of(some, some.map(np.int64), some.map(np.array))
    return Argument(st.none() | kinds if optional else kinds, accepts)


def positive(*, below: float = math.inf, optional: bool = False) -> Argument:
    """A positive number."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool):
            return optional and value is None
        try:
            return 0 < float(value) < below
        except OverflowError:
            return False

    some = st.floats(0.001, min(below, 5.0), exclude_max=True)
    kinds = st.one_of(some, some.map(np.float64))
    return Argument(st.none() | kinds if optional else kinds, accepts)


def flag() -> Argument:
    """True or False."""
    some = st.booleans()
    return Argument(some | some.map(np.bool_), lambda value: isinstance(value, bool | np.bool_))


def one_of(*choices: Any) -> Argument:
    """A name from a list, or None if that is in it."""

    def accepts(value: Any) -> bool:
        return any(value is choice for choice in choices) or (
            isinstance(value, str) and value in choices
        )

    return Argument(st.sampled_from(choices), accepts, st.text(max_size=5))


def seed() -> Argument:
    """A seed: whatever NumPy takes for one, but no truth value."""

    def accepts(value: Any) -> bool:
        try:
            np.random.default_rng(value)
        except (TypeError, ValueError):
            return False
        return not isinstance(value, bool | np.bool_)

    some = st.one_of(st.none(), st.integers(0, 2**32), st.lists(st.integers(0, 9), min_size=1))
    return Argument(some | some.map(np.random.default_rng), accepts)


@st.composite
def arguments(
    draw: st.DrawFn, table: Mapping[str, Argument], most_junk: int = 2
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Draw arguments, some of them bad, and the names of the bad ones."""
    names = sorted(table)
    bad = draw(st.lists(st.sampled_from(names), max_size=most_junk, unique=True)) if names else []
    omitted = draw(st.sets(st.sampled_from(names))) if names else set()
    given = {}
    for name in names:
        if name in bad:
            given[name] = draw(table[name].junk)
        elif name not in omitted:
            given[name] = draw(table[name].valid)
    return given, tuple(bad)
