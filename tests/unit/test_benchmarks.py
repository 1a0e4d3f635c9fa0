"""What the papers' comparison rests on: closed forms, the judge, and the tables of results."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.__main__ import FILE, to_measure
from benchmarks.closed_forms import (
    InMemoryLogLikelihoods,
    LinearRegression,
    Location,
    full_and_prior,
)
from benchmarks.contenders import (
    at_support,
    contenders,
    each_size,
    following,
    points_of,
    some_sizes,
    uniform,
)
from benchmarks.curves import (
    MATCHED,
    SPARSE_VI,
    Record,
    brief,
    curves_of,
    gains_of,
    read,
    verdict,
    write,
)
from benchmarks.nuts_judge import pymc_model, true_divergences
from benchmarks.paper_data import house_prices
from benchmarks.regressions import Family, Laplace, Regression, logistic, poisson
from pymc_coresets import SparseVI
from tests.modes import PLAIN_MODE

pytestmark = pytest.mark.slow  # of a benchmark

N, D = 60, 3


def rng(seed=1):
    return np.random.default_rng(seed)


def features():
    return rng(2).normal(size=(N, D))


PRIORS = {"LinearRegression": (0.5, 4.0), "Location": (0.0, 1.0)}  # mean and variance


def linear():
    basis = features()
    response = basis @ np.array([1.0, -1.0, 2.0]) + rng(3).normal(size=N)
    return LinearRegression(basis, response, prior_mean=0.5, prior_variance=4.0, noise_variance=0.7)


def normal_family():
    """Return a regression whose posterior is Gaussian, as that of `linear` is."""

    def loglik_at(eta, y):
        return -np.square(y - eta.T).T / 2

    def derivatives(eta, y):
        return y - eta, np.full_like(eta, -1.0)

    response = features() @ np.array([1.0, -1.0, 0.5]) + rng(4).normal(size=N)
    family = Family(loglik_at=loglik_at, derivatives=derivatives)
    return Regression(features=features(), response=response, family=family)


@pytest.mark.parametrize(
    "model",
    [linear(), Location(rng(5).normal(size=(N, D)))],
    ids=lambda model: type(model).__name__,
)
class TestClosedForms:
    def test_posterior_is_prior_times_weighted_likelihood(self, model):
        """Log-densities differ by the same constant everywhere."""
        rows = model.source.take(np.arange(0, N, 4))
        weights = rng(6).uniform(size=len(rows))
        at = rng(7).normal(size=(5, D))

        def logp(gaussian):
            away = at - gaussian.mean
            return -np.einsum("sk,kl,sl->s", away, gaussian.precision, away) / 2

        mean, variance = PRIORS[type(model).__name__]
        prior = -np.square(at - mean).sum(axis=1) / (2 * variance)
        expected = prior + weights @ model.loglik(at, rows)
        found = logp(model.gaussian(rows, weights))
        assert np.ptp(found - expected) == pytest.approx(0, abs=1e-9)

    def test_total_is_the_sum_over_all_rows(self, model):
        at = rng(8).normal(size=(5, D))
        assert model.total(at) == pytest.approx(model.loglik_of_all(at).sum(axis=0))

    def test_draws_are_of_the_posterior(self, model):
        """Five standard errors of a mean."""
        rows, weights, n = model.source.take(np.array([1, 5])), np.array([3.0, 2.0]), 20_000
        gaussian = model.gaussian(rows, weights)
        found = model.draw(rows, weights, n, rng=rng(9)).mean(axis=0)
        errors = np.sqrt(np.diag(np.linalg.inv(gaussian.precision)) / n)
        assert (np.abs(found - gaussian.mean) < 5 * errors).all()


@pytest.mark.parametrize(
    "model",
    [
        linear(),
        Location(rng(5).normal(size=(N, D))),
        Laplace(logistic(features(), rng(11).integers(0, 2, size=N))),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_fast_look_agrees_with_one_at_every_row(model):
    everything = model.source.all
    at = model.draw(everything, everything.case_weights, 7, rng=rng(19))
    total = model.sums(at).total
    assert total == pytest.approx(InMemoryLogLikelihoods.sums(model, at).total)
    full = model.sums(at, n_candidates=N)
    assert full.total == pytest.approx(total)
    assert len(full.candidates) == N


@pytest.mark.parametrize("make", [logistic, poisson])
def test_laplace_is_at_the_mode_wherever_the_search_starts(make):
    model = make(features(), rng(10).integers(0, 2, size=N).astype(float))
    weights = 3.0 * (np.arange(N) % 3 == 0)
    gaussian = model.laplace(weights)
    for step in 1e-4 * np.eye(D):
        slopes = (
            model.logp(gaussian.mean + s * step, weights) - model.logp(gaussian.mean, weights)
            for s in (1, -1)
        )
        assert max(slopes) < 0
    elsewhere = model.laplace(weights, start=np.full(D, 2.0))
    assert elsewhere.mean == pytest.approx(gaussian.mean, abs=1e-8)


def test_house_prices_have_their_shape():
    places, log_prices = house_prices(2_000, rng=rng())
    assert places.shape == (2_000, 2)
    assert 11 < log_prices.mean() < 13
    assert 0.4 < log_prices.std() < 0.9


# -- methods ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["short", "paper"])
def test_every_contender_comes_closer_with_its_size(schedule):
    model = Laplace(logistic(features(), rng(11).integers(0, 2, size=N).astype(float)))
    full, prior = full_and_prior(model)
    for label, contender in contenders(schedule, 5, 0.5).items():
        points = points_of(contender, model, (2, 10, 30), rng(12))
        assert all(p.support <= p.size for p in points), label
        assert points[-1].kl < prior.kl(full), label


def test_following_a_run_records_what_the_run_returns():
    model, method = linear(), SparseVI(n_steps=3)
    last, run = (
        list(contender(method)(model, (5, 10), rng(13)))[-1]
        for contender in (following, some_sizes)
    )
    assert last.rows.positions == pytest.approx(run.rows.positions)
    assert last.weights == pytest.approx(run.weights)


def test_pursuit_is_given_as_many_rows_as_sparse_vi_has():
    model = linear()
    sparse = [replace(p, support=7) for p in points_of(each_size(uniform), model, (9,), rng(14))]
    (point,) = at_support(sparse, model, (9,), rng(15))
    assert point.size == 9
    assert point.support <= 7


# -- judge -----------------------------------------------------------------------------------------


def test_true_divergences_of_gaussian_posteriors():
    """Five of the judge's own standard errors, whose size is checked too."""
    model = normal_family()
    weights = np.where(np.arange(N) % 2 == 0, 2.2, 0.0)
    full, ours = model.laplace(np.ones(N)), model.laplace(weights)
    truth = true_divergences(model, weights, rng=rng(16))
    for estimate, exact in (
        (truth.kl, ours.kl(full)),
        (truth.separately, ours.kl(full)),
        (truth.reverse, full.kl(ours)),
    ):
        assert estimate.error < 0.05 * exact
        assert abs(estimate.value - exact) < 5 * estimate.error


@pytest.mark.parametrize(("name", "make"), [("synth_lr", logistic), ("synth_poiss", poisson)])
def test_models_for_pymc_are_the_regressions(name, make):
    regression = make(features(), rng(17).integers(0, 2, size=N).astype(float))
    logp, at = (
        pymc_model(name, regression).compile_logp(mode=PLAIN_MODE),
        rng(18).normal(size=(2, D)),
    )
    theirs = logp({"theta": at[0]}) - logp({"theta": at[1]})
    ours = regression.logp(at[0], np.ones(N)) - regression.logp(at[1], np.ones(N))
    assert theirs == pytest.approx(ours)


# -- results ---------------------------------------------------------------------------------------


def records():
    base = Record(
        experiment="ds1", dimension=3, prior_kl=2.0, schedule="short", method=SPARSE_VI, trial=0,
        size=50, support=40, kl=1.0, seconds=60.0,
    )  # fmt: skip
    rows = [replace(base, trial=t, kl=kl) for t, kl in enumerate((1.0, 2.0, 4.0))]
    rows += [replace(r, size=100, kl=r.kl / 10) for r in rows]
    return rows + [replace(r, method=MATCHED, kl=r.kl / 20, seconds=1.0) for r in rows]


def test_results_survive_the_file(tmp_path):
    assert list(write(tmp_path / "results.csv", records())) == records()
    assert read(tmp_path / "results.csv") == records()


def test_curves_are_quartiles_over_the_trials():
    curve = curves_of(records(), relative=True)[0]
    assert curve.n_trials == 3
    assert curve.kl[:, 0] == pytest.approx(np.array([1.5, 2.0, 3.0]) / 2)
    assert curve.at(100) == pytest.approx((0.1, 60.0))


def test_gains_are_ratios_of_medians():
    (gain,) = gains_of(records(), ["ds1"], MATCHED)
    assert (gain.at_50, gain.at_100, gain.time) == pytest.approx((20.0, 20.0, 60.0))


def test_brief_numbers():
    assert [brief(v) for v in (5.2e-5, 0.31, 14.0, 3e11, 0.0)] == [
        "5e-5",
        "0.3",
        "10",
        "3e11",
        "0e0",
    ]


def test_a_verdict_passes_where_enough_are_met():
    assert verdict("w", [True, False]).startswith("- FAIL")
    assert verdict("w", [True, False], needed=1).startswith("- pass")


# -- the published tables --------------------------------------------------------------------------


def test_every_table_has_a_benchmark_that_saves_it():
    sources = json.loads(FILE.read_text())["sources"]
    for name, source in sources.items():
        module = source["command"].split()[0]
        text = (FILE.parents[2] / f"{module.replace('.', '/')}.py").read_text()
        kind = name.partition("-")[0]
        assert "parser_of(" in text
        assert f'"{name}"' in text or f'"{kind}-' in text, name


def test_what_is_measured_anew():
    sources = {
        "a": {"command": "benchmarks.first", "commit": "old"},
        "b": {"command": "benchmarks.second", "commit": "new"},
        "c": {"command": "benchmarks.first", "commit": "new"},
        "d": {"command": "benchmarks.third --all", "commit": "old"},
    }
    assert to_measure(sources, "new") == ["benchmarks.first", "benchmarks.third --all"]
    assert to_measure(sources, "new", ["second", "--all"]) == [
        "benchmarks.second",
        "benchmarks.third --all",
    ]
