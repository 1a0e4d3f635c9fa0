"""Calls with good and bad options: front doors, classes of options, methods of the results."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import strategies as st

import pymc_coresets
from pymc_coresets import (
    GIGA,
    IHT,
    Coreset,
    FrankWolfe,
    Laplace,
    Prior,
    Pursuit,
    QuasiNewton,
    RiemannianPursuit,
    Sensitivity,
    SparseVI,
    Subsample,
    Uniform,
    build_coreset,
    build_pass_glm,
    compare,
    plot_comparison,
    plot_history,
    plot_weights,
)
from tests.bad_input import stage
from tests.bad_input.junk import (
    HUGE,
    POOL,
    Argument,
    arguments,
    flag,
    is_none,
    one_of,
    positive,
    seed,
    whole,
)
from tests.bad_input.outcomes import Call

_MOST = 2**31 - 1
_TOLERANCE = {"tolerance": positive(optional=True)}


def _is_ess(value: Any) -> bool:
    """Unlike other positive numbers, it may be infinite."""
    return positive().accepts(value) or (isinstance(value, float) and value == math.inf)


_ESS = Argument(st.floats(1.0, 1e6) | st.just(math.inf), _is_ess)


def _is_center(value: Any) -> bool:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return False
    return value is None or (array.ndim == 1 and bool(np.isfinite(array).all()))


_CENTER = Argument(st.none() | st.lists(st.floats(-1, 1), min_size=1, max_size=3), _is_center)

#: The arguments of every class of options.
OPTION_CLASSES: Mapping[type[Any], Mapping[str, Argument]] = {
    Pursuit: _TOLERANCE,
    GIGA: _TOLERANCE | {"polish": flag()},
    FrankWolfe: _TOLERANCE | {"polish": flag()},
    IHT: _TOLERANCE | {"max_iterations": whole(1, _MOST)},
    QuasiNewton: {
        "draws": whole(2, _MOST),
        "max_iterations": whole(1, _MOST),
        "regularisation": positive(),
    },
    RiemannianPursuit: {
        "tolerance": positive(),
        "draws": whole(100, _MOST, optional=True),
        "start_size": whole(1, _MOST, optional=True),
        "max_rounds": whole(1, _MOST),
        "patience": whole(1, _MOST),
    },
    SparseVI: {
        "draws": whole(2, _MOST),
        "n_steps": whole(1, _MOST),
        "step_size": positive(optional=True),
        "adam": Argument(st.just(False), lambda value: isinstance(value, bool | np.bool_)),
        "n_subsample": whole(1, _MOST, optional=True),
    },
    Sensitivity: {
        "n_clusters": whole(1, _MOST),
        "radius": positive(optional=True),
        "center": _CENTER,
        "exact_centers": flag(),
        "epsilon": positive(below=1, optional=True),
        "delta": positive(below=1),
    },
    Subsample: {
        "size": whole(2, _MOST, optional=True),
        "sampler": one_of("nuts", "laplace"),
        "tune": whole(1, _MOST),
    },
    Uniform: {},
    Laplace: {},
    Prior: {},
}


@st.composite
def option_objects(draw: st.DrawFn) -> Call:
    kind = draw(st.sampled_from(list(OPTION_CLASSES)))
    given, bad = draw(arguments(OPTION_CLASSES[kind]))
    return Call(
        run=partial(kind, **given),
        given={"class": kind.__name__} | given,
        names=bad,
        refused=bool(bad),
    )


# -- front doors -----------------------------------------------------------------------------------


def _names() -> Argument:
    def accepts(value: Any) -> bool:
        return value is None or (isinstance(value, str) and value == "y")

    return Argument(st.sampled_from([None, "y", ["y"], ("y",)]), accepts, st.text(max_size=3))


def _dim() -> Argument:
    return one_of(None, "row")


_MODEL = Argument(st.builds(stage.model), lambda _: False, st.nothing())
_WEIGHTING = Argument(
    st.sampled_from([{"a": stage.posterior()["a"].values}, stage.posterior(), stage.idata()]),
    lambda value: value is None or isinstance(value, xr.Dataset | xr.DataTree | dict),
    st.text(max_size=5),
)

_COMMON = {
    "model": _MODEL,
    "observed": _names(),
    "dim": _dim(),
    "random_seed": seed(),
    "progressbar": flag(),
}
_BUILD = _COMMON | {
    "size": whole(1, stage.N_OBS, optional=True),
    "collapse": flag(),
    "allow_local": flag(),
}
_BUILD_BY: Mapping[str, Mapping[str, Argument]] = {
    "uniform": {"method": Argument(st.sampled_from(["uniform", Uniform()]), lambda _: False)},
    "pursuit": {
        "method": Argument(st.sampled_from(["pursuit", Pursuit(), "giga"]), lambda _: False),
        "tolerance": positive(optional=True),
        "weighting": _WEIGHTING,
    },
    "auto": {"time_budget": positive(optional=True), "tolerance": positive(optional=True)},
}
_PASS = _COMMON | {
    "degree": whole(1, 20),
    "radius": Argument(st.just(4.0), lambda v: positive().accepts(v) or v is None),
    "given": Argument(st.none(), lambda v: v is None or (isinstance(v, dict) and not v)),
}


def _quiet(given: dict[str, Any], bad: tuple[str, ...]) -> dict[str, Any]:
    """Fill in what has no default here, and draw no progress bars."""
    chosen = dict(given)
    chosen.setdefault("model", stage.model())
    if chosen["model"] is None and "model" in bad:
        chosen["model"] = "no model"
    if "progressbar" not in bad:
        chosen["progressbar"] = False
    return chosen


@st.composite
def bad_builds(draw: st.DrawFn) -> Call:
    table = _BUILD | draw(st.sampled_from(list(_BUILD_BY.values())))
    given, bad = draw(arguments(table).filter(lambda drawn: drawn[1]))
    if "weighting" in table:
        given.setdefault("method", "pursuit")
    return Call(
        run=partial(build_coreset, **_quiet(given, bad)), given=given, names=bad, refused=True
    )


@st.composite
def good_builds(draw: st.DrawFn) -> Call:
    kind = draw(st.sampled_from(["uniform", "pursuit"]))
    given, _ = draw(arguments(_BUILD | _BUILD_BY[kind], most_junk=0))
    defaults = {"method": "uniform"} if kind == "uniform" else {"method": "pursuit"}
    if kind == "pursuit" and given.get("weighting") is None:
        given["weighting"] = {"a": stage.posterior()["a"].values}
    if kind == "uniform" or given.get("method") is None:
        given = defaults | given
    call = partial(build_coreset, **_quiet(given, ()))
    return Call(run=call, given=given, refused=False)


@st.composite
def summaries(draw: st.DrawFn) -> Call:
    given, bad = draw(arguments(_PASS).filter(lambda drawn: drawn[1]))
    return Call(
        run=partial(build_pass_glm, **_quiet(given, bad)), given=given, names=bad, refused=True
    )


@st.composite
def fixed_values(draw: st.DrawFn) -> Call:
    """Values for free variables that are no such, or have other names."""
    name = draw(st.sampled_from(["a", "a", "y", "x", "z", 1, None]))
    value = draw(st.sampled_from([v for v in POOL if not _is_number(v)]))
    given = {"given": {name: value}}
    run = partial(build_pass_glm, stage.model(), progressbar=False, **given)
    return Call(run=run, given=given, names=("given",), refused=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.generic) or (
        isinstance(value, np.ndarray | xr.DataArray) and np.ndim(value) == 0
    )


# -- methods of the results ------------------------------------------------------------------------


def _standing(kind: str) -> Any:
    return stage.coreset() if kind == "coreset" else stage.summary()


_STANDING = st.sampled_from(["coreset", "summary"])
_SAMPLE = {
    "nuts_sampler": one_of(None, "pymc", "nutpie", "numpyro", "blackjax"),
    "draws": whole(1, _MOST),
    "tune": whole(0, _MOST, optional=True),
    "chains": whole(1, _MOST, optional=True),
    "cores": whole(1, _MOST, optional=True),
    "random_seed": seed(),
    "return_inferencedata": Argument(st.just(True), lambda value: value is True),
}


@st.composite
def bad_samples(draw: st.DrawFn) -> Call:
    kind = draw(_STANDING)
    names = draw(st.lists(st.sampled_from(sorted(_SAMPLE)), min_size=1, max_size=2, unique=True))
    given = {name: draw(_SAMPLE[name].junk) for name in names}
    given |= draw(st.sampled_from([{}, {}, {"model": stage.model()}]))
    run = partial(_standing(kind).sample, progressbar=False, **given)
    return Call(run=run, given={"of": kind} | given, names=tuple(given), refused=True)


_ONE_CALL: Mapping[str, Argument] = {
    "draws": whole(30, _MOST),
    "chains": whole(1, _MOST),
    "random_seed": seed(),
    "tolerance": positive(optional=True),
    "on_failure": one_of("warn", "raise", "nuts"),
    "nuts_sampler": one_of(None, "pymc", "nutpie", "numpyro", "blackjax"),
}


@st.composite
def bad_calls(draw: st.DrawFn) -> Call:
    """One call for it all, of which nothing is done where an option is out of range."""
    names = draw(st.lists(st.sampled_from(sorted(_ONE_CALL)), min_size=1, max_size=2, unique=True))
    given = {name: draw(_ONE_CALL[name].junk) for name in names}
    run = partial(pymc_coresets.sample, stage.model(), progressbar=False, **given)
    return Call(run=run, given=given, names=tuple(given), refused=True)


@st.composite
def coresets_of_draws(draw: st.DrawFn) -> Call:
    """Draws that hold a coreset in part, or are none."""
    idata = draw(st.sampled_from([*POOL, stage.idata(), stage.coreset().to_datatree()]))
    run = partial(pymc_coresets.coreset_of, idata, stage.model())
    return Call(run=run, given={"idata": idata}, names=("idata",), refused=True)


@st.composite
def reweightings(draw: st.DrawFn) -> Call:
    kind = draw(_STANDING)
    of_draws = {"draws": whole(1, _MOST, optional=True), "ess": _ESS}
    given, bad = draw(arguments(of_draws | {"random_seed": seed()}))
    run = partial(_standing(kind).reweight, stage.idata(), **given)
    return Call(run=run, given={"of": kind} | given, names=bad, refused=bool(bad))


@st.composite
def summary_checks(draw: st.DrawFn) -> Call:
    given, bad = draw(arguments({"random_seed": seed()}))
    return Call(
        run=partial(stage.summary().check, **given), given=given, names=bad, refused=bool(bad)
    )


@st.composite
def sums(draw: st.DrawFn) -> Call:
    other = draw(st.sampled_from([*POOL, stage.coreset(), stage.model()]))
    return Call(run=lambda: _added(stage.summary(), other), given={"other": other}, refused=True)


def _added(summary: Any, other: Any) -> None:
    """Add, and turn Python's own error for what cannot be added into one of ours."""
    found = summary.__add__(other)
    if found is NotImplemented:
        raise pymc_coresets.InvalidOptionError("Python refuses to add it.")


# -- comparisons and plots -------------------------------------------------------------------------

_WANTED = Argument(
    st.sampled_from([None, "a", ["a"], ("a",)]),
    lambda v: v is None or (isinstance(v, str) and v == "a"),
    st.text(max_size=3),
)
_AXES = Argument(st.none(), is_none, st.nothing())
_RESULT = Argument(st.builds(stage.coreset), lambda _: False, st.nothing())


def _closing(plot: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    try:
        plot(*args, **kwargs)
    finally:
        plt.close("all")


@st.composite
def comparisons(draw: st.DrawFn) -> Call:
    given, bad = draw(arguments({"var_names": _WANTED}))
    run = partial(compare, stage.posterior(), stage.idata(), **given)
    return Call(run=run, given=given, names=bad, refused=bool(bad))


@st.composite
def plots_of_comparisons(draw: st.DrawFn) -> Call:
    table = {"var_names": _WANTED}
    given, bad = draw(arguments(table).filter(lambda drawn: drawn[1]))
    run = partial(_closing, plot_comparison, stage.posterior(), stage.idata(), **given)
    return Call(run=run, given=given, names=bad, refused=True)


@st.composite
def plots_of_coresets(draw: st.DrawFn) -> Call:
    plot = draw(st.sampled_from([plot_weights, plot_history]))
    given, bad = draw(
        arguments({"coreset": _RESULT, "ax": _AXES}).filter(lambda drawn: "coreset" in drawn[0])
    )
    # A uniform coreset has no history of its objective.
    refused = bool(bad) or plot is plot_history
    names = bad or (("coreset",) if refused else ())
    run = partial(_closing, plot, **given)
    return Call(run=run, given={"plot": plot.__name__} | given, names=names, refused=refused)


def _are_columns(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(name, str) and name in ("x", "y") for name in value)
    return value is None or (isinstance(value, str) and value in ("x", "y"))


_READ = {
    "columns": Argument(
        st.sampled_from([None, "x", ["y"], ("y", "x")]), _are_columns, st.text(max_size=3)
    ),
}


@st.composite
def summaries_of_coresets(draw: st.DrawFn) -> Call:
    given, bad = draw(arguments(_READ))
    run = partial(stage.coreset().summary, **given)
    return Call(run=run, given=given, names=bad, refused=bool(bad))


# -- files -----------------------------------------------------------------------------------------


@st.composite
def paths(draw: st.DrawFn) -> Call:
    path = draw(
        st.sampled_from([v for v in POOL if not isinstance(v, str) or v == ""])
        | st.sampled_from(["\0", "a" * 300, "/", ".", str(stage.folder()), "/nowhere/x.nc"])
    )
    method = draw(st.sampled_from([stage.coreset().to_netcdf, Coreset.from_netcdf]))
    names = ("path", str(path), repr(path))
    return Call(run=partial(method, path), given={"path": path}, names=names, refused=True)


@st.composite
def read_with_models(draw: st.DrawFn) -> Call:
    model = draw(st.sampled_from([v for v in POOL if v is not None]))
    run = partial(Coreset.from_netcdf, stage.folder() / "coreset.nc", model)
    return Call(run=run, given={"model": model}, names=("model",), refused=True)


assert HUGE > _MOST
