"""Independence Metropolis-Hastings: its chains, when it is used, and what `sample` returns."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import digamma, polygamma

from pymc_coresets import build_coreset
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.sampling.normal import Mixture, heavy_tailed
from pymc_coresets.sampling.steps.metropolis import IndependentProposals, path
from pymc_coresets.sampling.steps.nuts import SharedTrace
from pymc_coresets.sampling.steps.playback import Playback
from pymc_coresets.sampling.steps.starts import around_draws, better_start
from tests.modes import PLAIN_MODE

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
