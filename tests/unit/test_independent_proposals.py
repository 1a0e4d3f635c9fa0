"""Chains of NUTS and of independent proposals, from a distribution that is known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from pymc import initial_point
from pymc.initial_point import make_initial_point_fns_per_chain
from scipy.special import digamma, polygamma

from pymc_coresets import OutOfTimeError, build_coreset, deadline
from pymc_coresets.compat.pymc_api import starting_at
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.sampling.normal import Mixture, heavy_tailed
from pymc_coresets.sampling.steps import starts
from pymc_coresets.sampling.steps.metropolis import IndependentProposals, path
from pymc_coresets.sampling.steps.nuts import SharedTrace, sample_by_pymc
from pymc_coresets.sampling.steps.playback import Playback
from pymc_coresets.sampling.steps.starts import around_draws, better_start, known_metric, normal_of
from tests.derived import sampler_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused, warned

# -- Independence Metropolis-Hastings: its chains, when it is used, and what `sample` returns. -----

SHAPE = 6.0
QUIET = {"progressbar": False, "quiet": True, "random_seed": 3}


def proposals_of(model, around):
    """Those of a model's own density, without any rows."""
    space, x = Unconstrained(model), pt.vector("x")
    density = of_points([x], space.at(x, [model.logp()]))
    return IndependentProposals(space, around, lambda points: density(points)[0])


@pytest.fixture(scope="module")
def gammas():
    """Two gamma variables, whose logarithms are skewed, and a normal distribution near these."""
    with pm.Model() as model:
        pm.Gamma("x", SHAPE, 1.0, shape=2)
    return proposals_of(model, heavy_tailed(np.full(2, np.log(SHAPE)), np.sqrt(SHAPE) * np.eye(2)))


@pytest.fixture(scope="module")
def funnel():
    with pm.Model() as model:
        log_sd = pm.Normal("log_sd", 0, 3)
        pm.Normal("x", 0, pm.math.exp(log_sd), shape=9)
    return proposals_of(model, heavy_tailed(np.zeros(10), np.eye(10)))


def test_chains_are_draws_of_the_posterior(gammas):
    [found] = gammas.tried(4_000, 1_000, np.random.default_rng(1))
    assert 1 <= found.n_skipped <= 20
    with found.space.model as model:
        step = Playback(model.value_vars, found.space, found.chain)
        idata = pm.sample(2_000, tune=0, chains=2, cores=1, step=step, **QUIET)
    logs = np.log(idata["posterior"]["x"].to_numpy()).ravel()
    # 8,000 draws that hardly depend on each other: five standard errors of mean and variance.
    sd, n = np.sqrt(polygamma(1, SHAPE)), len(logs)
    assert logs.mean() == pytest.approx(digamma(SHAPE), abs=5 * sd / np.sqrt(n))
    assert logs.var() == pytest.approx(sd**2, rel=5 * np.sqrt(2.5 / n))
    assert 0.3 < idata["sample_stats"]["accepted"].mean() < 1.0


def test_a_trace_of_known_chains_holds_what_pymc_computes(gammas):
    [found], given = gammas.tried(4_000, 1_000, np.random.default_rng(1)), []
    for is_known in (True, False):
        with found.space.model as model:
            step = Playback(model.value_vars, found.space, found.chain)
            trace = SharedTrace.of(model, step=step if is_known else None)
            options = {"tune": 0, "chains": 2, "cores": 1, "step": step, "trace": trace} | QUIET
            given.append(pm.sample(50, **options))
        assert hasattr(trace.fn, "maker") != is_known  # of a compiled function
    ours, expected = (idata["posterior"]["x"] for idata in given)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_a_chain_is_where_the_weights_are():
    """Of three proposals that are equally frequent, by brute force."""
    kinds = np.random.default_rng(3).integers(0, 3, 60_001)
    log_weights = np.log([1.0, 3.0, 0.0 + 1e-300])[kinds]
    numbers = path(log_weights, rng=np.random.default_rng(2))
    visited = np.bincount(kinds[numbers[1:]], minlength=3) / (len(numbers) - 1)
    # At most three proposals in a row are refused on average: as 20,000 independent draws.
    np.testing.assert_allclose(visited, [0.25, 0.75, 0.0], atol=5 * np.sqrt(0.19 / 20_000))
    assert numbers[0] == 0
    assert (np.diff(numbers) >= 0).all()


def test_how_many_proposals_a_draw_needs(gammas, limits):
    log_weights = gammas.weighed(1_000, np.random.default_rng(1))[2]
    weights = np.exp(log_weights - log_weights.max())

    def tried(n, most):
        return [f.n_skipped for f in gammas.tried(n, most, np.random.default_rng(1))]

    unhurried, least = (
        np.ceil(1 / weights.mean()),
        np.ceil(2 * (weights**2).mean() / weights.mean() ** 2),
    )
    assert unhurried > least
    assert tried(1_000, 1_000) == [unhurried]
    assert tried(1_000, 1) == []
    never_drawn = replace(gammas, log_density=None)  # where none would do
    assert not [*never_drawn.tried(1_000, 0, np.random.default_rng(1))]
    limits(quick_proposals=1.0)
    assert tried(1_000, 1_000) == [least]


def test_chains_of_any_length_keep_within_the_memory(gammas, limits):
    limits(proposed_numbers=2 * 5_000)
    [found] = gammas.tried(4_000, 1_000, np.random.default_rng(1), n_chains=2)
    assert len(found.drawn[2]) == 5_000 < 4_000 * found.n_skipped
    with found.space.model as model:
        step = Playback(model.value_vars, found.space, found.chain)
        idata = pm.sample(2_000, tune=0, chains=2, cores=1, step=step, **QUIET)
    logs = np.log(idata["posterior"]["x"].to_numpy()).ravel()
    assert logs.mean() == pytest.approx(digamma(SHAPE), abs=5 * polygamma(1, SHAPE) ** 0.5 / 80)


@pytest.mark.parametrize("seed", range(20))
def test_unreliable_weights_are_left_to_nuts(funnel, seed):
    """A normal distribution in the neck of a funnel, which draws of the density fill."""
    assert not [*funnel.tried(4_000, 100_000, np.random.default_rng(seed), n_chains=4)]


@pytest.mark.parametrize("seed", range(10))
def test_weights_in_groups_are_bounded(seed):
    """Two modes, of which one has a thousandth of the mass but a tenth of the proposals."""
    shares = np.array([0.999, 0.001])
    with pm.Model() as model:
        pm.Mixture("x", shares, pm.Normal.dist([-5.0, 5.0], 1.0))
    parts = [heavy_tailed(np.array([c]), np.eye(1)) for c in (-5.0, 5.0)]
    proposals = proposals_of(model, Mixture(parts, np.array([0.2, 0.8])))
    [found] = proposals.tried(4_000, 1_000, np.random.default_rng(seed), n_chains=4)
    assert found is not None
    assert len(found.drawn[2]) == 4_000 * found.n_skipped


def of_large_weights(gammas, share):
    """Proposals of equal weights, but for one of each batch after the pilot; sizes of batches."""
    sizes: list[int] = []

    def log_density(x):
        logs = gammas.around.log_density(x)
        if sizes:
            logs[17] += np.log(share * len(x))
        sizes.append(len(x))
        return logs

    return IndependentProposals(gammas.space, gammas.around, log_density), sizes


def test_a_chain_that_would_stay_for_long_takes_more_proposals(gammas):
    """One of 8,000 has a two-hundredth of the weights: forty draws, for two proposals each."""
    proposals, sizes = of_large_weights(gammas, 1 / 200)
    [found] = proposals.tried(4_000, 10, np.random.default_rng(1), n_chains=4)
    assert sizes[:2] == [1_000, 8_000]
    assert found.n_skipped == 4
    assert [len(each) for each in found.drawn] == 3 * [sum(sizes[1:])] == 3 * [16_000]
    few, _ = of_large_weights(gammas, 1 / 200)
    assert not [*few.tried(4_000, 3, np.random.default_rng(1), n_chains=4)]


def test_a_chain_that_would_stay_however_many_they_are_is_left_to_nuts(gammas):
    """One proposal of each batch has a twentieth of its weights, and no tail to fit."""
    proposals, _ = of_large_weights(gammas, 1 / 20)
    assert not [*proposals.tried(4_000, 100, np.random.default_rng(1), n_chains=4)]


def test_chains_begin_apart_and_have_proposals_of_their_own(gammas):
    [found] = gammas.tried(400, 1_000, np.random.default_rng(1), n_chains=4)
    with found.space.model as model:
        step = Playback(model.value_vars, found.space, found.chain)
        idata = pm.sample(100, tune=0, chains=4, cores=1, step=step, **QUIET)
    x = idata["posterior"]["x"].to_numpy()
    assert len(np.unique(x[:, 0, 0])) == 4
    proposed = np.exp(found.drawn[0])
    for i, own in enumerate(x):
        of_chain = proposed[i * 100 * found.n_skipped : (i + 1) * 100 * found.n_skipped]
        distances = np.abs(own[:, None] - of_chain).max(axis=2)
        assert distances.min(axis=1).max() < 1e-9


def of_weights(gammas, log_weights, n_skipped=1):
    """Proposals at 0, 1, 2 and so on, of given weights."""
    x = np.arange(float(len(log_weights)))[:, None]
    return replace(gammas, n_skipped=n_skipped, drawn=(x, np.zeros(len(x)), log_weights))


def test_chains_begin_at_any_proposal_and_not_where_weights_are_large(gammas):
    """If all began at the largest weight, R-hat would say nothing of a part that they miss."""
    found = of_weights(gammas, np.array([-np.inf, 0.0, 0.0, 9.0]))  # the first is never accepted
    firsts = [found.chain(0, 4, rng=np.random.default_rng(seed))[0][0, 0] for seed in range(300)]
    # Of 300 with probability one third, at five standard errors.
    np.testing.assert_allclose(np.bincount(np.int64(firsts)), [0, 100, 100, 100], atol=41)


def test_a_draw_is_the_state_after_its_proposals(gammas):
    """Proposals of equal weights are all accepted."""
    found = of_weights(gammas, np.zeros(12), n_skipped=3)
    points, *_ = found.chain(0, 4, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(points[:, 0], [2, 5, 8, 11])


def test_a_density_that_is_hardly_ever_finite_is_left_to_nuts(gammas):
    impossible = replace(gammas, log_density=lambda x: np.full(len(x), -np.inf), drawn=None)
    assert not [*impossible.tried(1_000, 1_000, np.random.default_rng(1))]


def test_the_covariance_of_draws():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(4_000, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    [found] = around_draws(points)
    np.testing.assert_allclose(found.covariance, np.cov(points.T))
    assert not [*around_draws(points[:9])]
    assert not [*around_draws(np.zeros((50, 2)))]


@pytest.fixture(scope="module")
def coreset():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4_000, 2))
    y = rng.poisson(np.exp(0.5 + x @ [0.3, -0.2]))
    with pm.Model(coords={"column": ["a", "b"]}):
        slopes = pm.Normal("slopes", dims="column")
        pm.Deterministic("twice", 2 * slopes, dims="column")
        pm.Poisson("y", pm.math.exp(pm.Normal("level") + x @ slopes), observed=y)
        return build_coreset(random_seed=1, progressbar=False)


def test_sample_needs_no_nuts_where_the_posterior_is_known(coreset):
    idata, again = (coreset.sample(chains=3, **QUIET) for _ in range(2))
    assert "accepted" in idata["sample_stats"]
    assert dict(idata["posterior"].sizes) == {"chain": 3, "draw": 1_000, "column": 2}
    posterior = idata["posterior"].to_dataset()
    np.testing.assert_allclose(posterior["twice"], 2 * posterior["slopes"])
    assert posterior.identical(again["posterior"].to_dataset()) or all(
        (posterior[name] == again["posterior"][name]).all() for name in posterior
    )
    assert (np.diff(posterior["level"].to_numpy(), axis=1) != 0).mean() > 0.8
    assert coreset.check(idata).reliable
    lp = coreset.model.compile_logp(mode=PLAIN_MODE)
    space = Unconstrained(coreset.model)
    some = posterior.isel(chain=0, draw=slice(0, 5))
    points = space.free(Draws({n: some[n].to_numpy() for n in ("slopes", "level")}))
    expected = [float(lp(space.point(x))) for x in points]
    np.testing.assert_allclose(idata["sample_stats"]["lp"][0, :5], expected, rtol=1e-9)


@pytest.mark.usefixtures("nuts_by_numpy")
@pytest.mark.parametrize("options", [{"nuts_sampler": "pymc"}, {"target_accept": 0.9}])
def test_nuts_is_used_where_it_is_asked_for(coreset, options):
    idata = coreset.sample(draws=50, tune=50, chains=2, cores=1, **QUIET, **options)
    assert "tree_depth" in idata["sample_stats"]


@pytest.mark.parametrize("change", ["data", "term", "term of the full model"])
def test_a_model_that_the_user_changed_is_sampled_as_it_is(change):
    x = np.random.default_rng(1).normal(1.0, size=2_000)
    with pm.Model() as full:
        mu = pm.Normal("mu", 0, pm.Data("scale", 1.0))
        pm.Normal("y", mu, 1.0, observed=x)
        coreset = build_coreset(random_seed=1, progressbar=False)
    if change != "term of the full model":
        assert "accepted" in coreset.sample(draws=50, chains=2, **QUIET)["sample_stats"]
    with full if change == "term of the full model" else coreset.model as model:
        if change == "data":
            pm.set_data({"scale": 0.01})
        else:
            pm.Potential("narrow", pm.logp(pm.Normal.dist(0, 0.01), model["mu"]))
    idata = coreset.sample(draws=500, tune=500, chains=2, cores=1, **QUIET)
    precision = 2_000 + 1e4 + (change != "data")
    found = idata["posterior"]["mu"].to_numpy()
    # NUTS has an effective 100 draws at least: five standard errors.
    assert found.mean() == pytest.approx(x.sum() / precision, abs=0.5 / np.sqrt(precision))


def test_options_of_any_sampler(coreset):
    def options(**given):
        return better_start(coreset.model, coreset.proposal, coreset._posterior, given)

    assert isinstance(options(draws=10, tune=5)["step"], Playback)
    assert options(tune=5)["tune"] == 5
    for of_nuts in ({"init": "adapt_diag"}, {"initvals": {}}, {"max_treedepth": 5}):
        assert options(**of_nuts) is None
    known = coreset.proposal
    few = Proposal(draws=known.draws.take(np.arange(9)), log_ratios=np.zeros(9), around=None)
    assert better_start(coreset.model, few, coreset._posterior, {}) is None
    rows = coreset._posterior.rows
    many = replace(coreset._posterior, rows=rows.take(np.zeros(4_000_000, int)))
    assert better_start(coreset.model, known, many, {}) is None


def test_a_single_draw_needs_no_tail(gammas):
    """Of fewer proposals than a tail is fitted to, large weights are left to NUTS."""
    for seed in range(20):
        found = gammas.tried(1, 1_000, np.random.default_rng(seed))
        assert all(len(proposals.drawn[2]) < 30 for proposals in found)


# -- NUTS in the coordinates of the posterior's covariance: a linear regression, exactly. ----------

N, P = 5_000, 3
RNG = np.random.default_rng(31)
X = RNG.normal(size=(N, P)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.3, 0.9], [0.0, 0.0, 0.2]])
Y = X @ np.array([1.0, -2.0, 3.0]) + RNG.normal(size=N)
COVARIANCE = np.linalg.inv(np.eye(P) + X.T @ X)
MEAN = COVARIANCE @ X.T @ Y
CHAINS = {"chains": 4, "compile_kwargs": {}}
SILENT = {"progressbar": False, "quiet": True}


@pytest.fixture(scope="module")
def coreset_of_three():
    with pm.Model() as model:
        last = pm.Normal("last")  # the order of variables is not that of the columns
        first = pm.Normal("first", shape=2)
        mu = (X[:, :2] * first).sum(axis=1) + X[:, 2] * last
        pm.Normal("y", mu, 1.0, observed=Y)
    return build_coreset(model, random_seed=1, progressbar=False)


@pytest.fixture
def started(coreset_of_three, sampled):
    """Options that `pm.sample` is passed."""
    passed = sampled(xr.DataTree())

    def start(**options):
        coreset_of_three.sample(**{"nuts_sampler": "pymc"} | options)
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


def test_draws_are_those_of_the_posterior(coreset_of_three):
    idata = coreset_of_three.sample(draws=500, random_seed=1, nuts_sampler="pymc", **SILENT)
    draws = np.c_[
        idata["posterior"]["first"].values.reshape(-1, 2), idata["posterior"]["last"].values.ravel()
    ]
    assert len(draws) == 2_000
    whitened = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (draws - MEAN).T)
    # Six standard errors of a thousand independent draws, and what the divergence allows.
    assert np.abs(whitened.mean(axis=1)).max() < 6 / np.sqrt(1_000) + np.sqrt(
        2 * coreset_of_three.objective
    )
    assert np.abs(np.cov(whitened) - np.eye(P)).max() < 6 * np.sqrt(2 / 1_000)
    assert idata["sample_stats"]["n_steps"].mean() < 8  # whatever the correlations


def test_same_seed_same_draws(coreset_of_three):
    one, other = (
        coreset_of_three.sample(draws=20, tune=20, chains=2, random_seed=7, **SILENT)
        for _ in range(2)
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


def test_more_chains_than_draws(coreset_of_three):
    draws = coreset_of_three.proposal.draws.take(slice(0, 40))
    few = replace(
        coreset_of_three.proposal,
        draws=draws,
        log_ratios=coreset_of_three.proposal.log_ratios[:40],
    )
    found = known_metric(
        coreset_of_three.model, few, coreset_of_three.approximation.space, CHAINS | {"chains": 50}
    )
    assert len(found["initvals"]) == 50


@pytest.mark.parametrize("vary", [True, False])
def test_draws_of_an_unknown_distribution_give_starts_and_their_covariance(coreset_of_three, vary):
    known, space = (
        replace(coreset_of_three.proposal, around=None),
        coreset_of_three.approximation.space,
    )
    if not vary:  # in one direction, in which they have no width
        values = known.draws.values | {"last": np.ones(known.draws.n_draws)}
        known = replace(known, draws=Draws(values))
    found = known_metric(coreset_of_three.model, known, space, CHAINS)
    assert len(found["initvals"]) == 4
    if vary:
        covariance, one = np.cov(space.free(known.draws).T), np.ones(space.n_dims)
        np.testing.assert_allclose(found["step"].potential.velocity(one), covariance @ one)
    else:
        assert found.keys() - CHAINS.keys() == {"init", "initvals"}
        assert found["init"] == "adapt_diag"  # without PyMC's jitter


@pytest.mark.parametrize("without", ["proposal", "light tails", "PyMC's NUTS"])
def test_a_posterior_of_which_nothing_is_known_is_begun_as_pymc_does(
    coreset_of_three, started, monkeypatch, without
):
    options = {"nuts_sampler": "nutpie"} if without == "PyMC's NUTS" else {}
    heavy = np.random.default_rng(1).standard_cauchy(len(coreset_of_three.proposal.log_ratios))
    unknown = {
        "proposal": None,
        "light tails": replace(coreset_of_three.proposal, log_ratios=heavy),
        "PyMC's NUTS": coreset_of_three.proposal,
    }
    monkeypatch.setitem(coreset_of_three.__dict__, "proposal", unknown[without])
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


@pytest.mark.parametrize(("apart", "n_tried"), [(2.0, 1), (20.0, 0)])
def test_a_distribution_far_from_the_density_makes_no_proposals(apart, n_tried):
    """Then the density is not evaluated for its tails either."""
    log_ratios, asked = apart * np.random.default_rng(1).normal(size=1_000), []

    def log_density(points):
        asked.append(points)
        return -np.square(points).sum(axis=1)

    known = Proposal(draws=None, log_ratios=log_ratios, around=heavy_tailed(np.zeros(2), np.eye(2)))
    found = [*starts._around(known, SimpleNamespace(log_density=log_density))]
    assert len(found) == bool(asked) == n_tried


# -- models in single precision --------------------------------------------------------------------


@pytest.fixture
def in_single_precision():
    """NUTS of a normal distribution in single precision, whose mode is far from the start."""
    with pytensor.config.change_flags(floatX="float32"):
        y = np.random.default_rng(1).normal(20.0, 1.0, size=4_000)
        with pm.Model():
            pm.Normal("y", pm.Normal("mu", 0.0, 100.0), 1.0, observed=y)
            yield sampler_of(kind="nuts")


def test_chains_of_models_in_single_precision_arrive(in_single_precision):
    sampler = in_single_precision
    every = sampler.loglikelihood.in_memory.all
    mean, sd = every.inputs[0].mean(), 1 / np.sqrt(4_000)
    points = sampler.drawn(every, np.ones(4_000), 400, rng=np.random.default_rng(1)).points
    assert_allclose(points.mean(), mean, atol=0.3 * sd)
    assert 0.8 < points.std() / sd < 1.25


def test_the_metric_that_is_known_serves_models_in_single_precision(in_single_precision):
    sampler = in_single_precision
    every, space = sampler.loglikelihood.in_memory.all, sampler.space
    around = sampler.laplace(every, np.ones(4_000))
    points, _ = around.draw(50, rng=np.random.default_rng(1))
    known = Proposal(draws=space.constrain(points), log_ratios=np.zeros(50), around=around)
    options = {"chains": 2, "compile_kwargs": {}, "random_seed": 1}
    options = known_metric(space.model, known, space, options)
    quick = {"draws": 200, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
    idata = pm.sample(model=space.model, **options, **quick)
    assert_allclose(idata["posterior"]["mu"].mean(), around.location[0], atol=0.3 / np.sqrt(4_000))
    points = sampler.drawn_in_metric(
        every, np.ones(4_000), 200, starts=points, metric=around.largest.factor,
        rng=np.random.default_rng(1),
    ).points  # fmt: skip
    assert_allclose(points.mean(), around.location[0], atol=0.3 / np.sqrt(4_000))
