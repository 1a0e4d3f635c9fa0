"""Variables of units given the shared ones: drawn, and judged where they are stored."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.special import expit, ndtri
from scipy.stats import gamma, kstest, logistic, norm, t

from pymc_coresets import InvalidDataError, build_coreset, sample
from pymc_coresets.diagnostics.verdicts import Level, Reason
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.units.placement import Placement
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.verification_of_units import verify_units
from pymc_coresets.sampling.units import stored_draws
from pymc_coresets.sampling.units.conditionals import _COARSE, Conditionals
from pymc_coresets.sampling.units.log_linear import places_for, probabilities, quantiles
from pymc_coresets.sampling.units.stored_draws import StoredUnits, judged_units
from tests.models.units import nodes_at, read
from tests.refusals import refused, warned

# -- distribution functions ------------------------------------------------------------------------


def log_of_gamma(x, shape=0.3):
    """Of the logarithm of a gamma variable, in widths from its mode: a long tail, and none."""
    x = x / np.sqrt(shape)
    return shape * (x - np.exp(x))


DENSITIES = {
    "normal": (norm.logpdf, norm.ppf),
    "logistic": (logistic.logpdf, logistic.ppf),
    "t": (t(3).logpdf, t(3).ppf),
    "log of gamma": (log_of_gamma, lambda p: np.log(gamma(0.3).ppf(p) / 0.3) * np.sqrt(0.3)),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_quantiles_of_a_table_are_exact(name):
    log_density, exact = DENSITIES[name]

    def logs(places):  # along the axis of tables
        return log_density(3 * np.sinh(places / 3)) + np.log(np.cosh(places / 3))

    with np.errstate(over="ignore"):
        places = places_for(_COARSE, logs(_COARSE)[None])
    p = norm.cdf(np.linspace(-3.2, 3.2, 33))
    found = 3 * np.sinh(quantiles(places, logs(places)[None], p[None, :, None])[0, :, 0] / 3)
    # Of four thousand independent draws, a median is off by 0.02 standard deviations.
    scale = np.diff(exact(norm.cdf([-1.0, 1.0])))[0] / 2
    np.testing.assert_allclose(found, exact(p), rtol=2e-3, atol=4e-3 * scale)
    at = 3 * np.arcsinh(exact(p) / 3)
    back = probabilities(places, logs(places)[None], at[None, :, None])[0, :, 0]
    np.testing.assert_allclose(ndtri(back), ndtri(p), atol=5e-3)


def test_probabilities_are_exact_where_a_density_hardly_rises():
    """From a constant to one that rises by 6e-5 nats: closed forms."""
    places, rise = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), 6e-5
    logs = np.array([0.0, 0.0, 0.0, rise, 2 * rise])[None, :, None]
    found = probabilities(places, logs, np.zeros((1, 1, 1)))
    expected = 2 / (2 + np.expm1(2 * rise) / rise)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-8)


# -- one variable ----------------------------------------------------------------------------------

N_LEVELS = 12
LEVEL = np.repeat(np.arange(N_LEVELS), 4)
COUNTS = np.where(LEVEL < 4, 0, np.random.default_rng(1).poisson(0.7, size=LEVEL.size))
TOTAL, NUMBER = (np.bincount(LEVEL, w, N_LEVELS) for w in (COUNTS, None))


@pytest.fixture(scope="module")
def rates() -> LogLikelihood:
    """Gamma rates of levels, of which the first four have no events."""
    with pm.Model() as model:
        shape, rate = pm.Exponential("shape", 1.0), pm.Exponential("rate", 1.0)
        z = pm.Gamma("z", shape, rate, shape=N_LEVELS)
        pm.Poisson("y", z[LEVEL], observed=COUNTS)
    return LogLikelihood(nodes_at(read(model, "z"), 9))


def drawn(loglik: LogLikelihood, **shared: np.ndarray) -> np.ndarray:
    conditionals = Conditionals(loglik, Draws(shared))
    found = conditionals.drawn(loglik.in_memory.all, np.random.default_rng(2))
    assert found.enough.all()
    return found.values


def require_uniform(p: np.ndarray, shared: np.ndarray | None = None) -> None:
    """Require uniform probabilities (n_draws, n_units), independent of shared variables."""
    scores, n = ndtri(p.clip(1e-12, 1 - 1e-12)), len(p)
    assert min(kstest(own, "uniform").pvalue for own in p.T) > 1e-4
    assert np.abs(scores.std(axis=0) - 1).max() < 5 / np.sqrt(2 * n)
    assert np.abs(scores.std(axis=0).mean() - 1) < 4 / np.sqrt(2 * p.size) + 5e-4
    for q in (0.01, 0.99):
        assert np.abs((p < q).mean(axis=0) - q).max() < 4.5 * np.sqrt(q * (1 - q) / n)
    if shared is not None:
        assert np.abs(np.corrcoef(shared, scores.T)[0, 1:]).max() < 4.5 / np.sqrt(n)


@pytest.mark.parametrize("width", [0.0, 0.05, 0.7])
def test_skewed_variables_are_drawn_from_their_own_distribution(rates, width):
    """From tables alone, where shared variables vary a lot, and by regressions on them."""
    rng, n = np.random.default_rng(3), 4_000
    shape, rate = np.exp(width * rng.normal(size=(2, n)))
    z = np.exp(drawn(rates, shape=shape, rate=rate)[..., 0])
    exact = gamma(shape[:, None] + TOTAL, scale=1 / (rate[:, None] + NUMBER))
    require_uniform(exact.cdf(z), shape if width else None)


@pytest.mark.parametrize("width", [0.05, 0.7])
def test_units_of_equal_data_have_tables_in_common_and_independent_draws(rates, width, calls):
    tables = calls(Conditionals, "_tables")
    rng, n = np.random.default_rng(4), 4_000
    shape, rate = np.exp(width * rng.normal(size=(2, n)))
    z = np.exp(drawn(rates, shape=shape, rate=rate)[..., 0])
    kinds = len({tuple(sorted(COUNTS[level == LEVEL])) for level in range(N_LEVELS)})
    assert kinds < N_LEVELS
    assert max(len(call.args[1]) for call in tables) == kinds
    exact = gamma(shape[:, None] + TOTAL, scale=1 / (rate[:, None] + NUMBER))
    scores = ndtri(exact.cdf(z).clip(1e-12, 1 - 1e-12))
    apart = np.corrcoef(scores.T)[np.triu_indices(N_LEVELS, 1)]
    assert np.abs(apart).max() < 4.5 / np.sqrt(n)


def test_few_draws_are_made_one_by_one(rates):
    shape, rate = np.full((2, 40), 0.7)
    z = np.exp(drawn(rates, shape=shape, rate=rate)[..., 0])
    exact = gamma(0.7 + TOTAL, scale=1 / (0.7 + NUMBER))
    assert kstest(exact.cdf(z).ravel(), "uniform").pvalue > 1e-3


def test_all_of_thirty_trials():
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), 2.0, shape=2)
        of_row = np.repeat([0, 1], 30)
        pm.Bernoulli("y", logit_p=z[of_row], observed=np.append(np.ones(59, int), 0))
    loglik = LogLikelihood(nodes_at(read(model, "z"), 9))
    found = drawn(loglik, mean=np.zeros(20_000))[..., 0]
    grid = np.linspace(-15.0, 25.0, 20_001)
    for z, n_failed in zip(found.T, (0, 1), strict=True):
        logs = norm.logpdf(grid, 0, 2) + (30 - n_failed) * np.log(logistic.cdf(grid))
        mass = np.cumsum(np.exp(logs + n_failed * np.log(logistic.sf(grid))))
        require_uniform(np.interp(z, grid, mass / mass[-1])[:, None])


# -- several variables -----------------------------------------------------------------------------

X = 1.0 + np.random.default_rng(10).normal(size=LEVEL.size)  # so that lines' numbers are correlated


def test_several_skewed_variables_of_each_level():
    kind = np.arange(LEVEL.size) % 2
    with pm.Model() as model:
        z = pm.Gamma("z", pm.Exponential("shape", 1.0), 1.0, shape=(N_LEVELS, 2))
        pm.Poisson("y", pt.switch(kind, z[LEVEL, 1], z[LEVEL, 0]), observed=COUNTS)
    loglik = LogLikelihood(nodes_at(read(model, "z"), 9))
    found = np.exp(drawn(loglik, shape=np.full(4_000, 1.5)))
    for own in (0, 1):
        total, number = (
            np.bincount(LEVEL[kind == own], w, N_LEVELS) for w in (COUNTS[kind == own], None)
        )
        require_uniform(gamma(1.5 + total, scale=1 / (1 + number)).cdf(found[..., own]))


@pytest.fixture(scope="module")
def pairs() -> LogLikelihood:
    """Gamma rates of two kinds for each level."""
    kind = np.arange(LEVEL.size) % 2
    with pm.Model() as model:
        z = pm.Gamma("z", pm.Exponential("shape", 1.0), 1.0, shape=(N_LEVELS, 2))
        pm.Poisson("y", pt.switch(kind, z[LEVEL, 1], z[LEVEL, 0]), observed=COUNTS)
    return LogLikelihood(nodes_at(read(model, "z"), 9))


@pytest.fixture(scope="module")
def lines() -> LogLikelihood:
    """An intercept and a slope of each level, with normal rows."""
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        z = pm.Normal("z", 0.0, sd, shape=(N_LEVELS, 2))
        pm.Normal("y", z[LEVEL, 0] + z[LEVEL, 1] * X, 1.0, observed=X)
    return LogLikelihood(nodes_at(read(model, "z"), 9))


@pytest.mark.parametrize("width", [0.05, 0.3])
def test_several_variables_follow_the_shared_ones(pairs, width):
    shape = 1.5 * np.exp(width * np.random.default_rng(3).normal(size=4_000))
    found = np.exp(drawn(pairs, shape=shape))
    for own in (0, 1):
        some = np.arange(LEVEL.size) % 2 == own
        total, number = (np.bincount(LEVEL[some], w, N_LEVELS) for w in (COUNTS[some], None))
        exact = gamma(shape[:, None] + total, scale=1 / (1 + number))
        require_uniform(exact.cdf(found[..., own]), shape)


@pytest.mark.parametrize("width", [0.05, 1.0])
def test_correlated_variables_are_drawn_from_their_joint_distribution(lines, width):
    """Where their scales vary a lot, places are found at each draw, and by regression otherwise."""
    sd = np.exp(width * np.random.default_rng(3).normal(size=4_000))
    scores = scores_of_lines(drawn(lines, sd=sd), sd)
    for own in (0, 1):
        require_uniform(norm.cdf(scores[..., own]), sd)
    assert abs(np.mean(scores[..., 0] * scores[..., 1])) < 4.5 / np.sqrt(scores[..., 0].size)


#: Scales with a few values that are far from the others.
FAR = {
    "down to zero": np.abs(np.random.default_rng(3).normal(size=4_000)),
    "a few small ones": np.where(np.arange(4_000) % 100 == 37, 0.1, 1.0)
    * np.exp(0.05 * np.random.default_rng(3).normal(size=4_000)),
}


@pytest.mark.parametrize("name", FAR)
def test_where_a_scale_is_small_variables_follow_it(lines, name):
    """Draws of shared variables that are rare have none of the places of the others."""
    sd = FAR[name]
    scores = scores_of_lines(drawn(lines, sd=sd), sd)
    smallest = scores[np.argsort(sd)[:40]]
    assert abs(np.mean(np.square(smallest)) - 1) < 4.5 * np.sqrt(2 / smallest.size)
    require_uniform(norm.cdf(scores[..., 0]), sd)


def test_where_a_scale_is_small_one_variable_follows_it(rates):
    """As above: tables at all draws, as a regression is off at some of them."""
    shape = 2.0 * FAR["a few small ones"]
    z = np.exp(drawn(rates, shape=shape, rate=np.ones(4_000))[..., 0])
    exact = gamma(shape[:, None] + TOTAL, scale=1 / (1 + NUMBER))
    scores = ndtri(exact.cdf(z)[np.argsort(shape)[:40]])
    assert abs(np.mean(np.square(scores)) - 1) < 4.5 * np.sqrt(2 / scores.size)


def scores_of_lines(found: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return the normal scores of draws of both numbers of lines, which are independent."""
    design = np.stack([np.ones_like(X), X], axis=1)
    at = (np.arange(N_LEVELS)[:, None] == LEVEL).astype(float)
    products = np.einsum("gn,ni,nj->gij", at, design, design)
    precision = products + np.eye(2) / np.square(sd)[:, None, None, None]
    mean = np.linalg.solve(precision, (at @ (design * X[:, None]))[None, ..., None])[..., 0]
    upper = np.swapaxes(np.linalg.cholesky(precision), -1, -2)
    scores: np.ndarray = np.einsum("sgij,sgj->sgi", upper, found - mean)
    return scores


def test_places_of_several_variables_are_found_at_few_draws(pairs, monkeypatch):
    n_draws, found = [], Placement.found

    def counted(self, inputs, step, end):
        places = found(self, inputs, step, end)
        n_draws.append(len(places[0]))
        return places

    monkeypatch.setattr(Placement, "found", counted)
    shape = 1.5 * np.exp(0.05 * np.random.default_rng(3).normal(size=4_000))
    drawn(pairs, shape=shape)
    assert sum(n_draws) < 100


def test_discrete_variables_are_drawn_in_proportion_to_all_values():
    y = np.random.default_rng(8).normal(size=LEVEL.size) + (LEVEL % 2)
    with pm.Model() as model:
        z = pm.Bernoulli("z", pm.Beta("p", 1.0, 1.0), shape=N_LEVELS)
        pm.Normal("y", pt.cast(z[LEVEL], "float64"), 1.0, observed=y)
    units, n = read(model, "z"), 4_000
    verify_units(units, rng=np.random.default_rng(1))
    p = np.random.default_rng(9).uniform(0.1, 0.9, size=n)
    found = drawn(LogLikelihood(nodes_at(units, 9)), p=p)[..., 0]
    assert set(np.unique(found)) == {0.0, 1.0}
    odds = np.bincount(LEVEL, norm.logpdf(y, 1) - norm.logpdf(y, 0), N_LEVELS)
    exact = logistic.cdf(odds + np.log(p / (1 - p))[:, None])
    z = (found - exact).mean(axis=0) / np.sqrt((exact * (1 - exact)).mean(axis=0) / n)
    assert np.abs(z).max() < 4.5


# -- levels and results ----------------------------------------------------------------------------

MANY = 60
OF_ROW = np.repeat(np.arange(MANY - 2), 5)  # the last two levels have no rows
ORDER = np.random.default_rng(4).permutation(MANY)
OWN = np.random.default_rng(5).normal(20.0, 0.45, size=MANY)
Y = OWN[ORDER][OF_ROW] + 0.1 * np.random.default_rng(6).normal(size=OF_ROW.size)


def in_another_order() -> pm.Model:
    with pm.Model(coords={"user": [f"u{i}" for i in range(MANY)]}) as model:
        mean, sd = pm.Normal("mean", 20.0, 5.0), pm.HalfNormal("sd")
        z = pm.Normal("z", mean, sd, dims="user")
        pm.Normal("y", z[ORDER][OF_ROW], 0.1, observed=Y)
    return model


@pytest.fixture(scope="module")
def ordered():
    """A coreset whose rows see the entries of a variable in another order."""
    return build_coreset(in_another_order(), integrate="z", random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def idata(ordered) -> xr.DataTree:
    return ordered.sample(random_seed=1, progressbar=False)


def test_entries_in_another_order_are_recovered_under_their_own_labels(idata):
    found = idata["posterior"]["z"].mean(("chain", "draw")).values
    seen = np.isin(np.arange(MANY), ORDER[:-2])
    # The standard deviation of the mean of five rows is 0.045.
    assert np.abs(found - OWN)[seen].max() < 5 * 0.045


def test_levels_without_rows_have_draws_of_their_prior(idata):
    draws = idata["posterior"].to_dataset().stack(sample=("chain", "draw"))
    z = draws["z"].values[ORDER[-2:]]
    scores = (z - draws["mean"].values) / draws["sd"].values
    assert kstest(scores.ravel(), norm.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(scores)[0, 1]) < 5 / np.sqrt(scores.shape[1])


def test_draws_of_too_many_levels_are_left_out_with_a_warning(ordered, idata, limits):
    limits(most_recovered=idata["posterior"]["z"].size)
    with warned("['z']", "recover(idata, levels=", "up to draws=999"):
        found = ordered.sample(random_seed=1, progressbar=False)
    assert "z" not in found["posterior"]
    assert found["posterior"].attrs["integrated"] == ["z"]
    fewer = ordered.sample(draws=999, random_seed=1, progressbar=False)
    assert "z" in fewer["posterior"]


def test_thousands_of_rows_are_no_reason_to_leave_variables_out():
    rng, level = np.random.default_rng(7), np.repeat(np.arange(12), 200)
    y = rng.poisson(np.exp(rng.normal(size=12)[level]))
    with pm.Model():
        z = pm.Normal("z", pm.Normal("mean"), pm.HalfNormal("sd"), shape=12)
        pm.Poisson("y", pm.math.exp(z[level]), observed=y)
        coreset = build_coreset(integrate="z", random_seed=1, progressbar=False)
    found = coreset.sample(draws=50, random_seed=1, progressbar=False)
    assert found["posterior"]["z"].shape == (4, 50, 12)


# -- several modes ---------------------------------------------------------------------------------


def test_variables_of_several_modes_visit_each_as_often_as_they_should():
    """Readings that may be shifted by three: two normal modes, whose shares are known."""
    readings, n = np.linspace(-1.0, 4.0, N_LEVELS), 4_000
    shifts, sd, width = [(0.7, 0.0), (0.3, 3.0)], 0.1, 1.5

    def log_density(value, z):
        parts = [np.log(p) - pt.square((value - z - shift) / sd) / 2 for p, shift in shifts]
        return pm.math.logaddexp(*parts)

    with pm.Model() as model:
        z = pm.Normal("z", 0, pm.HalfNormal("width"), shape=N_LEVELS)
        pm.CustomDist("y", z, logp=log_density, observed=readings)
    loglik = LogLikelihood(nodes_at(read(model, "z"), 9, n_modes=2))
    found = drawn(loglik, width=np.full(n, width))[..., 0]
    means = np.stack([readings - shift for _, shift in shifts]) * width**2 / (width**2 + sd**2)
    shares = np.stack(
        [p * norm.pdf(readings - shift, 0, np.hypot(width, sd)) for p, shift in shifts]
    )
    shares /= shares.sum(axis=0)
    own = np.abs(found[:, None] - means).argmin(axis=1)
    errors = np.abs((own == 1).mean(axis=0) - shares[1])
    assert (errors < 4.5 * np.sqrt(shares[1] * (1 - shares[1]) / n) + 1e-3).all()
    scores = (found - np.take_along_axis(means, own, axis=0)) / (width * sd / np.hypot(width, sd))
    assert kstest(scores.ravel(), "norm").pvalue > 1e-3


def test_variables_of_more_modes_than_have_nodes_are_drawn_from_all_of_them():
    """Rows of a Cauchy distribution, far apart: its density has a lobe at each; by a grid."""
    rng, n, n_each = np.random.default_rng(11), 4_000, 8
    y = rng.normal(0.0, 9.0, size=(N_LEVELS, n_each))
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), 6.0, shape=N_LEVELS)
        of_row = np.repeat(np.arange(N_LEVELS), n_each)
        pm.StudentT("y", nu=1, mu=z[of_row], sigma=0.3, observed=y.ravel())
    loglik = LogLikelihood(nodes_at(read(model, "z"), 9, n_modes=4))
    mean = 0.5 * rng.normal(size=n)
    found = drawn(loglik, mean=mean)[..., 0]
    grid = np.linspace(-45.0, 45.0, 18_001)
    for own, rows in zip(found.T, y, strict=True):
        logs = t(1).logpdf((rows[:, None] - grid) / 0.3).sum(axis=0) - np.square(grid / 6) / 2
        tilted = np.exp(logs - logs.max() + grid * np.linspace(-2, 2, 41)[:, None] / 36)
        below = np.cumsum(tilted, axis=1)
        below /= below[:, -1:]
        # The density depends on the mean by a factor exp(z mean / 36).
        low = np.interp(mean, np.linspace(-2, 2, 41), np.arange(41.0))
        at = np.clip(np.searchsorted(grid, own), 0, len(grid) - 1)
        first = np.clip(low.astype(int), 0, 39)
        p = below[first, at] * (first + 1 - low) + below[first + 1, at] * (low - first)
        require_uniform(p[:, None])


@pytest.mark.parametrize(("n_modes", "most_are_reliable"), [(4, True), (1, False)])
def test_two_variables_of_many_modes_reach_them_or_are_not_called_reliable(
    n_modes, most_are_reliable
):
    """Rows of a Cauchy distribution, far apart, along a line for each level; by a grid."""
    rng, n, n_levels, x = np.random.default_rng(11), 4_000, 5, np.linspace(-1.0, 1.0, 8)
    y, of_row = rng.normal(0.0, 9.0, size=(n_levels, len(x))), np.repeat(np.arange(n_levels), 8)
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), 6.0, shape=n_levels)
        slope = pm.Normal("slope", 0.0, 3.0, shape=n_levels)
        mu = z[of_row] + slope[of_row] * np.tile(x, n_levels)
        pm.StudentT("y", nu=1, mu=mu, sigma=0.4, observed=y.ravel())
    loglik = LogLikelihood(nodes_at(read(model, "z", "slope"), 5, n_modes=n_modes))
    conditionals = Conditionals(loglik, Draws({"mean": 0.01 * rng.normal(size=n)}))
    found = conditionals.drawn(loglik.in_memory.all, np.random.default_rng(2))
    level, growth = np.linspace(-24.0, 24.0, 1_201), np.linspace(-12.0, 12.0, 301)
    for own, rows, is_reliable in zip(found.values[..., 0].T, y, found.enough, strict=True):
        logs = -np.square(level[:, None] / 6) / 2 - np.square(growth / 3) / 2
        for one, at in zip(rows, x, strict=True):
            logs -= np.log1p(np.square((one - level[:, None] - growth * at) / 0.4))
        mass = np.exp(logs - logs.max()).sum(axis=1)
        below = (np.cumsum(mass) - mass / 2) / mass.sum()
        error = np.abs(np.searchsorted(np.sort(own), level) / n - below).max()
        assert error < 0.01 + 2.5 / np.sqrt(n) or not is_reliable
    assert (found.enough.sum() >= 3) == most_are_reliable


# -- levels that cannot be drawn -------------------------------------------------------------------


@pytest.fixture
def out_of_reach(monkeypatch):
    """The first two levels of each call are said not to have had enough proposals."""
    known = Conditionals.drawn

    def drawn_in_part(self, rows, rng, show=lambda _: None):
        found = known(self, rows, rng, show)
        found.enough[:2] = False
        return found

    monkeypatch.setattr(Conditionals, "drawn", drawn_in_part)


@pytest.mark.usefixtures("out_of_reach")
def test_levels_that_are_not_reliable_make_draws_doubtful(ordered, tmp_path):
    with warned("['z']", "2 levels (u0, u1)"):
        found = ordered.sample(random_seed=1, progressbar=False)
    found.to_netcdf(tmp_path / "draws.nc")
    with xr.open_datatree(tmp_path / "draws.nc") as read_again:
        for draws in (found, read_again.load()):
            verdict = ordered.check(draws).verdict
            assert (verdict.level, verdict.reason) == (Level.DOUBTFUL, Reason.LEVELS)
            assert "u0, u1" in verdict.text
    weighed = ordered.reweight(found, random_seed=1)["posterior"].attrs
    assert (weighed["level"], weighed["reason"]) == (Level.DOUBTFUL, Reason.LEVELS)


@pytest.mark.usefixtures("out_of_reach")
def test_one_call_says_which_levels_are_not_reliable():
    with warned("u0, u1"):  # twice, with the draws and with the verdict
        found = sample(in_another_order(), integrate="z", random_seed=1, progressbar=False)
    assert (found.attrs["level"], found.attrs["reason"]) == (Level.DOUBTFUL, Reason.LEVELS)


@pytest.mark.usefixtures("out_of_reach")
def test_recovered_levels_that_are_not_reliable_are_named(ordered, idata):
    for summary in (False, True):
        with warned("1 level (u7)"):
            found = ordered.recover(idata, levels=["u7"], summary=summary, random_seed=1)
        assert "u7" in found.attrs["unreliable"]


def test_draws_that_are_reliable_say_nothing_of_levels(ordered, idata):
    assert "unreliable" not in idata["posterior"].attrs
    assert ordered.check(idata).reliable


# -- Stored draws of units' variables, by closed forms of their distributions given shared ones. ---

N_STORED, SHAPE = 20, (4, 500)
STORED_LEVEL = np.repeat(np.arange(N_STORED), 3)
STORED_COUNTS = np.random.default_rng(1).poisson(2.0, size=STORED_LEVEL.size)
STORED_TOTAL = np.bincount(STORED_LEVEL, STORED_COUNTS)
VALUES = np.random.default_rng(2).normal(size=STORED_LEVEL.size)


def dataset(**draws):
    own = {n: (("chain", "draw", *"ij"[: v.ndim - 2]), v) for n, v in draws.items()}
    return xr.Dataset(own)


def gammas(seed=3):
    """Poisson counts with gamma rates: the rates are gamma variables given the data."""
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1.0)
        z = pm.Gamma("z", 2.0, rate, shape=N_STORED)
        pm.Poisson("y", z[STORED_LEVEL], observed=STORED_COUNTS)
    rng = np.random.default_rng(seed)
    rate = rng.gamma(20.0, 1 / 20.0, SHAPE)
    return model, {
        "rate": rate,
        "z": rng.gamma(2.0 + STORED_TOTAL, 1 / (rate[..., None] + 3)),
    }


def normals(seed=3, n_levels=N_STORED):
    """Normal means of levels with normal outcomes, around a shared mean of which they tell."""
    level, y = (np.repeat(np.arange(n_levels), 3), np.resize(VALUES, 3 * n_levels))
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), 0.5, shape=n_levels)
        pm.Normal("y", z[level], 1.0, observed=y)
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=SHAPE)
    middle = (4 * mean[..., None] + np.bincount(level, y)) / 7
    return model, {"mean": mean, "z": middle + rng.normal(size=middle.shape) / np.sqrt(7)}


def pairs_of_each(seed=3):
    """Intercept and slope of each level: normal with a covariance given the data."""
    x = np.tile([0.0, 1.0, 2.0], N_STORED)
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), 1.0, shape=(N_STORED, 2))
        pm.Normal("y", z[STORED_LEVEL, 0] + z[STORED_LEVEL, 1] * x, 1.0, observed=VALUES)
    rng = np.random.default_rng(seed)
    mean, design = rng.normal(size=SHAPE), np.stack([np.ones(3), np.arange(3.0)], axis=1)
    covariance = np.linalg.inv(np.eye(2) + design.T @ design)
    of_data = VALUES.reshape(-1, 3) @ design
    middle = (mean[..., None, None] + of_data) @ covariance
    noise = rng.normal(size=middle.shape) @ np.linalg.cholesky(covariance).T
    return model, {"mean": mean, "z": middle + noise}


def classes(seed=3):
    """Classes of levels with normal outcomes about 0 or 1."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", pm.Beta("p", 2, 2), shape=N_STORED)
        pm.Normal("y", pt.cast(z[STORED_LEVEL], "float64"), 1.0, observed=VALUES)
    rng = np.random.default_rng(seed)
    p = rng.beta(5, 5, SHAPE)
    odds = np.log(p / (1 - p))[..., None] + np.bincount(STORED_LEVEL, VALUES - 0.5)
    return model, {"p": p, "z": (rng.random(odds.shape) < expit(odds)).astype(np.int64)}


def judged(model, draws):
    return judged_units(LogLikelihood(nodes_at(read(model, "z"), 3)), dataset(**draws))


@pytest.mark.parametrize("case", [gammas, normals, pairs_of_each, classes])
@pytest.mark.parametrize("seed", range(3))
def test_exact_draws_are_not_noticeable(case, seed):
    found = judged(*case(seed))
    assert not found.deviation.is_noticeable
    assert found.copies.share == 0.0
    assert found.constant == ""


def of_level(change, which=3):
    def changed(z):
        z = z.copy()
        z[:, :, which] = change(z[:, :, which])
        return z

    return changed


def moved(by):
    return lambda z: z + by * z.std(axis=(0, 1))


def narrower(by):
    return lambda z: z.mean(axis=(0, 1)) + by * (z - z.mean(axis=(0, 1)))


@pytest.mark.parametrize(
    ("case", "change", "where"),
    [
        (gammas, of_level(moved(0.3)), "z[3]"),
        (gammas, lambda z: 1.05 * z, "z"),
        (gammas, lambda z: z[:, :, ::-1], None),
        (normals, of_level(moved(0.3)), "z[3]"),
        (normals, of_level(narrower(0.7)), "z[3]"),
        (normals, narrower(0.9), "z"),
        (normals, moved(0.1), "z"),
        (normals, lambda z: z[:, ::-1], None),  # they do not belong to these shared variables
        (normals, of_level(lambda z: z[:, ::-1]), "z[3]"),
        (pairs_of_each, lambda z: z + np.array([0.0, 0.1]), None),
        (pairs_of_each, lambda z: np.stack([z[..., 0], z[:, ::-1, :, 1]], axis=-1), None),
        (classes, lambda z: 1 - z, None),
        (classes, of_level(lambda z: 1 - z), "z[3]"),
        (classes, of_level(lambda z: 0 * z), "z[3]"),
    ],
)
def test_altered_draws_are_noticeable(case, change, where):
    model, draws = case()
    deviation = judged(model, draws | {"z": change(draws["z"])}).deviation
    assert deviation.is_noticeable
    assert where is None or deviation.where == where


@pytest.mark.parametrize("which", [3, 57])
def test_a_few_draws_show_which_of_many_units_to_compare(monkeypatch, which):
    """Twelve of sixty units are compared at all draws, six of them by what they look like."""
    monkeypatch.setattr(stored_draws, "_EVALUATIONS", 5 * 3 * 6 * 2 * stored_draws._DRAWS)
    monkeypatch.setattr(stored_draws, "_FEWEST_FIRST", 200)
    model, draws = normals(n_levels=60)
    assert not judged(model, draws).deviation.is_noticeable
    altered = of_level(moved(0.4), which)(draws["z"])
    assert judged(model, draws | {"z": altered}).deviation.where == f"z[{which}]"


def test_copies_of_a_unit_are_found():
    model, draws = normals()
    z = draws["z"].copy()
    z[1, :, 5] = z[0, :, 5]
    share, where = judged(model, draws | {"z": z}).copies
    assert share == pytest.approx(0.25, abs=0.01)
    assert where == "z[5]"


def test_a_unit_that_does_not_move_is_found():
    model, draws = normals()
    assert judged(model, draws | {"z": of_level(lambda z: 0 * z)(draws["z"])}).constant == "z[3]"


def test_draws_without_all_levels_are_not_compared():
    model, draws = normals()
    loglik = LogLikelihood(nodes_at(read(model, "z"), 3))
    assert judged_units(loglik, dataset(mean=draws["mean"])) == StoredUnits()
    assert (
        judged_units(loglik, dataset(mean=draws["mean"], z=draws["z"][:, :, :2])) == StoredUnits()
    )


def test_impossible_draws_are_off_by_infinitely_many_standard_errors():
    model, draws = gammas()
    z = of_level(lambda z: 0 * z - 1.0 - draws["rate"])(draws["z"])
    found = judged(model, draws | {"z": z}).deviation
    assert found.size == np.inf
    assert found.where == "z[3]"


def test_a_single_chain_is_cut_into_two():
    model, draws = normals()
    first = {name: own[:1, :499] for name, own in draws.items()}
    assert not judged(model, first).deviation.is_noticeable
    assert judged(model, first | {"z": moved(0.3)(first["z"])}).deviation.is_noticeable


def test_a_check_covers_the_variables_of_units():
    model, _ = normals(n_levels=60)
    coreset = build_coreset(model, integrate="z", method="exact", random_seed=1, progressbar=False)
    rng, means = np.random.default_rng(4), np.resize(VALUES, (60, 3)).mean(axis=1)
    precision = 1 + 60 / (1 / 4 + 1 / 3)  # of the shared mean given all levels
    center = 60 * means.mean() / (1 / 4 + 1 / 3) / precision
    mean = center + rng.normal(size=(4, 500)) / np.sqrt(precision)
    z = (4 * mean[..., None] + 3 * means) / 7 + rng.normal(size=(4, 500, 60)) / np.sqrt(7)

    def altered(z):
        return coreset.check(xr.DataTree.from_dict({"posterior": dataset(mean=mean, z=z)})).verdict

    assert altered(z).level.reliable
    verdict = altered(of_level(moved(0.5))(z))
    assert verdict.reason == "foreign"
    assert "along z[3]" in verdict.text
    verdict = altered(of_level(lambda z: np.concatenate([z[:1], z[:1], z[2:]]))(z))
    assert verdict.reason == "copied"
    assert "of the draws of z[3] are copies" in verdict.text
    assert altered(of_level(lambda z: 0 * z)(z)).reason == "constant"
    with refused(InvalidDataError, "NaN", topic="draws"):
        altered(z * np.nan)


# -- Deterministics of recovered variables ---------------------------------------------------------


def of_effects() -> pm.Model:
    """Return a model with deterministics of effects with dims, of all of them, and of a scale."""
    rng = np.random.default_rng(5)
    level = np.repeat(np.arange(20), 12)
    mean = rng.normal(size=20)[level]
    with pm.Model(coords={"level": range(20)}) as model:
        shift, scale = pm.Normal("shift"), pm.HalfNormal("scale")
        z = pm.Normal("z", dims="level")
        effect = pm.Deterministic("effect", shift + scale * z, dims="level")
        pm.Deterministic("ratio", effect[0] / scale)
        pm.Deterministic("total", pm.math.exp(z).sum())
        pm.Deterministic("variance", scale**2)
        y = rng.binomial(1, expit(mean))
        pm.Bernoulli("y", logit_p=effect[level], observed=y)
    return model


@pytest.mark.parametrize("by", ["a coreset", "recover", "one call"])
def test_deterministics_are_those_of_pymc_at_recovered_variables(by):
    model, options = of_effects(), {"random_seed": 1, "progressbar": False}
    if by == "one call":
        found = sample(model, **options)["posterior"].to_dataset()
    else:
        coreset = build_coreset(model, integrate="z", random_seed=1, progressbar=False)
        idata = coreset.sample(**options)
        found = idata["posterior"].to_dataset()
        if by == "recover":
            own = coreset.recover(idata, random_seed=2)
            assert {"z", "effect", "ratio", "total"} == set(own.data_vars)
            found = found.drop_vars(list(own.data_vars)).merge(own)
    names = [variable.name for variable in model.deterministics]
    free = found[[variable.name for variable in model.free_RVs]]
    expected = pm.compute_deterministics(free, model=model, progressbar=False)
    xr.testing.assert_allclose(found[names], expected[names])
