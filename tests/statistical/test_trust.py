"""Posteriors whose tails or modes a certificate once overlooked: what is said, and what is true."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats
from scipy.special import expit

from pymc_coresets import ControlVariates, Level, Reason, build_coreset, sample
from pymc_coresets.reading.draws import Draws
from tests.modes import PLAIN_MODE
from tests.refusals import warned

pytestmark = pytest.mark.compiled

QUIET = {"progressbar": False, "random_seed": 1}
N = 2_000


def regression(rng, n_columns=26):
    """Columns, and a linear predictor of them."""
    x = 0.3 * rng.normal(size=(N, n_columns))
    return x, x @ rng.normal(0, 0.3, n_columns)


def nearly_poisson():
    """Counts whose dispersion the data bound on one side: its tail is that of the prior."""
    rng = np.random.default_rng(1)
    x, eta = regression(rng)
    with pm.Model() as model:
        mean = pm.math.exp(pm.Normal("level", 0, 2) + x @ pm.Normal("b", 0, 1, shape=26))
        alpha = pm.HalfCauchy("alpha", 5)
        pm.NegativeBinomial("y", mu=mean, alpha=alpha, observed=rng.poisson(np.exp(0.5 + eta)))
    return model


def beside_nothing(kind):
    """A logistic regression, and a variable that its data say nothing of."""
    rng = np.random.default_rng(2)
    x, eta = regression(rng)
    with pm.Model() as model:
        if kind == "cauchy":
            pm.Cauchy("u", 0, 1)
        elif kind == "funnel":
            pm.Normal("u", 0, pm.math.exp(pm.Normal("log_sd", 0, 1.5)))
        else:
            pm.Mixture("u", [0.5, 0.5], pm.Normal.dist([-3.0, 3.0], 0.5))
        logit_p = x @ pm.Normal("b", 0, 1, shape=26)
        pm.Bernoulli("y", logit_p=logit_p, observed=rng.binomial(1, expit(eta)))
    return model


def two_clusters():
    """A robust hierarchy, of which one group has answers of two kinds."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(26), 60)
    y = rng.normal(0, 0.3, 26)[group] + 0.1 * rng.standard_t(2, size=len(group))
    half = 1 + 0.1 * rng.standard_t(2, size=30)
    y[:60] = np.concatenate([half, -half])
    with pm.Model() as model:
        t = pm.Normal("t", 0, 1, shape=26)
        pm.StudentT("y", nu=1.5, mu=t[group], sigma=pm.HalfNormal("s", 1), observed=y)
    return model


def share_below(draws, number):
    """The share of draws below a number, and its standard error by their effective size."""
    below = (np.asarray(draws) < number).astype(float)
    n = below.size / 2  # chains of independence Metropolis-Hastings are worth more than that
    return below.mean(), np.sqrt(max(below.var(), 1 / n) / n)


@pytest.fixture(scope="module")
def counts():
    model = nearly_poisson()
    return model, build_coreset(model, **QUIET)


@pytest.mark.slow  # by itself, a build whose quadratic is not reliable goes on to rows alone
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
def test_a_tail_that_the_quadratic_cuts_off_is_no_longer_reliable():
    with warned("alpha", "reaches further"):
        coreset = build_coreset(nearly_poisson(), method="control_variates", **QUIET)
    certificate = coreset.certificate
    assert certificate.probes.where == "alpha"
    assert certificate.probes.outside > 2 * 0.01  # from four standard deviations on
    assert not certificate.reliable
    assert certificate.verdict.reason is Reason.TAIL


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
def test_few_builds_follow_a_tail_that_the_quadratic_cuts_off():
    """Of five, whose rows follow it more or less; those of one may follow it well enough."""
    model = nearly_poisson()
    builds = (
        build_coreset(model, method="control_variates", **QUIET | {"random_seed": seed})
        for seed in range(1, 6)
    )
    found = [coreset.certificate for coreset in builds]
    assert {certificate.probes.where for certificate in found} == {"alpha"}
    # from four standard deviations on
    assert np.mean([certificate.probes.outside for certificate in found]) > 2 * 0.01
    doubtful = [certificate for certificate in found if not certificate.reliable]
    assert len(doubtful) >= 4
    assert sum(certificate.verdict.reason is Reason.TAIL for certificate in doubtful) >= 4


def test_rows_alone_follow_that_tail(counts):
    """PyMC's own log-densities of both models agree far along it."""
    model, coreset = counts
    assert coreset.method == "riemannian_pursuit"
    assert coreset.certificate.reliable
    full, own = (m.compile_logp(mode=PLAIN_MODE) for m in (model, coreset.model))
    draws = coreset.certificate and coreset.proposal.draws.values
    middle = {"level": draws["level"].mean(axis=0), "b": draws["b"].mean(axis=0)}
    points = [middle | {"alpha_log__": np.log(a)} for a in (100.0, 300.0, 1e3, 1e4)]
    differences = np.array([float(full(point) - own(point)) for point in points])
    assert np.ptp(differences) < 0.1


@pytest.mark.parametrize(
    "kind", ["cauchy", *(pytest.param(k, marks=pytest.mark.slow) for k in ("funnel", "two modes"))]
)
def test_what_the_data_say_nothing_of_has_the_tails_of_its_prior(kind):
    coreset = build_coreset(beside_nothing(kind), **QUIET) if kind != "two modes" else None
    if coreset is None:
        with warned("2 modes"):
            coreset = build_coreset(beside_nothing(kind), **QUIET)
    idata = coreset.sample(**QUIET)
    check = coreset.check(idata)
    u = idata["posterior"]["u"]
    if kind == "cauchy":
        levels = {q: stats.cauchy.ppf(q) for q in (0.01, 0.05, 0.5, 0.95, 0.99)}
    elif kind == "funnel":  # by the scale mixture
        z = np.exp(1.5 * stats.norm.ppf((np.arange(4_000) + 0.5) / 4_000))
        grid = np.linspace(-60, 60, 4_001)
        cdf = np.array([stats.norm.cdf(x / z).mean() for x in grid])
        levels = {q: float(np.interp(q, cdf, grid)) for q in (0.01, 0.05, 0.5, 0.95, 0.99)}
    else:
        levels = {0.5: 0.0, 0.25: -3.0, 0.75: 3.0}
    for level, number in levels.items():
        share, error = share_below(u, number)
        assert abs(share - level) < 5 * error, level
    assert check.reliable


def test_two_clusters_of_answers_are_two_modes():
    with warned("2 modes"):
        coreset = build_coreset(two_clusters(), **QUIET)
    idata = coreset.sample(**QUIET)
    share, error = share_below(idata["posterior"]["t"][..., 0], 0.0)
    assert abs(share - 0.5) < 5 * error
    assert coreset.check(idata).reliable


@pytest.fixture(scope="module")
def degrees():
    """Degrees of freedom that normal data do not bound above, with its exact quantiles."""
    y = np.random.default_rng(4).normal(size=N)
    with pm.Model() as model:
        nu, s = pm.HalfCauchy("nu", 10), pm.HalfNormal("s", 2)
        pm.StudentT("y", nu=nu, mu=pm.Normal("mu", 0, 5), sigma=s, observed=y)
    return y, build_coreset(model, **QUIET)


def test_the_tail_of_the_degrees_of_freedom_is_exact(degrees):
    """By Laplace's approximation of location and scale given them, which is exact to 1e-3."""
    y, coreset = degrees
    idata = coreset.sample(**QUIET)
    assert coreset.check(idata).reliable
    log_nu, log_s = np.linspace(1.0, 16.0, 151), np.linspace(-0.25, 0.15, 41)
    mu = y.mean()
    squares = np.square(y - mu)
    logp = np.empty((len(log_nu), len(log_s)))
    for i, nu in enumerate(np.exp(log_nu)):
        for j, s in enumerate(np.exp(log_s)):
            z = squares / s**2
            own = N * (stats.t.logpdf(0, nu) - np.log(s)) - (nu + 1) / 2 * np.log1p(z / nu).sum()
            # Fisher's information of the location, whose posterior is integrated out.
            curvature = ((nu + 1) * (nu - z) / np.square(nu + z)).sum() / s**2
            prior = stats.halfcauchy.logpdf(nu, scale=10) + np.log(nu)
            prior += stats.halfnorm.logpdf(s, scale=2) + np.log(s)
            logp[i, j] = own + prior - np.log(max(curvature, 1e-9)) / 2
    cdf = np.cumsum(np.exp(logp - logp.max()).sum(axis=1))
    for level in (0.05, 0.5, 0.95, 0.99):
        number = np.exp(np.interp(level, cdf / cdf[-1], log_nu + 0.05))
        share, error = share_below(idata["posterior"]["nu"], number)
        assert abs(share - level) < 5 * error + 0.01, level


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x - x + x.mean(), Reason.CONSTANT),
        (lambda x: x.mean() + 0.3 * (x - x.mean()), Reason.FOREIGN),
        (lambda x: x + 0.5 * x.std(), Reason.FOREIGN),
        (lambda x: x + 0.2 * x.std(), Reason.FOREIGN),
    ],
)
def test_draws_from_elsewhere_are_told_from_those_of_the_coreset(degrees, change, reason):
    coreset = degrees[1]
    idata = coreset.sample(**QUIET)
    posterior = idata["posterior"].to_dataset()
    changed = posterior.assign(mu=change(posterior["mu"]), s=np.exp(change(np.log(posterior["s"]))))
    check = coreset.check(xr.DataTree.from_dict({"posterior": changed}))
    assert not check.reliable
    assert check.verdict.reason is reason


def test_one_chain_four_times_is_not_four_chains(degrees):
    coreset = degrees[1]
    posterior = coreset.sample(**QUIET)["posterior"].to_dataset()
    same = posterior.isel(chain=[0, 0, 0, 0]).assign_coords(chain=posterior["chain"])
    check = coreset.check(xr.DataTree.from_dict({"posterior": same}))
    assert check.rhat < 1.01
    assert not check.reliable
    assert check.verdict.reason is Reason.COPIED


@pytest.mark.slow
def test_draws_of_nuts_are_those_of_the_coreset(degrees):
    coreset = degrees[1]
    idata = pm.sample(
        500, tune=500, chains=4, cores=1, model=coreset.model, nuts_sampler="pymc", **QUIET
    )
    probes = coreset.check(idata).probes
    assert probes.misfit < probes.misfit_limit < 6
    assert not probes.constant


# -- Two modes, of about 80 and 20 % of the mass by a grid. ---------------------------------------


def signed(n_columns):
    """Return a regression whose level is a square, and the mass of its negative root by a grid."""
    rng, grid = np.random.default_rng(4), np.linspace(-3, 3, 60_001)
    x = rng.normal(size=(N, n_columns))
    y = 1.44 + x @ rng.normal(0, 0.3, n_columns) + rng.normal(size=N)
    prior = 0.55
    with pm.Model() as model:
        mean = pm.Normal("root", prior, 1) ** 2
        if n_columns:
            mean += x @ pm.Normal("b", shape=n_columns)
        pm.Normal("y", mean, 1, observed=y)
    # Given the level, the slopes are integrated out in closed form.
    known = np.linalg.inv(np.eye(n_columns) + x.T @ x)
    residuals = [y - level for level in range(3)]
    at = [-(r @ r - (x.T @ r) @ known @ (x.T @ r)) / 2 for r in residuals]
    density = np.polyval(np.polyfit(range(3), at, 2), grid**2) - (grid - prior) ** 2 / 2
    p = np.exp(density - density.max())
    return model, (p * (grid < 0)).sum() / p.sum()


def product():
    """Return a regression on a product of two slopes, and the mass where they are negative."""
    rng, grid = np.random.default_rng(6), np.linspace(-5, 5, 1_001)
    x = rng.normal(size=3_000)
    y = rng.binomial(1, expit(0.8 * x))
    with pm.Model() as model:
        slope = pm.Normal("root", 0.35, 0.9) * pm.Normal("other", 0.3, 0.8)
        pm.Bernoulli("y", logit_p=slope * x, observed=y)
    slopes = np.linspace(0.4, 1.2, 161)
    eta = slopes[:, None] * x
    of_rows = (y * eta - np.logaddexp(0, eta)).sum(axis=1)
    a, b = np.meshgrid(grid, grid)
    density = np.interp(a * b, slopes, of_rows, left=-1e9, right=-1e9)
    density += stats.norm.logpdf(a, 0.35, 0.9) + stats.norm.logpdf(b, 0.3, 0.8)
    p = np.exp(density - density.max())
    return model, (p * (a < 0)).sum() / p.sum()


@pytest.mark.filterwarnings("ignore:The posterior has 2 modes:pymc_coresets.CoresetWarning")
@pytest.mark.filterwarnings("ignore:Not to be used:pymc_coresets.CoresetWarning")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: signed(0), id="a square"),
        pytest.param(lambda: signed(30), id="a square beside slopes"),
        pytest.param(product, id="a product", marks=pytest.mark.slow),
    ],
)
def test_two_modes_have_their_masses_or_the_draws_are_refused(make):
    model, exact = make()
    assert 0.1 < exact < 0.3
    idata = sample(model, **QUIET)
    if idata.attrs["level"] == Level.UNUSABLE:
        assert idata.attrs["reason"] == Reason.SEPARATE_MODES
        return
    share, error = share_below(idata["posterior"]["root"], 0.0)
    assert abs(share - exact) < 5 * error


@pytest.mark.filterwarnings("ignore:The posterior has 2 modes:pymc_coresets.CoresetWarning")
@pytest.mark.parametrize(
    ("visits", "method"), [(True, "control_variates"), (False, "riemannian_pursuit")]
)
def test_a_reliable_quadratic_with_several_modes_is_kept(visits, method, monkeypatch):
    """As if its draws had visited both, and as they are: rows alone are reliable in either case."""
    usual = ControlVariates.run

    def run(self, job):
        found = usual(self, job)
        root = found.draws.values["root"].copy()
        root[::5] *= -1
        return replace(found, draws=Draws({**found.draws.values, "root": root}))

    if visits:
        monkeypatch.setattr(ControlVariates, "run", run)
    coreset = build_coreset(signed(30)[0], **QUIET)
    assert coreset.method == method
    assert coreset.certificate.reliable
    assert len(coreset.modes) == 2
