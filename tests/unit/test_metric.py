"""NUTS in the coordinates of the posterior's covariance: a linear regression, exactly."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc import initial_point
from pymc.initial_point import make_initial_point_fns_per_chain

from pymc_coresets import OutOfTimeError, build_coreset, deadline
from pymc_coresets.compat.pymc_api import starting_at
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.normal import Mixture, heavy_tailed
from pymc_coresets.sampling.steps.nuts import sample_by_pymc
from pymc_coresets.sampling.steps.starts import known_metric, normal_of
from tests.refusals import refused, warned

N, P = 5_000, 3
RNG = np.random.default_rng(31)
X = RNG.normal(size=(N, P)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.3, 0.9], [0.0, 0.0, 0.2]])
Y = X @ np.array([1.0, -2.0, 3.0]) + RNG.normal(size=N)
COVARIANCE = np.linalg.inv(np.eye(P) + X.T @ X)
MEAN = COVARIANCE @ X.T @ Y
CHAINS = {"chains": 4, "compile_kwargs": {}}
QUIET = {"progressbar": False, "quiet": True}


@pytest.fixture(scope="module")
def coreset():
    with pm.Model() as model:
        last = pm.Normal("last")  # the order of variables is not that of the columns
        first = pm.Normal("first", shape=2)
        mu = (X[:, :2] * first).sum(axis=1) + X[:, 2] * last
        pm.Normal("y", mu, 1.0, observed=Y)
    return build_coreset(model, random_seed=1, progressbar=False)


@pytest.fixture
def started(coreset, sampled):
    """Options that `pm.sample` is passed."""
    passed = sampled(xr.DataTree())

    def start(**options):
        coreset.sample(**{"nuts_sampler": "pymc"} | options)
        return passed[-1]

    return start


def test_the_metric_is_the_covariance_of_the_posterior(started):
    potential = started(random_seed=1)["step"].potential
    order = [2, 0, 1]
    found = np.stack([potential.velocity(e) for e in np.eye(P)])
    np.testing.assert_allclose(found, COVARIANCE[np.ix_(order, order)], rtol=0.01, atol=1e-8)


def test_chains_begin_where_the_posterior_is_and_apart(started):
    starts = started(random_seed=1)["initvals"]
    assert len(starts) == 4
    values = np.array([[*start["first"], start["last"]] for start in starts])
    assert len(np.unique(values[:, 0])) == 4
    z = (values - MEAN) / np.sqrt(np.diag(COVARIANCE))
    assert np.abs(z).max() < 5


@pytest.mark.skipif(not hasattr(pm.Model, "_make_initial_point"), reason="PyMC before 6.4")
def test_chains_begin_at_known_points_without_a_function_for_each(fails):
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.HalfNormal("sd"), shape=2)
    around = heavy_tailed(np.zeros(3), np.eye(3))
    draws = Draws({"sd": np.linspace(0.5, 2.0, 50), "x": np.linspace(0.0, 1.0, 100).reshape(50, 2)})
    known = Proposal(draws=draws, log_ratios=np.zeros(50), around=around)
    options = {"chains": 2, "compile_kwargs": {}, "random_seed": 1}
    starts = known_metric(model, known, Unconstrained(model), options)["initvals"]
    every = {"model": model, "overrides": starts, "jitter_rvs": set(), "chains": 2}
    expected = [start(1) for start in make_initial_point_fns_per_chain(**every)]
    fails(initial_point, "compile")
    with starting_at(model):
        found = [start(1) for start in make_initial_point_fns_per_chain(**every)]
    for own, other in zip(found, expected, strict=True):
        assert own.keys() == other.keys()
        for name, value in own.items():
            np.testing.assert_allclose(value, other[name], rtol=1e-12)
    with pytest.raises(AssertionError):  # without, PyMC makes functions again
        make_initial_point_fns_per_chain(**every)


def test_draws_are_those_of_the_posterior(coreset):
    idata = coreset.sample(draws=500, random_seed=1, nuts_sampler="pymc", **QUIET)
    draws = np.c_[
        idata["posterior"]["first"].values.reshape(-1, 2), idata["posterior"]["last"].values.ravel()
    ]
    assert len(draws) == 2_000
    whitened = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (draws - MEAN).T)
    # Six standard errors of a thousand independent draws, and what the divergence allows.
    assert np.abs(whitened.mean(axis=1)).max() < 6 / np.sqrt(1_000) + np.sqrt(2 * coreset.objective)
    assert np.abs(np.cov(whitened) - np.eye(P)).max() < 6 * np.sqrt(2 / 1_000)
    assert idata["sample_stats"]["n_steps"].mean() < 8  # whatever the correlations


def test_same_seed_same_draws(coreset):
    one, other = (
        coreset.sample(draws=20, tune=20, chains=2, random_seed=7, **QUIET) for _ in range(2)
    )
    assert one["posterior"].equals(other["posterior"])


@pytest.mark.parametrize(
    "options", [{"init": "adapt_diag"}, {"initvals": {"last": 0.0}}, {"nuts": {"k": 0.7}}]
)
def test_who_says_how_nuts_begins_is_obeyed(started, options):
    passed = started(**options)
    assert passed | options == passed
    assert "step" not in passed or "step" in options


def test_options_of_nuts_reach_it(started):
    passed = started(target_accept=0.77, max_treedepth=5, Emax=500, tune=50, draws=10)
    assert passed["step"].target_accept == 0.77
    assert (passed["step"].max_treedepth, passed["step"].Emax) == (5, 500)
    assert passed.keys().isdisjoint({"target_accept", "max_treedepth", "Emax"})
    assert (passed["tune"], passed["draws"]) == (50, 10)
    assert started()["tune"] == 300  # of the step size alone


def test_more_chains_than_draws(coreset):
    draws = coreset.proposal.draws.take(slice(0, 40))
    few = replace(coreset.proposal, draws=draws, log_ratios=coreset.proposal.log_ratios[:40])
    found = known_metric(coreset.model, few, coreset.approximation.space, CHAINS | {"chains": 50})
    assert len(found["initvals"]) == 50


@pytest.mark.parametrize("vary", [True, False])
def test_draws_of_an_unknown_distribution_give_starts_and_their_covariance(coreset, vary):
    known, space = replace(coreset.proposal, around=None), coreset.approximation.space
    if not vary:  # in one direction, in which they have no width
        values = known.draws.values | {"last": np.ones(known.draws.n_draws)}
        known = replace(known, draws=Draws(values))
    found = known_metric(coreset.model, known, space, CHAINS)
    assert len(found["initvals"]) == 4
    if vary:
        covariance, one = np.cov(space.free(known.draws).T), np.ones(space.n_dims)
        np.testing.assert_allclose(found["step"].potential.velocity(one), covariance @ one)
    else:
        assert found.keys() - CHAINS.keys() == {"init", "initvals"}
        assert found["init"] == "adapt_diag"  # without PyMC's jitter


@pytest.mark.parametrize("without", ["proposal", "light tails", "PyMC's NUTS"])
def test_a_posterior_of_which_nothing_is_known_is_begun_as_pymc_does(
    coreset, started, monkeypatch, without
):
    options = {"nuts_sampler": "nutpie"} if without == "PyMC's NUTS" else {}
    heavy = np.random.default_rng(1).standard_cauchy(len(coreset.proposal.log_ratios))
    unknown = {
        "proposal": None,
        "light tails": replace(coreset.proposal, log_ratios=heavy),
        "PyMC's NUTS": coreset.proposal,
    }
    monkeypatch.setitem(coreset.__dict__, "proposal", unknown[without])
    assert started(**options).keys().isdisjoint({"step", "initvals", "tune"})


# -- what watches pm.sample ------------------------------------------------------------------------


@pytest.mark.parametrize(("n_steps", "enough"), [(30, False), (250, True)])
def test_sampling_ends_at_a_deadline_with_the_draws_that_are_enough(n_steps, enough, clock):
    seen = []

    def own(*, trace, draw):
        seen.append(draw)
        clock.now += len(seen) == n_steps

    options = {"draws": 500, "tune": 100, "chains": 2, "cores": 1, "nuts_sampler": "pymc"}
    options |= {"random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
    with pm.Model() as model, deadline.until(0.5):
        pm.Normal("mu")
        if enough:
            with warned("1 chains"):
                found = sample_by_pymc(model, callback=own, **options)
            assert 140 < found["posterior"].sizes["draw"] < 160
        else:
            with refused(OutOfTimeError, "pm.sample", "30 of 1,200 steps"):
                sample_by_pymc(model, callback=own, **options)


def test_draws_that_take_long_are_announced(clock):
    lines = []

    def slow(**_):
        clock.now += 0.5

    options = {"draws": 50, "tune": 50, "chains": 1, "cores": 1, "nuts_sampler": "pymc"}
    options |= {"random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
    with pm.Model() as model, deadline.forecasts_to(lines.append):
        pm.Normal("mu")
        sample_by_pymc(model, callback=slow, **options)
    assert lines == ["Sampling the coreset by pm.sample: about 50 seconds."]


@pytest.mark.parametrize("largest", [0, 1, 2])
def test_of_several_modes_the_largest_is_the_middle(largest):
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    parts = [heavy_tailed(np.full(2, middle), np.eye(2)) for middle in (-5.0, 0.0, 5.0)]
    mixture = Mixture(parts, np.where(np.arange(3) == largest, 0.6, 0.2))
    draws = Draws({"x": np.zeros((10, 2))})
    known = Proposal(draws=draws, log_ratios=np.zeros(10), around=mixture)
    [found] = normal_of(known, Unconstrained(model))
    assert found is parts[largest]
