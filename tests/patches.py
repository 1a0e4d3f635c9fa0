"""The package with smaller limits, with calls that are seen, or with parts that fail."""

from collections.abc import Callable
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

#: Sizes from which the package works by blocks, samples, threads or compiled loops, and where they
#: are.  A few rows and draws reach what is meant for millions once these are small.
LIMITS = {
    "entries_at_once": ["numerics.ENTRIES_AT_ONCE"],
    "task_rows": ["rows.sources.row_source.TASK_ROWS"],
    "n_cores": ["rows.memory.n_cores"],
    "n_cores_of_loops": ["predictive.forward.n_cores"],
    "free_memory": ["rowlogp.filled_model.free_memory"],
    "silence": ["rows.executors._SILENCE"],
    "look_seconds": ["rows.executors.LOOK_SECONDS"],
    "first_sample": ["rows.keyed.FIRST_SAMPLE"],
    "many_rows": ["rows.keyed.MANY_ROWS"],
    "rows_to_begin_with": ["rows.keyed.rows_to_begin_with"],
    "noticed_slopes": ["sampling.curvature._NOTICED"],
    "rows_for_curvature": ["rows.keyed.ROWS_FOR_CURVATURE"],
    "few_to_search": ["sampling.modes.FEW_TO_SEARCH", "sampling.sample_search.FEW_TO_SEARCH"],
    "density_block_bytes": ["sampling.density._BLOCK_BYTES"],
    "summary_rows": ["after.summary._BLOCK_ROWS"],
    "known_rows": ["rowlogp.known_rows._BLOCK"],
    "entries_of_units": ["rowlogp.evaluation._OF_UNITS"],
    "entries_of_places": ["rowlogp.evaluation._OF_PLACES"],
    "levels_at_once": ["sampling.units.recovery._LEVELS"],
    "most_recovered": ["sampling.units.recovery._MOST"],
    "most_recorded": ["sampling.sample_and_check.MOST_RECORDED"],
    "common_values": ["reading.units.integral.UnitDensity.has_common_values"],
    "degrees": ["sampling.units.staying_nodes._DEGREES"],
    "nearby": ["sampling.steps.starts._NEARBY"],
    "quick_proposals": ["sampling.steps.metropolis._QUICK"],
    "proposed_numbers": ["sampling.steps.metropolis._NUMBERS"],
    "most_by_laplace": [
        "glm.control_variates.posteriors.MOST_BY_LAPLACE",
        "sampling.sampler.MOST_BY_LAPLACE",
    ],
    "most_dense": ["glm.control_variates.method.MOST_DENSE"],
    "worthwhile": ["glm.control_variates.method._WORTHWHILE"],
    "dense_from": ["glm.control_variates.averaged._DENSE_FROM"],
    "calibrations": ["glm.control_variates.averaged._CALIBRATIONS"],
    "candidates_of_levels": ["glm.control_variates.by_levels._MOST_CANDIDATES"],
    "dense_up_to": ["glm.predictor.predictors._DENSE_UP_TO"],
    "gram_entries": ["glm.predictor.predictors._GRAM_ENTRIES"],
    "seen_rows": ["glm.predictor.seen_rows._BLOCK_ROWS"],
    "rounds_of_radius": ["papers.polynomial.parts_of_data._ROUNDS"],
    "correctable": ["build._CORRECTABLE"],
    "cheap_rows": ["predictive.approximate_posterior._CHEAP"],
    "predicted_rows": ["predictive.forward.BLOCK_ROWS"],
    "predicted_entries": ["predictive.forward._ENTRIES"],
    "predicted_bytes": ["predictive.forward._MOST_BYTES"],
    "worth_compiling": ["predictive.forward._WORTH_COMPILING"],
    "worth_a_thread": ["predictive.forward._WORTH_A_THREAD"],
    "large_constant": ["predictive.forward._LARGE_CONSTANT"],
    "many_lookups": ["loops.batches._MANY"],
    "few_places": ["loops.direct_calls._FEW"],
    "compilation_rates": ["loops.fused_loops._rates"],
}


#: Parts whose calls are seen, that fail, or for which there is something else.
PARTS = {
    "compiled loop": "loops.fused_loops.compiled_loop",
    "comparison of rows": "rowlogp.of_model.verify_rows",
    "comparison of forms": "build.verify_form",
    "sums over all rows": "rowlogp.evaluation.LogLikelihood.sums",
    "sums of all rows": "rowlogp.evaluation.LogLikelihood.of_all",
    "slopes of all rows": "sampling.sampler.slopes_of_all",
    "log-densities at draws": "predictive.approximate_posterior.ApproximatePosterior.log_densities",
    "lines beyond draws": "sampling.probing._columns",
    "second opinion": "sampling.sample_and_check.opinion_at",
    "chains of NUTS": "sampling.steps.nuts.WarmNuts.draw",
    "curvature by gradients": "glm.control_variates.by_gradients.ByGradients._curvature",
    "draws around the mode": "one_call._around_mode",
    "verdict on draws": "one_call._judged",
    "construction": "build.Construction.built",
    "levels recovered": "sampling.units.recovery.recover",
}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set limits of these names; a limit that the package computes is given as a function."""

    def set_limits(**values: object) -> None:
        for name, value in values.items():
            for place in LIMITS[name]:
                monkeypatch.setattr(f"pymc_coresets.{place}", value)

    return set_limits


def _owner_and_name(owner: object, name: str) -> tuple[object, str]:
    """Return what has a part of the package that is known by a name in `PARTS`, and its name."""
    if not isinstance(owner, str):
        return owner, name
    place, _, name = PARTS[owner].rpartition(".")
    return resolve_name(f"pymc_coresets.{place}"), name


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, object], None]:
    """Let a part of the package be something else."""
    return lambda part, other: monkeypatch.setattr(f"pymc_coresets.{PARTS[part]}", other)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[SimpleNamespace]]:
    """See the calls of a part, function or method, which goes on as before."""

    def calls_of(owner: object, name: str = "") -> list[SimpleNamespace]:
        seen: list[SimpleNamespace] = []
        owner, name = _owner_and_name(owner, name)
        usual = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append(SimpleNamespace(args=args, kwargs=kwargs))
            return usual(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)
        return seen

    return calls_of


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a part, function or method fail, by default as one that must not be called."""

    def let_fail(owner: object, name: str = "", error: BaseException | None = None) -> None:
        owner, name = _owner_and_name(owner, name)

        def fail(*_: object, **__: object) -> None:
            raise error or AssertionError(f"{name} is called")

        monkeypatch.setattr(owner, name, fail)

    return let_fail


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Limits of time by a clock that tests advance."""
    clock = SimpleNamespace(now=0.0)
    clock.perf_counter = lambda: clock.now
    for module in ("deadline", "methods.loop", "methods.riemannian"):
        monkeypatch.setattr(f"pymc_coresets.{module}.time", clock)
    return clock


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Let `pm.sample` return this, and see the options that it is passed."""

    def sampled_as(result: object) -> list[dict[str, Any]]:
        passed: list[dict[str, Any]] = []
        monkeypatch.setattr("pymc.sample", lambda **options: (passed.append(options), result)[1])
        return passed

    return sampled_as


@pytest.fixture
def not_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no draws of a known posterior serve as they are, so that chains are run."""
    monkeypatch.setattr("pymc_coresets.sampling.steps.starts._independent", lambda *_: ())


@pytest.fixture
def no_lines(instead: Callable[[str, object], None]) -> None:
    """Let no lines be laid beyond draws, as where these come from elsewhere."""

    instead("lines beyond draws", lambda *_: np.zeros(0, dtype=np.int64))


@pytest.fixture
def nuts_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NumPy evaluate densities for NUTS, whose compilation takes longer than short chains."""
    from tests.modes import PLAIN_MODE  # noqa: PLC0415 - after PyTensor is set up for tests

    for module in ("steps.one_point", "sample_and_check"):
        monkeypatch.setattr(f"pymc_coresets.sampling.{module}.density_mode", lambda: PLAIN_MODE)
