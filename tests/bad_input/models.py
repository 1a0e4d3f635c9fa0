"""Calls with models that no coreset can be made of, and with data of any type and shape."""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from hypothesis import assume
from hypothesis import strategies as st

from pymc_coresets import build_coreset, build_pass_glm
from tests.bad_input import stage
from tests.bad_input.junk import POOL
from tests.bad_input.outcomes import Call

N, X, Y = stage.N_OBS, stage.X, stage.Y

# -- wrong models ----------------------------------------------------------------------------------


def nothing() -> None:
    pass


def no_observed() -> None:
    pm.Normal("a")


def scalar_potential() -> None:
    pm.Potential("total", -(pm.Normal("a") ** 2))


def scalar_observation() -> None:
    pm.Normal("y", pm.Normal("a"), observed=1.0)


def one_row() -> None:
    pm.Normal("y", pm.Normal("a"), observed=Y[:1])


def no_rows() -> None:
    pm.Normal("y", pm.Normal("a"), observed=Y[:0])


def one_value_per_row() -> None:
    pm.Normal("y", pm.Normal("a", shape=N), observed=Y)


def hidden_state() -> None:
    a = pm.Beta("a", 1.0, 1.0)
    pm.GARCH11("y", omega=1.0, alpha_1=a, beta_1=0.5, initial_vol=1.0, observed=Y)


def one_vector() -> None:
    pm.MvNormal("y", pm.Normal("a") * np.ones(N), cov=np.eye(N), observed=Y)


def part_of_the_data() -> None:
    pm.Normal("y", pm.Normal("a"), observed=Y, total_size=1_000)


def random_data() -> None:
    x, y = pm.Minibatch(X, Y, batch_size=5)
    pm.Normal("y", pm.Normal("a") * x, observed=y, total_size=N)


def unnamed_distribution() -> None:
    pm.Normal("y", pm.Normal("a") + pm.Normal.dist(), observed=Y)


def impossible() -> None:
    pm.Exponential("y", pm.LogNormal("a"), observed=Y)


def uses_the_rows() -> None:
    y = pm.Normal("y", pm.Normal("a"), observed=Y)
    pm.Normal("z", y.sum(), observed=1.0)


#: Models that are refused; with them the words of which the message has one.
WRONG: dict[Callable[[], None], tuple[str, ...]] = {
    nothing: ("no observed",),
    no_observed: ("no observed",),
    scalar_potential: ("no observed",),
    scalar_observation: ("'y'",),
    one_row: ("'y'",),
    no_rows: ("'y'",),
    one_value_per_row: ("'a'",),
    hidden_state: ("'y'",),
    one_vector: ("'y'",),
    part_of_the_data: ("'y'",),
    random_data: ("'y'",),
    unnamed_distribution: ("'y'",),
    impossible: ("'y'", "observation"),
    uses_the_rows: ("'z'",),
}


@cache
def built(build: Callable[[], None]) -> pm.Model:
    with pm.Model() as model:
        build()
    return model


@cache
def inner() -> pm.Model:
    with pm.Model(), pm.Model(name="inner") as model:
        pm.Normal("y", pm.Normal("a"), observed=Y)
    return model


@st.composite
def wrong_models(draw: st.DrawFn) -> Call:
    kind = draw(st.sampled_from(["wrong", "wrong", "no model", "part", "own"]))
    use = draw(st.sampled_from([build_coreset, build_pass_glm]))
    names: tuple[str, ...] = ("model",)
    if kind == "wrong":
        builder = draw(st.sampled_from(list(WRONG)))
        model, given = built(builder), builder.__name__
        names = WRONG[builder] if use is build_coreset else ()
    elif kind == "no model":
        model = given = draw(st.sampled_from(POOL))
    elif kind == "part":
        model, given, names = inner(), "a part of another model", ("'inner'",)
    else:
        own = stage.coreset() if use is build_coreset else stage.summary()
        model, given = own.model, "its own model"
    extra = {"method": "uniform"} if use is build_coreset else {}
    return Call(
        run=partial(use, model, progressbar=False, **extra),
        given={"use": use.__name__, "model": given},
        names=names,
        refused=True,
        model=model if isinstance(model, pm.Model) else None,
    )


# -- data ------------------------------------------------------------------------------------------


def _with(values: np.ndarray, entry: Any) -> np.ndarray:
    changed = np.array(values, dtype=np.result_type(values, type(entry)))
    changed[3] = entry
    return changed


def _masked(values: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.masked_array(values, np.arange(len(values)) == 3)


def _read_only(values: np.ndarray) -> np.ndarray:
    copied = values.copy()
    copied.flags.writeable = False
    return copied


#: What data may be like; PyMC itself may refuse to make a model of them.
DATA: dict[str, Callable[[np.ndarray], Any]] = {
    "as they are": lambda v: v,
    "truth values": lambda v: v > 0,
    "whole numbers": lambda v: np.round(v).astype(int),
    "bytes": lambda v: np.abs(np.round(v)).astype(np.uint8),
    "single precision": lambda v: v.astype(np.float32),
    "half precision": lambda v: v.astype(np.float16),
    "complex": lambda v: v.astype(complex),
    "objects": lambda v: v.astype(object),
    "words": lambda v: v.astype(str),
    "dates": lambda v: (v * 1e6).astype("datetime64[s]"),
    "a list": lambda v: v.tolist(),
    "NaN": lambda v: _with(v, np.nan),
    "infinity": lambda v: _with(v, np.inf),
    "masked": _masked,
    "all masked": lambda v: np.ma.masked_array(v, np.ones(len(v), bool)),
    "empty": lambda v: v[:0],
    "one row": lambda v: v[:1],
    "two rows": lambda v: v[:2],
    "constant": np.ones_like,
    "zero": np.zeros_like,
    "equal rows": lambda v: np.tile(v[:2], len(v) // 2),
    "huge": lambda v: v * 1e200,
    "beyond": lambda v: _with(v, 1e308),
    "tiny": lambda v: v * 1e-320,
    "a column": lambda v: v[:, None],
    "a table": lambda v: np.stack([v, v]),
    "too many dimensions": lambda v: v[None, :, None, None],
    "a number": lambda v: v[0],
    "backwards": lambda v: v[::-1],
    "big-endian": lambda v: v.astype(">f8"),
    "read-only": _read_only,
}

GOOD = {"as they are", "a list", "backwards", "read-only", "single precision", "equal rows"}


def _gaussian(x: Any, y: Any) -> None:
    pm.Normal("y", pm.Normal("a") * pm.Data("x", x), 1.0, observed=y)


def _counts(x: Any, y: Any) -> None:
    pm.Poisson("y", pm.math.exp(pm.Normal("a") * x), observed=y)


def _choices(x: Any, y: Any) -> None:
    pm.Bernoulli("y", logit_p=pm.Normal("a") * pm.Data("x", x), observed=y)


def _groups(x: Any, y: Any) -> None:
    group = pt.as_tensor_variable(x)
    pm.Normal("y", pm.Normal("a", shape=3)[group], 1.0, observed=y)


@cache
def with_data(build: Callable[[Any, Any], None], of_x: str, of_y: str) -> pm.Model | None:
    """Build a model of such data; None where PyMC itself refuses them."""
    try:
        with warnings.catch_warnings(), pm.Model() as model:
            warnings.simplefilter("ignore")  # PyMC's own, of what it casts
            build(DATA[of_x](X), DATA[of_y](Y))
            model.logp()
    except Exception:  # noqa: BLE001
        return None
    return model


@st.composite
def data(draw: st.DrawFn) -> Call:
    kinds = st.sampled_from(list(DATA))
    build = draw(st.sampled_from([_gaussian, _gaussian, _counts, _choices, _groups]))
    of_x, of_y = draw(
        st.one_of(
            kinds.map(lambda kind: (kind, kind)),
            st.tuples(st.just("as they are"), kinds),
            st.tuples(kinds, st.just("as they are")),
            st.tuples(kinds, kinds),
        )
    )
    use = draw(st.sampled_from([build_coreset, build_coreset, build_pass_glm]))
    model = with_data(build, of_x, of_y)
    assume(model is not None)
    extra = {"method": "uniform"} if use is build_coreset else {}
    good = build is _gaussian and {of_x, of_y} <= GOOD
    return Call(
        run=partial(use, model, progressbar=False, random_seed=1, **extra),
        given={"use": use.__name__, "build": build.__name__, "x": of_x, "y": of_y},
        refused=False if good else None,
        model=model,
    )
