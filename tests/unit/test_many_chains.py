"""Many chains at once: densities in closed form, chains that do not mix, and `sample`."""

import re

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import ndtri, polygamma, psi

from pymc_coresets import build_coreset
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.diagnostics.posterior_draws import Chains
from pymc_coresets.diagnostics.short_chains import agreement
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.steps import starts as choice
from pymc_coresets.sampling.steps.many_chains import ManyChains, Paths, WarmUp, adapted
from pymc_coresets.sampling.steps.split_hmc import SplitHmc
from pymc_coresets.sampling.steps.starts import spread_starts

SHAPE, N_DIMS = 3.0, 8
MIX = np.eye(N_DIMS) + np.diag(np.full(N_DIMS - 1, 0.9), 1)  # of independent coordinates
STANDARD = Normal(np.zeros(N_DIMS), factor_of(np.eye(N_DIMS)))
QUIET = {"progressbar": False, "quiet": True}


def skewed(x):
    """Sums of logarithms of gamma variables: correlated and skewed."""
    z = np.linalg.solve(MIX, x.T).T
    gradients = SHAPE - np.exp(z)
    return (SHAPE * z - np.exp(z)).sum(axis=1), np.linalg.solve(MIX.T, gradients.T).T


def funnel(x):
    """A normal variable, which is the log-scale of nine others."""
    log_scale, others = x[:, :1], x[:, 1:]
    scaled = others * np.exp(-log_scale)
    squares = np.square(scaled).sum(axis=1, keepdims=True)
    values = -np.square(log_scale) / 18 - squares / 2 - 9 * log_scale
    slopes = -log_scale / 9 + squares - 9
    return values[:, 0], np.hstack([slopes, -scaled * np.exp(-log_scale)])


def two_modes(x):
    """Two normal distributions of equal mass, twenty standard deviations apart."""
    distance = np.abs(x[:, :1]) - 10.0
    gradients = -x.copy()
    gradients[:, :1] = -distance * np.sign(x[:, :1])
    return -(np.square(distance[:, 0]) + np.square(x[:, 1:]).sum(axis=1)) / 2, gradients


def as_dataset(paths):
    return xr.Dataset({"x": (("chain", "draw", "entry"), np.swapaxes(paths.points, 0, 1))})


def sampler(**options):
    return ManyChains(**{"n_chains": 64, "n_draws": 4_000, "most": 1e6} | options)


@pytest.fixture(scope="module")
def drawn():
    """From starts, mean and width that are wrong."""
    rng = np.random.default_rng(1)
    return sampler().draw(SplitHmc(skewed, STANDARD), rng.normal(size=(64, N_DIMS)), rng=rng)


def test_draws_are_those_of_the_density(drawn):
    """By moments of coordinates in which it is a product, with five standard errors."""
    z = np.linalg.solve(MIX, drawn.points.reshape(-1, N_DIMS).T)
    variance = polygamma(1, SHAPE)
    away = (z - psi(SHAPE)) / variance**0.5
    skewness, excess = polygamma(2, SHAPE) / variance**1.5, polygamma(3, SHAPE) / variance**2
    n = away.size / 3  # effective draws, of which R-hat at most 1.01 needs half as many
    assert abs(away.mean()) < 5 / n**0.5
    assert abs(np.square(away).mean() - 1) < 5 * ((2 + excess) / n) ** 0.5
    assert (away**3).mean() == pytest.approx(skewness, abs=0.15)  # -0.58
    np.testing.assert_allclose(skewed(drawn.points[-1])[0], drawn.values[-1])


def test_joined_chains_have_as_many_draws_as_are_wanted_and_agree(drawn):
    joined = drawn.joined(4, 990)
    assert joined.points.shape == (990, 4, N_DIMS)
    assert joined.values.shape == joined.chances.shape == (990, 4)
    found = Chains(as_dataset(joined))
    assert found.rhat <= 1.01
    assert found.ess_bulk > 1_000
    assert found.copies.share == 0.0  # no draw is in the result twice


def test_the_agreement_is_that_of_arviz(drawn):
    (rhat, ess), own = agreement(drawn.points), Chains(as_dataset(drawn))
    assert rhat == pytest.approx(own.rhat, abs=1e-6)
    # Both estimates have a standard error of an eighth, and are the least of many.
    assert ess == pytest.approx(own.ess_bulk, rel=0.5)


def test_stuck_chains_are_seen_in_the_result():
    """Each of 64 chains stays near its own start; ArviZ sees this where they are joined."""
    rng = np.random.default_rng(2)
    points = rng.normal(size=(64, 2)) + 0.05 * rng.normal(size=(63, 64, 2))
    values = np.zeros((63, 64))
    rhat, ess = agreement(points)
    assert rhat > 3.0
    assert ess == pytest.approx(2 * 64, rel=0.1)  # one draw of each half chain
    joined = as_dataset(Paths(points, values, values).joined(4, 1_000))
    assert float(az.ess(joined)["x"].max()) < 3 * 64
    assert float(az.rhat(joined)["x"].min()) > 1.02
    assert not Chains(joined).rhat <= 1.01


def test_a_few_stuck_chains_are_seen_in_the_result():
    """Three of 64 stay three standard deviations away, which is a tenth of the variance."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(63, 64, 1))
    points[:, [5, 30, 50]] = 3.0 + 0.05 * rng.normal(size=(63, 3, 1))
    assert agreement(points)[0] > 1.1
    values = np.zeros((63, 64))
    joined = as_dataset(Paths(points, values, values).joined(4, 1_000))
    assert float(az.ess(joined)["x"].max()) < 1_000


def test_chains_that_do_not_move_from_mode_to_mode_give_nothing():
    rng = np.random.default_rng(4)
    starts = rng.normal(size=(64, 3)) + [10.0, 0.0, 0.0] * rng.choice([-1, 1], (64, 1))
    around = Normal(np.zeros(3), factor_of(np.diag([1 / 101, 1.0, 1.0])))
    assert not isinstance(
        sampler(most=1e5).draw(SplitHmc(two_modes, around), starts, rng=rng), Paths
    )


@pytest.mark.parametrize("where", ["everywhere", "in the mouth", "in the neck"])
@pytest.mark.parametrize("seed", range(3))
def test_a_funnel_gives_nothing(seed, where):
    """Chains do not move in the neck if they move in the mouth, and the other way round."""
    rng = np.random.default_rng(seed)
    log_scale = 3 * rng.normal(size=(64, 1))
    if where == "in the mouth":
        log_scale = np.abs(log_scale)
    if where == "in the neck":
        log_scale = -9 + log_scale / 10
    starts = np.hstack([log_scale, np.exp(log_scale) * rng.normal(size=(64, 9))])
    around = Normal(starts.mean(axis=0), factor_of(np.diag(1 / starts.var(axis=0))))
    assert not isinstance(sampler(most=2e5).draw(SplitHmc(funnel, around), starts, rng=rng), Paths)


SPREAD = 0.3  # of the logarithm of a scale


def one_scale_of_many(x):
    """A normal variable, by which the logarithms of forty others' scales differ a little."""
    log_scale, z = x[:, :1], x[:, 1:] * np.exp(x[:, :1])
    squares = np.square(z).sum(axis=1, keepdims=True)
    values = -np.square(log_scale) / (2 * SPREAD**2) - squares / 2 + 40 * log_scale
    slopes = -log_scale / SPREAD**2 - squares + 40
    return values[:, 0], np.hstack([slopes, -z * np.exp(log_scale)])


def test_chains_that_mix_slowly_go_on_as_fewer():
    """The scale moves by a tenth of its variance at each trajectory: no metric changes this."""
    rng = np.random.default_rng(1)
    log_scale = SPREAD * rng.normal(size=(64, 1))
    starts = np.hstack([log_scale, np.exp(-log_scale) * rng.normal(size=(64, 40))])
    around = Normal(np.zeros(41), factor_of(np.diag([SPREAD**-2, *np.ones(40)])))
    paths = sampler(most=4e5, n_joined=4).draw(SplitHmc(one_scale_of_many, around), starts, rng=rng)
    assert paths.values.shape[1] == 20  # a hundred effective draws of each are half of 4,000
    assert agreement(paths.points)[0] <= 1.01
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        below = (paths.points[..., 0] < SPREAD * ndtri(share)).mean(axis=0)
        assert abs(below.mean() - share) < 5 * below.std(ddof=1) / np.sqrt(below.size)
    assert paths.joined(4, 1_000).values.shape == (1_000, 4)


def three_groups(x):
    """Means of three groups with standard error 0.01, as mean + scale * z, about 1."""
    mean, log_scale, z = x[:, :1], x[:, 1:2], x[:, 2:]
    scale = np.exp(log_scale)
    away = (mean + scale * z - 1) / 0.01**2
    values = -(away**2).sum(axis=1) * 0.01**2 / 2 - (z**2).sum(axis=1) / 2
    values = values + (log_scale - scale**2 / 2 - mean**2 / 8)[:, 0]
    slopes = [-away.sum(axis=1, keepdims=True) - mean / 4]
    slopes += [-(away * z).sum(axis=1, keepdims=True) * scale + 1 - scale**2, -away * scale - z]
    return values, np.hstack(slopes)


@pytest.mark.parametrize(
    ("times", "goes_on"), [(1.9, True), pytest.param(2.1, False, marks=pytest.mark.slow)]
)
def test_chains_that_nearly_agree_may_take_longer(times, goes_on, monkeypatch, caplog):
    """Where NUTS would begin anew: here they want a part of their draws more, again and again."""
    monkeypatch.setattr(ManyChains, "_wanted_length", lambda _, p: times * len(p.values))
    rng, most = np.random.default_rng(1), 2e5
    with caplog.at_level("INFO", "pymc_coresets"):
        found = sampler(most=most).draw(
            SplitHmc(skewed, STANDARD), rng.normal(size=(64, 8)), rng=rng
        )
    assert not isinstance(found, Paths)
    [n_gradients] = re.findall(r"not converged after (\d+) gradients", caplog.text)
    assert (int(n_gradients) > 3 * most) is goes_on
    assert int(n_gradients) < 6 * most


def test_what_tuned_chains_found_is_left_to_nuts():
    """Where a scale goes to zero, from a normal distribution at another place and far too wide."""
    rng = np.random.default_rng(1)
    near = Normal(np.array([0.9, -2.0, 0.0, 0.0, 0.0]), factor_of(16 * np.eye(5)))
    starts = near.draw(64, rng=rng)[0]
    found = sampler(most=1e6).draw(SplitHmc(three_groups, near), starts, rng=rng)
    assert isinstance(found, WarmUp)
    assert found.settled
    assert found.points.shape == (64, 5)
    # Given the scale, the three means are normal: its marginal density, on a grid.
    grid = np.linspace(-14.0, 2.0, 4_001)
    variance = np.exp(2 * grid) + 0.01**2
    weights = np.exp(grid - np.exp(2 * grid) / 2 - 1.5 / (variance + 12)) / variance
    weights /= np.sqrt(variance + 12)
    mean = np.average(grid, weights=weights)  # -4.6
    sd = np.sqrt(np.average((grid - mean) ** 2, weights=weights))  # 1.5
    assert found.around.location[1] == pytest.approx(mean, abs=5 * sd / 64**0.5)
    assert found.around.covariance[1, 1] ** 0.5 == pytest.approx(sd, rel=5 / 128**0.5)


def test_a_normal_distribution_is_estimated_from_few_draws():
    """Of thrice as many draws as dimensions, whose own covariance is worse than none."""
    rng = np.random.default_rng(5)
    n_dims = 200
    scales = np.concatenate([[5.0], np.ones(n_dims - 1)])
    near, _ = adapted(
        Normal(np.zeros(n_dims), factor_of(np.eye(n_dims))),
        scales * rng.normal(size=(600, n_dims)),
    )
    found = near.covariance
    assert found[0, 0] == pytest.approx(25.0, rel=0.4)
    exact, empirical = np.diag(scales**2), np.cov((scales * rng.normal(size=(600, n_dims))).T)
    errors = [np.square(own - exact).sum() for own in (found, empirical)]
    assert errors[0] < errors[1]
    _, change = adapted(near, near.at(rng.normal(size=(600, n_dims))))
    assert change < 0.1


def test_starts_are_different_points_where_the_weights_are():
    with pm.Model() as model:
        pm.Normal("x")
    space = choice.Unconstrained(model)
    x = np.random.default_rng(6).normal(size=1_000)
    of_all, of_few = (
        spread_starts(
            Proposal(draws=Draws({"x": x}), log_ratios=log_ratios),
            space,
            64,
            rng=np.random.default_rng(7),
        )
        for log_ratios in (x, 50 * x)
    )
    assert of_all.mean() == pytest.approx(1.0, abs=5 / 8)
    assert len(np.unique(of_few)) > 20
    assert of_few.mean() > of_all.mean()


@pytest.fixture(scope="module")
def coreset():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3_000, 2))
    y = rng.poisson(np.exp(0.5 + x @ [0.3, -0.2]))
    with pm.Model():
        slopes = pm.Normal("slopes", shape=2)
        pm.Deterministic("twice", 2 * slopes)
        pm.Poisson("y", pm.math.exp(pm.Normal("level") + x @ slopes), observed=y)
        return build_coreset(random_seed=1, progressbar=False)


@pytest.fixture
def tuned_to(monkeypatch):
    """Let many chains end with the points of a warm-up."""
    return lambda found: monkeypatch.setattr(ManyChains, "draw", lambda *_, **__: found)


@pytest.mark.usefixtures("not_independent")
def test_sample_joins_chains(coreset):
    idata, again = (
        coreset.sample(draws=700, tune=50, chains=3, random_seed=1, **QUIET) for _ in range(2)
    )
    posterior = idata["posterior"].to_dataset()
    assert posterior.equals(again["posterior"].to_dataset())
    assert dict(posterior.sizes)["chain"] == 3
    assert dict(posterior.sizes)["draw"] == 700
    assert "tree_depth" not in idata["sample_stats"]
    np.testing.assert_allclose(posterior["twice"], 2 * posterior["slopes"])
    check = coreset.check(idata)
    assert check.reliable
    assert check.ess_bulk > 1_000
    other = coreset.sample(draws=700, chains=3, random_seed=2, **QUIET)["posterior"]
    assert not (other["level"] == posterior["level"]).any()


@pytest.mark.usefixtures("not_independent")
def test_nuts_follows_where_chains_do_not_agree(coreset, tuned_to):
    points = np.zeros((6, coreset.approximation.space.n_dims))
    near = Normal(points[0], factor_of(np.eye(points.shape[1])))
    tuned_to(WarmUp(near, points, settled=False))
    idata = coreset.sample(draws=50, tune=50, chains=2, cores=1, random_seed=1, **QUIET)
    assert "tree_depth" in idata["sample_stats"]


@pytest.mark.usefixtures("not_independent")
def test_nuts_goes_on_from_tuned_chains(coreset, tuned_to):
    """With fewer points than a tail of importance weights needs."""
    space = coreset.approximation.space
    points = np.random.default_rng(8).normal(scale=0.01, size=(6, space.n_dims))
    scales = np.arange(1.0, space.n_dims + 1)
    tuned_to(WarmUp(Normal(points[0], factor_of(np.diag(scales**-2))), points, True))
    options = {"chains": 4, "compile_kwargs": {}, "random_seed": 1}
    found = choice.better_start(coreset.model, coreset.proposal, coreset._posterior, options)
    np.testing.assert_allclose(found["step"].potential.velocity(np.ones(len(scales))), scales**2)
    chosen = np.array([[*point["slopes"], point["level"]] for point in found["initvals"]])
    assert set(np.round(chosen.ravel(), 12)) <= set(np.round(points.ravel(), 12))


@pytest.mark.usefixtures("not_independent")
def test_more_chains_than_are_moved_at_once(coreset):
    idata = coreset.sample(draws=90, chains=70, random_seed=1, **QUIET)
    x = idata["posterior"]["level"].to_numpy()
    assert x.shape == (70, 90)
    assert len(np.unique(x[:, 0])) == 70


def test_a_ridge_without_an_upper_bound():
    """A scale that the data bound from below alone, and a share that is known the better for it.

    As that of dropout rates that hardly vary.  The logarithm of the scale falls off exponentially,
    with the distribution function exp(-exp(-k)).
    """

    def slopes(x):
        k, share = x.T
        width = 1 + np.exp(-k)
        away = (share - np.exp(-k)) / width
        values = -k - np.exp(-k) - away**2 / 2 - np.log(width)
        by_k = -1 + np.exp(-k) + np.exp(-k) * (1 - away - away**2) / width
        return values, np.stack([by_k, -away / width], axis=1)

    around = Normal(np.array([0.5, 0.5]), factor_of(np.eye(2)))
    rng = np.random.default_rng(3)
    sampler = ManyChains(n_chains=64, n_draws=4_000, most=1e6)
    paths = sampler.draw(SplitHmc(slopes, around), rng.normal(0.5, 1.0, size=(64, 2)), rng=rng)
    k = paths.points[..., 0]
    for share in (0.05, 0.5, 0.95, 0.99):
        below = (k < -np.log(-np.log(share))).mean(axis=0)
        # Chains are independent: their spread gives the standard error.
        assert abs(below.mean() - share) < 5 * below.std(ddof=1) / np.sqrt(below.size)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")  # of chains that diverge
def test_draws_along_a_thin_curved_ridge_are_right_or_not_reliable():
    """Chains follow y ~ N(a + b^2, 1) hardly, and seldom from one side to the other."""
    outcomes = np.random.default_rng(1).normal(1, 1, 20_000)
    with pm.Model() as model:
        place = pm.Normal("a", 0, 2) + pm.Normal("b", 0, 1) ** 2
        pm.Normal("y", place, 1, observed=outcomes)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.sample(random_seed=1, cores=1, **QUIET)
    check = coreset.check(idata)
    # Given b, a is normal: the marginal posterior of b, on a grid.
    b, mean, variance = np.linspace(-6, 6, 20_001), outcomes.mean(), 4 + 1 / len(outcomes)
    weights = np.exp(-(b**2) / 2 - (mean - b**2) ** 2 / (2 * variance))
    sd = np.sqrt(np.average(b**2, weights=weights))
    drawn = idata["posterior"]["b"].to_numpy()
    is_right = abs(drawn.mean()) < 4 * sd / check.ess_bulk**0.5
    is_right &= abs(drawn.std() / sd - 1) < 4 / check.ess_bulk**0.5
    assert is_right or not check.reliable
