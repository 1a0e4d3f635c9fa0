"""Methods that are not in the package: objects with the members of a `Method`."""

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import (
    Coreset,
    CoresetWarning,
    InvalidOptionError,
    Job,
    Laplace,
    Solution,
    Status,
    Uniform,
    build_coreset,
)
from pymc_coresets.rows.values import Rows
from tests.refusals import refused

N, SIZE = 2_000, 200
RNG = np.random.default_rng(1)
X = RNG.standard_t(3, size=N)  # slopes are known from few rows
Y = 2 * X + RNG.normal(size=N)
PAGE = Path(__file__).parents[2] / "docs/adding-a-method.md"
QUIET = {"random_seed": 1, "progressbar": False}


@dataclass(frozen=True)
class ByLength:
    """Draw rows in proportion to the standard deviations of their log-likelihoods."""

    n_draws: int = 200

    name: ClassVar[str] = "by_length"
    accepts: ClassVar[frozenset[str]] = frozenset({"size", "weighting"})
    draws_from: ClassVar[str] = ""

    def default_size(self, n_dims: int, n_rows: int) -> int:
        return min(n_rows, 100 * n_dims)

    def run(self, job: Job[Any]) -> Solution:
        rows = job.posterior.subsample(job.posterior.n_rows, key=0, distinct=True).rows
        draws = job.weighting(self.n_draws, rng=job.rng)
        lengths = rows.case_weights * job.posterior.loglik(draws, rows).std(axis=1)
        counts = job.rng.multinomial(job.size, lengths / lengths.sum())
        chosen = np.flatnonzero(counts)
        weights = rows.case_weights * counts * lengths.sum() / (job.size * lengths)
        return Solution.sampled(rows.take(chosen), weights[chosen])


@pytest.fixture(scope="module")
def model() -> pm.Model:
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope", 0, 10) * X, 1.0, observed=Y)
    return model


def slope(weights: np.ndarray, indices: np.ndarray | slice = slice(None)) -> float:
    x, y = X[indices], Y[indices]
    return float((weights * x * y).sum() / (0.01 + (weights * x * x).sum()))


def test_a_method_of_twenty_lines_builds_a_coreset(model, tmp_path):
    coreset = build_coreset(model, method=ByLength(), weighting=Laplace(), **QUIET)
    assert coreset.method == "ByLength(n_draws=200)"
    assert coreset.weighting == "Laplace()"
    assert 50 < coreset.size <= 100
    # Lengths follow x ** 2 and |x| times the noise: the estimate has less than half of the
    # standard error of a uniform sample of this size, 1 / sqrt(100) over the sd of x.
    error = abs(slope(coreset.weights, coreset.indices) - slope(np.ones(N)))
    assert error < 4 * 0.5 / np.sqrt(100) / X.std()
    idata = coreset.sample(**QUIET)
    assert coreset.check(idata).converged
    found = idata["posterior"]["slope"].mean().item()
    assert found == pytest.approx(slope(coreset.weights, coreset.indices), abs=0.01)
    coreset.to_netcdf(tmp_path / "coreset.nc")
    assert Coreset.from_netcdf(tmp_path / "coreset.nc", model).method == coreset.method


def test_its_time_is_reported_though_it_names_no_parts(model):
    def slow(job: Job[Any]) -> Solution:
        time.sleep(0.1)
        return Uniform().run(job)

    report = build_coreset(model, method=plain(run=slow), **QUIET).report()
    assert 0.1 <= report.seconds["choosing rows"] < 60


def test_weights_of_samples_contain_the_case_weights():
    counts = np.array([600, 300, 100])
    with pm.Model() as repeated:
        pm.Poisson("y", pm.Gamma("rate", 1, 1), observed=np.repeat([0, 1, 2], counts))

    def run(job: Job[Any]) -> Solution:
        every = job.posterior.subsample(3, key=0, distinct=True)
        np.testing.assert_array_equal(every.rows.case_weights, counts)
        np.testing.assert_allclose(every.weights, counts)
        some = job.posterior.subsample(job.size, key=0)
        draws = job.weighting(50, rng=job.rng)
        loglik = job.posterior.loglik(draws, every.rows)  # of single rows
        centred = loglik - loglik.mean(axis=1, keepdims=True)
        total = job.posterior.sums(draws, n_candidates=3).total
        np.testing.assert_allclose(total, counts @ centred)
        return Solution.sampled(some.rows, some.weights)

    method = plain(run=run, accepts={"size", "weighting"}, with_replacement=True)
    coreset = build_coreset(repeated, method=method, size=100, weighting=Laplace(), **QUIET)
    assert coreset.weights.sum() == pytest.approx(1_000)
    assert coreset.status == Status.SAMPLED.value


def test_the_report_says_at_whose_draws_a_method_measured_its_divergence(model):
    def run(job: Job[Any]) -> Solution:
        some = job.posterior.subsample(job.size, key=job.key)
        return Solution.chosen(some.rows, some.weights, Status.SIZE_REACHED, objective=0.125)

    stated = build_coreset(model, method=plain(run=run), size=SIZE, **QUIET)
    measured = build_coreset(model, **QUIET)
    assert stated.objective == 0.125
    for coreset, is_told in [(stated, True), (measured, False)]:
        told = coreset.report().facts["divergence"]
        assert told.startswith(f"about {coreset.objective:.3g} nats")
        assert ("check()" in told) == is_told


def test_its_options_are_those_that_it_accepts(model):
    options = {"method": ByLength(), "weighting": Laplace(), "size": SIZE} | QUIET
    assert 100 < build_coreset(model, **options).size <= SIZE
    with refused(InvalidOptionError, "time_budget=9", "method='by_length'", "accepts"):
        build_coreset(model, time_budget=9, **options)


def method_of_the_page(name: str) -> type[Any]:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    [block] = [block for block in blocks if f"class {name}" in block and "import" in block]
    names: dict[str, Any] = {"__name__": PAGE.stem}
    exec(compile(block, PAGE.name, "exec"), names)
    return names[name]


def test_the_simplest_method_of_the_page_draws_rows_as_often_as_their_weights_say(model):
    coreset = build_coreset(model, method=method_of_the_page("Mine")(), size=SIZE, **QUIET)
    times_drawn = coreset.weights / (N / SIZE)
    assert times_drawn == pytest.approx(np.rint(times_drawn))
    assert times_drawn.sum() == pytest.approx(SIZE)


def test_the_greedy_method_of_the_page_builds_a_coreset(model):
    options = {
        "method": method_of_the_page("KCenter")(),
        "size": 20,
        "weighting": Laplace(),
    } | QUIET
    coreset = build_coreset(model, tolerance=1e-4, **options)
    assert coreset.method == "KCenter(tolerance=None)"  # as it was passed
    assert coreset.objective <= 1e-4
    assert slope(coreset.weights, coreset.indices) == pytest.approx(slope(np.ones(N)), abs=1e-3)


def plain(**changes: Any) -> SimpleNamespace:
    """Return an object that is no dataclass, with the members of `Uniform`."""
    names = ("name", "accepts", "draws_from", "default_size", "run")
    return SimpleNamespace(**{name: getattr(Uniform(), name) for name in names} | changes)


def test_the_object_need_not_be_a_dataclass(model):
    coreset = build_coreset(model, method=plain(name="mine"), **QUIET)
    same = build_coreset(model, method="uniform", **QUIET)
    assert coreset.method == "mine"
    np.testing.assert_array_equal(coreset.indices, same.indices)
    np.testing.assert_array_equal(coreset.weights, same.weights)


@pytest.mark.parametrize(
    ("method", "facts"),
    [
        (plain(run=None), ("lacks run", "'Adding a method'")),
        (
            plain(draws_from=None, default_size=50),
            ("lacks draws_from, default_size", "'Adding a method'"),
        ),
        (ByLength, ("method=", "'riemannian_pursuit'", "ByLength()")),
        (object(), ("method=", "'riemannian_pursuit'")),
    ],
)
def test_an_object_without_a_member_is_refused(model, method, facts):
    with refused(InvalidOptionError, facts):
        build_coreset(model, method=method, **QUIET)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [({"weights": [1.0] * 3}, "list"), ({"status": "done"}, "'done'")],
    ids=["weights", "status"],
)
def test_what_a_method_returns_is_an_array_and_a_status(model, changes, fact):
    def run(job: Job[Any]) -> Solution:
        found = Uniform().run(job)
        n = len(changes.get("weights", found.rows))
        rows, weights = found.rows.take(slice(0, n)), found.weights[:n]
        return replace(found, **({"rows": rows, "weights": weights} | changes))

    with refused(InvalidOptionError, "method='uniform'", fact):
        build_coreset(model, method=plain(run=run), size=3, **QUIET)


def test_a_tolerance_needs_a_field(model):
    method = plain(accepts={"tolerance"})
    with refused(InvalidOptionError, "method='uniform'", "tolerance", "dataclass"):
        build_coreset(model, method=method, tolerance=0.1, **QUIET)


ROWS = Rows(np.arange(3), np.ones(3), (X[:3], Y[:3]))
ONES = Solution.sampled(ROWS, np.ones(3))


@pytest.mark.parametrize(
    ("solution", "facts"),
    [
        (None, ("NoneType", "Solution")),
        (replace(ONES, weights=np.ones(2)), ("(2,)", "3 rows")),
        (replace(ONES, weights=np.array([1.0, 0.0, 1.0])), "positive"),
        (replace(ONES, weights=np.array([1.0, np.nan, 1.0])), "positive"),
        (ONES, ("3 rows", "size=2")),
        (Solution.sampled(ROWS.take(np.array([1, 0])), np.ones(2)), ("increase", "Rows.take")),
        (Solution.sampled(ROWS.take(np.array([1, 1])), np.ones(2)), ("increase", "Rows.take")),
    ],
)
def test_what_it_returns_is_checked(model, solution, facts):
    with refused(InvalidOptionError, "method='mine'", facts):
        build_coreset(model, method=plain(name="mine", run=lambda _: solution), size=2, **QUIET)


@pytest.mark.parametrize("status", [Status.INTERRUPTED, Status.SAMPLING_FAILED])
def test_ctrl_c_before_there_is_any_row_is_passed_on(model, status):
    nothing = Solution.chosen(ROWS.take(np.arange(0)), np.ones(0), status)
    interrupted = status is Status.INTERRUPTED
    with pytest.raises(KeyboardInterrupt) if interrupted else pytest.warns(CoresetWarning):
        build_coreset(model, method=plain(run=lambda _: nothing), size=5, **QUIET)
