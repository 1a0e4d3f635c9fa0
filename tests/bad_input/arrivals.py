"""Calls of streams with chunks and options that cannot be used, and merging of other things."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import strategies as st

from pymc_coresets import CoresetStream, Coverage, merge
from tests.bad_input import stage
from tests.bad_input.junk import POOL, Argument, arguments, one_of, positive, seed, whole
from tests.bad_input.outcomes import Call

_MOST = 2**31 - 1
_PILOT = {"x": stage.X, "y": stage.Y}
_STREAM = {
    "size": whole(1, _MOST, optional=True),
    "tolerance": positive(),
    "draws": whole(100, _MOST, optional=True),
    "epoch_growth": Argument(st.just(8.0), lambda v: positive().accepts(v) and v >= 4),
    "observed": one_of(None, "likelihood"),
    "dim": one_of(None),
    "random_seed": seed(),
}


@st.composite
def streams(draw: st.DrawFn) -> Call:
    """Options that are refused before the pilot is read."""
    given, bad = draw(arguments(_STREAM).filter(lambda drawn: drawn[1]))
    call = partial(CoresetStream, stage.template(), pilot=_PILOT, **given)
    return Call(run=call, given=given, names=bad, refused=True, model=stage.template())


def _bad_chunk(draw: st.DrawFn) -> tuple[Any, tuple[str, ...]]:
    """Draw a chunk that cannot be used, and the words of which an error names one."""
    name = draw(st.sampled_from(["x", "y"]))
    values = {"x": stage.X.copy(), "y": stage.Y.copy()}
    what = draw(st.sampled_from(["junk", "missing", "none", "hole", "short", "text", "wide"]))
    if what == "junk":
        # A word would be looked for among the files.
        return draw(st.sampled_from([v for v in POOL if not isinstance(v, str)])), ()
    if what == "missing":
        del values[name]
    elif what == "none":
        values = {each: array[:0] for each, array in values.items()}
        return values, ()
    elif what == "hole":
        values[name][draw(st.integers(0, stage.N_OBS - 1))] = draw(
            st.sampled_from([np.nan, np.inf])
        )
    elif what == "short":
        values[name] = values[name][:-1]
    elif what == "text":
        values[name] = values[name].astype(str)
    else:
        values[name] = np.stack([values[name]] * 2, axis=1)
    return values, ("x", "y")


@st.composite
def pilots(draw: st.DrawFn) -> Call:
    pilot, names = _bad_chunk(draw)
    call = partial(CoresetStream, stage.template(), pilot=pilot, random_seed=1)
    return Call(run=call, given={"pilot": pilot}, names=names, refused=True, model=stage.template())


@st.composite
def updates(draw: st.DrawFn) -> Call:
    """Chunks and weights that are refused, and leave the stream as it was."""
    stream, before = stage.stream(), stage.stream().state()
    chunk, names = _bad_chunk(draw)
    given: dict[str, Any] = {"chunk": chunk}
    if draw(st.booleans()):
        bad = [-1.0, np.nan, np.inf]
        weights = np.ones(stage.N_OBS)
        weights[draw(st.integers(0, stage.N_OBS - 1))] = draw(st.sampled_from(bad))
        odd = [weights, weights[:-1], "x", object(), 1 + 2j, {"x": 1}]
        given, names = {"chunk": _PILOT, "weights": draw(st.sampled_from(odd))}, ("weight",)

    def run() -> None:
        try:
            stream.update(**given)
        finally:
            assert stream.state().identical(before)

    return Call(run=run, given=given, names=names, refused=True, model=stage.template())


def _alter(draw: st.DrawFn, state: xr.DataTree) -> None:
    """Change an attribute or a variable of a state, or drop a group."""
    node = state[draw(st.sampled_from(sorted(state.children)))]
    odd = draw(st.sampled_from(["", "x", "[]", "{}", -1, 1.5, np.nan, np.array([1, 2])]))
    if node.attrs and draw(st.booleans()):
        node.attrs[draw(st.sampled_from(sorted(node.attrs)))] = odd
    elif draw(st.booleans()):
        del state[node.name]
    else:
        name = draw(st.sampled_from(sorted(map(str, node.data_vars))))
        node[name] = xr.Variable("odd", np.atleast_1d(odd))


@st.composite
def restored(draw: st.DrawFn) -> Call:
    """Models and states that are none, or do not belong together."""
    model, state = stage.template(), stage.stream().state()
    what = draw(st.sampled_from(["model", "state", "contents"]))
    if what == "contents":
        _alter(draw, state)
    elif what == "model":
        model = draw(st.sampled_from([v for v in POOL if v is not None] + [stage.model()]))
    else:
        state = draw(st.sampled_from([*POOL, stage.idata(), stage.coreset()]))
    given = {"model": model, "state": state}
    return Call(
        run=partial(CoresetStream.restore, model, state),
        given=given, names=("model", "state", "template"), refused=True, model=stage.template(),
    )  # fmt: skip


@st.composite
def coverages(draw: st.DrawFn) -> Call:
    """What a stream says of its draws needs no input: it can only be read."""
    name = draw(st.sampled_from(["drifted", "draws_serve", "verdict", "ess", "displacement"]))

    def run() -> None:
        found: Coverage = stage.stream().coverage
        getattr(found, name)

    return Call(run=run, given={"of": name}, refused=False)


@st.composite
def merges(draw: st.DrawFn) -> Call:
    table = {
        "size": whole(1, _MOST, optional=True),
        "method": one_of("auto", "sensitivity"),
        "random_seed": seed(),
    }
    given, bad = draw(arguments(table))
    both = {"first": stage.coreset_of_rows(), "second": stage.coreset_of_rows()}
    if not bad:
        name = draw(st.sampled_from(["first", "second"]))
        both[name] = draw(st.sampled_from([*POOL, stage.summary(), stage.stream()]))
        bad = (name,)
    return Call(run=partial(merge, **both, **given), given=both | given, names=bad, refused=True)
