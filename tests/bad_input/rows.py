"""Calls with rows that lie elsewhere: `open_rows`, and what `build_coreset` takes for them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pymc_coresets import RowSource, build_coreset, open_rows
from tests.bad_input import stage
from tests.bad_input.junk import POOL, Argument, arguments, flag, is_none, seed, whole
from tests.bad_input.outcomes import Call

_COLUMNS = {"x": stage.X, "y": stage.Y, "group": np.arange(stage.N_OBS) % 3}


def _only(*choices: Any) -> Argument:
    """None, or one of some values that no junk is equal to."""
    return Argument(st.sampled_from([None, *choices]), is_none, st.text(max_size=3))


def _is_weight(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value in _COLUMNS)


_OPEN = {
    "columns": _only({"X": ["x", "y"], "g": "group"}, {"y": "y", "group": "group"}),
    "labels": Argument(
        st.sampled_from([None, {}]),
        lambda value: value is None or (isinstance(value, Mapping) and not value),
    ),
    "weight": Argument(st.sampled_from([None, "group"]), _is_weight),
    "dim": _only(),
}
_ROWS = Argument(st.builds(stage.rows), lambda v: v is None or isinstance(v, RowSource))
_BUILD = {
    "rows": _ROWS,
    "executor": _only(),
    "collapse": Argument(
        st.sampled_from([False, "auto"]), lambda v: v is False or flag().accepts(v)
    ),
    "allow_local": Argument(st.just(False), flag().accepts),
    "size": whole(1, stage.N_OBS, optional=True),
    "random_seed": seed(),
}


@st.composite
def opened(draw: st.DrawFn) -> Call:
    """Good sources with bad descriptions."""
    given, bad = draw(arguments(_OPEN))
    return Call(
        run=partial(open_rows, _COLUMNS, **given), given=given, names=bad, refused=bool(bad)
    )


@st.composite
def sources(draw: st.DrawFn) -> Call:
    """What no rows can be read from."""
    # A pattern such as "/*" would be looked for on the whole disk.
    word = st.text(st.characters(exclude_characters="/\\.*?[]{}~"), min_size=1, max_size=5)
    source = draw(st.sampled_from(POOL) | word | st.lists(word))
    return Call(run=partial(open_rows, source), given={"source": source})


@st.composite
def bad_builds(draw: st.DrawFn) -> Call:
    """Builds that are refused before the rows are read."""
    given, bad = draw(arguments(_BUILD).filter(lambda drawn: drawn[1]))
    if "rows" not in bad:
        given["rows"] = stage.rows()
    call = partial(build_coreset, stage.prototypes(), method="uniform", progressbar=False, **given)
    return Call(run=call, given=given, names=bad, refused=True, model=stage.prototypes())


@st.composite
def other_methods(draw: st.DrawFn) -> Call:
    """Methods that need all rows in memory, and options that would merge rows or keep latents."""
    name, value = draw(
        st.sampled_from(
            [("method", "sparse_vi"), ("method", "quasi_newton"), ("method", "sensitivity"),
             ("collapse", True), ("allow_local", True)]
        )
    )  # fmt: skip
    call = partial(
        build_coreset, stage.prototypes(), rows=stage.rows(), progressbar=False, **{name: value}
    )
    names = ("rows", name)
    return Call(run=call, given={name: value}, names=names, refused=True, model=stage.prototypes())
