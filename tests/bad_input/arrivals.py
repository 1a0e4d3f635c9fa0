"""Calls of streams with chunks and options that cannot be used, and merging of other things."""

import atexit
import shutil
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import strategies as st

from pymc_coresets import CoresetStream, Coverage, merge
from pymc_coresets.storage import read_netcdf, write_netcdf
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
    call = partial(CoresetStream, stage.prototypes(), pilot=_PILOT, **given)
    return Call(run=call, given=given, names=bad, refused=True, model=stage.prototypes())


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
    call = partial(CoresetStream, stage.prototypes(), pilot=pilot, random_seed=1)
    return Call(
        run=call, given={"pilot": pilot}, names=names, refused=True, model=stage.prototypes()
    )


@st.composite
def updates(draw: st.DrawFn) -> Call:
    """Chunks and weights that are refused, and leave the stream as it was."""
    stream, before = stage.stream(), stage.stream()._state
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
            assert stream._state is before

    return Call(run=run, given=given, names=names, refused=True, model=stage.prototypes())


@cache
def _folder() -> Path:
    """A folder of this module's own, beside the one where no file may be left behind."""
    path = Path(tempfile.mkdtemp(prefix="bad_streams_"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    stage.stream().to_netcdf(path / "stream.nc")
    return path


def _altered(draw: st.DrawFn, folder: Path) -> Path:
    """Change an attribute or a variable of an intact file, drop a group, or cut it off."""
    path = folder / "odd.nc"
    shutil.copy(folder / "stream.nc", path)
    groups = read_netcdf(path)
    name = draw(st.sampled_from(["stream_draws", "stream_candidates"]))
    odd = draw(st.sampled_from(["", "x", "[]", "{}", "[1]"]))
    what = draw(st.sampled_from(["attribute", "group", "variable", "content"]))
    if what == "content":
        path.write_bytes(path.read_bytes()[: draw(st.integers(0, 5_000))])
        return path
    if what == "attribute":
        kept = groups["stream_candidates"]
        kept.attrs[draw(st.sampled_from(["options", "numbers", "free_variables"]))] = odd
    elif what == "group":
        del groups[name]
    else:
        columns = sorted(map(str, groups[name].data_vars))
        groups[name] = groups[name].drop_vars(draw(st.sampled_from(columns)))
    write_netcdf(xr.DataTree.from_dict(groups), path)
    return path


@st.composite
def restored(draw: st.DrawFn) -> Call:
    """Models and files that are none, or do not belong together."""
    folder = _folder()
    model, path = stage.prototypes(), folder / "stream.nc"
    what = draw(st.sampled_from(["model", "path", "contents"]))
    if what == "contents":
        path = _altered(draw, folder)
    elif what == "model":
        model = draw(st.sampled_from([v for v in POOL if v is not None] + [stage.model()]))
    else:
        path = draw(
            st.sampled_from([stage.folder() / "coreset.nc", folder, folder / "nothing.nc", 1.5])
        )
    given = {"model": model, "path": path}
    names = ("model", "path", "file", "draws", "prototype", "cannot be read")
    return Call(
        run=partial(CoresetStream.from_netcdf, path, model),
        given=given, names=names, refused=True, model=stage.prototypes(),
    )  # fmt: skip


@st.composite
def coverages(draw: st.DrawFn) -> Call:
    """What a stream says of its draws needs no input: it can only be read."""
    name = draw(st.sampled_from(["drifted", "draws_serve", "verdict", "ess", "distance"]))

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
