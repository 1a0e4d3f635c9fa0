"""What comes of a model: it agrees with PyMC, it is refused, or something is wrong."""

import re
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from pytensor.compile.mode import Mode

from pymc_coresets import Coreset, CoresetError, CoresetWarning, build_coreset
from pymc_coresets.compat.pymc_api import ParameterValueError
from pymc_coresets.reading.likelihood.terms import imputed_names
from pymc_coresets.reading.user_model import without_variables
from tests.models.reference import Point, density
from tests.modes import PLAIN_MODE, WRITTEN_MODE

__all__ = ["AGREES", "Verdict", "execute", "judge"]

AGREES, REFUSED, WRONG, RAW, NO_MODEL = "agrees", "refused", "WRONG", "RAW", "no model"
N_POINTS, SIZE = 20, 4
GRADIENT_EVERY = 4  # models: compiling gradients takes long


@dataclass(frozen=True)
class Verdict:
    """What came of a model, in a word, and why."""

    kind: str
    reason: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in (WRONG, RAW)


class DisagreementError(Exception):
    """PyMC and the package do not say the same."""


def judge(source: str, seed: int) -> Verdict:
    """Build a coreset of a model, and compare it with PyMC's own densities.

    The difference of PyMC's log-densities of the full model and of the coreset's model has to be
    the package's log ratio, up to a constant; and with all rows there must be no difference.
    Missing outcomes are no part of either: they are drawn given the posterior of all others.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            model, options = execute(source)
            points = finite_points(model, np.random.default_rng(seed))
    except Exception as error:  # noqa: BLE001 - the grammar's own mistake
        return Verdict(NO_MODEL, one_line(error))
    if not points:
        return Verdict(NO_MODEL, "the log-density is finite nowhere")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            options |= {"random_seed": seed, "progressbar": False}
            coreset, missing = built(model, options), imputed_names(model)
            if missing:
                model = without_variables(model, missing)
                points = finite_points(model, np.random.default_rng(seed))
            compare(model, coreset, points)
    except CoresetError as error:
        if "Please report it" in error.message:
            return Verdict(WRONG, f"not understood: {error.message}")
        return Verdict(REFUSED, f"{type(error).__name__}: {first_sentence(error.message)}")
    except DisagreementError as error:
        return Verdict(WRONG, str(error))
    except Exception as error:  # noqa: BLE001
        return Verdict(RAW, f"{one_line(error)} [{where(error)}]")
    foreign = [w for w in caught if not issubclass(w.category, CoresetWarning)]
    if foreign:
        return Verdict(RAW, f"a warning: {foreign[0].message} [{foreign[0].filename}]")
    return Verdict(AGREES)


def execute(source: str) -> tuple[pm.Model, dict[str, Any]]:
    """Return the model of a source, and the options of `build_coreset`."""
    names: dict[str, Any] = {"np": np, "pd": pd, "pm": pm, "pt": pt}
    exec(source, names)
    return names["model"], names["options"]


# -- points ----------------------------------------------------------------------------------------


def finite_points(model: pm.Model, rng: np.random.Generator) -> list[tuple[Point, float]]:
    """Find points around the initial one, and PyMC's log-density there, where it is finite."""
    logp, start = logp_of(model), model.initial_point(random_seed=1)
    points = [start, *(jittered(start, rng) for _ in range(N_POINTS - 1))]
    found = [(point, logp(point)) for point in points]
    return [(point, value) for point, value in found if np.isfinite(value)]


def jittered(start: Point, rng: np.random.Generator) -> Point:
    """Move a point by up to 1, or by less; whole numbers stay."""
    size = rng.choice([0.2, 1.0])
    return {
        name: value + rng.uniform(-size, size, size=np.shape(value))
        if np.asarray(value).dtype.kind == "f"
        else value
        for name, value in start.items()
    }


def logp_of(model: pm.Model, mode: Mode = WRITTEN_MODE) -> Any:
    function = pytensor.function(model.value_vars, model.logp(), mode=mode)

    def logp(point: Point) -> float:
        try:
            with np.errstate(all="ignore"):
                return float(function(**{v.name: point[v.name] for v in model.value_vars}))
        except (ParameterValueError, np.linalg.LinAlgError):
            return -np.inf

    return logp


def draws_at(model: pm.Model, points: list[Point]) -> xr.DataTree:
    """Return the free variables at points, on their own scale, by PyMC's own transforms."""
    graphs = model.replace_rvs_by_values(model.free_RVs)
    function = pytensor.function(
        model.value_vars, graphs, mode=WRITTEN_MODE, on_unused_input="ignore"
    )
    columns = zip(*(function(**point) for point in points), strict=True)
    posterior = {
        rv.name: (("chain", "draw", *(f"{rv.name}_{i}" for i in range(rv.ndim))), np.stack(c)[None])
        for rv, c in zip(model.free_RVs, columns, strict=True)
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)})


# -- comparison ------------------------------------------------------------------------------------


def built(model: pm.Model, options: Mapping[str, Any]) -> Coreset:
    """Build a coreset of a few rows, by the cheapest method unless the options name another."""
    defaults = {"size": SIZE, "method": "uniform", "collapse": False}
    return build_coreset(model, **defaults | dict(options))


def compare(model: pm.Model, coreset: Coreset, points: list[tuple[Point, float]]) -> None:
    """Raise a `DisagreementError` where PyMC's densities and the package's are not the same."""
    names = {v.name for v in model.value_vars}
    if {v.name for v in coreset.model.value_vars} != names:
        raise DisagreementError(f"other value variables: {coreset.model.value_vars}")
    at = [point for point, _ in points]
    found = coreset.log_ratios(draws_at(model, at)).ravel()
    try:
        compare_in(WRITTEN_MODE, model, coreset, at, found)
    except DisagreementError:  # or is it cancellation, which PyTensor's rewrites avoid?
        compare_in(PLAIN_MODE, model, coreset, at, found)
    if not coreset.random_seed % GRADIENT_EVERY:
        same_gradient(model, all_rows(coreset), at[-1])


def compare_in(
    mode: Mode, model: pm.Model, coreset: Coreset, points: list[Point], ratios: np.ndarray
) -> None:
    full, own, same = (
        np.array([logp(point) for point in points])
        for logp in (logp_of(m, mode) for m in (model, coreset.model, all_rows(coreset)))
    )
    expected = full - own
    check("log ratios", ratios - ratios.mean(), expected - expected.mean(), [full, own])
    check("log-density of all rows", same, full, [full])


def all_rows(coreset: Coreset) -> pm.Model:
    """Return the model of the coreset that has all rows, with unit weights."""
    obs = coreset.loglikelihood.observations
    return replace(coreset, indices=obs.positions, weights=np.ones(obs.n_obs)).model


def same_gradient(model: pm.Model, coreset: pm.Model, point: Point) -> None:
    _, gradient = density(model)(point)
    _, found = density(coreset)(point)
    size = [np.concatenate([np.ravel(value) for value in gradient.values()])]
    for name, value in gradient.items():
        check(f"gradient by {name}", found[name], value, size)


def check(what: str, found: np.ndarray, expected: np.ndarray, terms: list[Any]) -> None:
    """Compare up to rounding: `terms` are numbers of the size of what was added up."""
    size = 1.0 + max(float(np.max(np.nan_to_num(np.abs(term)), initial=0.0)) for term in terms)
    # PyMC's own gradient has no number where a tail underflows: nor need the coreset's have one.
    known = ~np.isnan(expected)
    found, expected = np.asarray(found)[known], np.asarray(expected)[known]
    if not np.allclose(found, expected, rtol=1e-7, atol=1e-8 * size):
        worst = int(np.argmax(np.nan_to_num(np.abs(found - expected), nan=np.inf)))
        pair = found[worst], expected[worst]
        raise DisagreementError(f"{what}: {pair[0]} instead of {pair[1]}")


# -- words -----------------------------------------------------------------------------------------


def first_sentence(message: str) -> str:
    """Return the first sentence of a message, without names and numbers."""
    sentence = re.split(r"[.:] ", " ".join(message.split()))[0]
    sentence = re.sub(r"\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|'[^']*'", "…", sentence)
    return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", sentence)


def one_line(error: Exception) -> str:
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    return text[:200]


def where(error: Exception) -> str:
    """Return the last line of the package that the error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/pymc_coresets/" in f.filename] or frames
    return f"{ours[-1].filename.rpartition('/pymc_coresets/')[2]}:{ours[-1].lineno}"
