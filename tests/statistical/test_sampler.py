"""Draws of coresets: from their posteriors, and those that a build has weighed."""

import json
import re
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from threading import Timer

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from pymc.distributions.transforms import ordered
from pymc.exceptions import SamplingError as PyMCSamplingError
from pytensor.compile.maker import FunctionMaker
from scipy import sparse
from scipy.integrate import cumulative_trapezoid
from scipy.special import expit, logsumexp
from scipy.stats import gamma, kstest, norm
from scipy.stats import t as student

from pymc_coresets import Coreset, InvalidDataError, SamplingError, build_coreset
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.glm.control_variates.hierarchy import ConditionalGaussian
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, factor_of
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.normal import Mixture, Normal, Tails, heavy_tailed
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps import nuts
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals, Table
from pymc_coresets.storage import write_netcdf
from pymc_coresets.weighted_rows import restored_proposal, stored_proposal
from tests.derived import likelihood_of, sampler_of
from tests.refusals import refused, warned

# -- Draws of changing coresets: right by closed forms, and compiled once. -------------------------

N, D = 300, 3
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, D))
Y = X @ [1.0, -1.0, 0.5] + RNG.normal(size=N)
CORESETS = [  # positions and weights
    (np.arange(0, 300, 3), np.full(100, 3.0)),
    (np.arange(20), np.linspace(1, 20, 20)),
    (np.arange(150, 155), np.full(5, 60.0)),
]


@pytest.fixture(scope="module")
def loglik():
    with pm.Model(coords={"obs": np.arange(N)}) as model:
        # Nutpie compiles a sum in a tenth of the time that a product of matrices takes.
        mu = pm.Deterministic("mu", (X * pm.Normal("beta", shape=D)).sum(axis=1), dims="obs")
        pm.Normal("y", mu, 1.0, observed=Y, dims="obs")
    return likelihood_of(model)


def posterior(indices, weights):
    x = X[indices]
    covariance = np.linalg.inv(np.eye(D) + x.T @ (weights[:, None] * x))
    return covariance @ (x.T @ (weights * Y[indices])), covariance


def assert_right(draws, indices, weights):
    """Five standard errors of independent draws; NUTS draws of a normal are about as good."""
    beta = draws.values["beta"]
    mean, covariance = posterior(indices, weights)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (beta - mean).T)
    assert np.abs(whitened.mean(axis=1)).max() < 5 / np.sqrt(len(beta))
    assert np.abs(np.cov(whitened) - np.eye(D)).max() < 5 * np.sqrt(2 / len(beta))


def draw(sampler, indices, weights, n_draws, *, seed=1):
    """Draw from the posterior of the rows at the given positions."""
    rows = sampler.loglikelihood.source.take(indices)
    return sampler.draw(rows, weights, n_draws, rng=np.random.default_rng(seed))


@pytest.fixture(scope="module")
def by_nuts(loglik):
    """A sampler, kept from test to test as a construction keeps it."""
    return CoresetSampler(loglik, kind="nuts")


@pytest.fixture(params=["auto", "laplace", "nuts"])
def sampler(request, loglik, by_nuts):
    return by_nuts if request.param == "nuts" else CoresetSampler(loglik, kind=request.param)


def test_draws_of_every_coreset_are_right(sampler):
    for i, coreset in enumerate([*CORESETS, *CORESETS]):
        assert_right(draw(sampler, *coreset, 2_000, seed=i), *coreset)
    assert sampler.counts["n_failed_starts"] == 0


def test_nothing_is_compiled_after_the_first_run(by_nuts, fails):
    for _ in range(2):  # Laplace's draws, and the first run of NUTS
        draw(by_nuts, *CORESETS[0], 100)
    fails(FunctionMaker, "create")
    for coreset in CORESETS:
        draw(by_nuts, *coreset, 100)


def regression(rng):
    x = rng.normal(size=(2_000, 3))
    log_odds = pm.Normal("intercept", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=3)
    pm.Bernoulli("y", logit_p=log_odds, observed=rng.random(2_000) < 0.4)


def classes(rng):
    """Users of three classes: the rows of each are a unit."""
    kind, user = rng.choice(3, 400, p=[0.5, 0.3, 0.2]), np.repeat(np.arange(400), 4)
    own = pm.Categorical("own", p=pm.Dirichlet("shares", np.ones(3)), shape=400)
    mean, sd = pm.Normal("mean", [-3, 0, 3], 0.5, shape=3), pm.HalfNormal("sd", 1)
    y = rng.normal(np.array([-3.0, 0.0, 3.0])[kind][user], 1.0)
    pm.Normal("y", mean[own[user]], sd, observed=y)


def items(rng):
    """Persons who answer items: the answers of each are a unit."""
    person, item = (place.ravel() for place in np.indices((400, 4)))
    log_odds = rng.normal(size=400)[person] - np.linspace(-1, 1, 4)[item]
    ability = pm.Normal("ability", shape=400)
    slope, place = pm.LogNormal("slope", 0, 0.2, shape=4), pm.Normal("place", 0, 2, shape=4)
    y = rng.binomial(1, 1 / (1 + np.exp(-log_odds)))
    pm.Bernoulli("y", logit_p=slope[item] * (ability[person] - place[item]), observed=y)


@pytest.mark.parametrize(
    ("write", "most"),
    [(regression, 6), pytest.param(classes, 9, marks=pytest.mark.slow), (items, 16)],
)
def test_a_whole_analysis_makes_few_functions(write, most, calls):
    made = calls(FunctionMaker, "__init__")
    with pm.Model() as model:
        write(np.random.default_rng(1))
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    coreset.check(coreset.sample(draws=200, random_seed=1, progressbar=False, quiet=True))
    assert len(made) <= most


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")  # several modes
def test_rewrites_of_many_answers_of_classes_end():
    """PyTensor refuses, as in all tests, where two rewrites undo each other again and again."""
    with pm.Model() as model:
        own = pm.Categorical("own", p=pm.Dirichlet("shares", np.ones(3)), shape=400)
        first = pm.Normal("first", 0, 1.5, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
        odds = pt.concatenate([first[:, None], pm.Normal("others", shape=(3, 7))], axis=1)
        agree = np.repeat([[0.1], [0.4], [0.9]], 8, axis=1)
        y = np.random.default_rng(1).binomial(1, np.repeat(agree, [150, 150, 100], axis=0))
        pm.Bernoulli("y", logit_p=odds[own], observed=y)
    assert build_coreset(model, random_seed=1, progressbar=False).weights.sum() == 400


@pytest.mark.parametrize(("n_rows", "is_small"), [(200_000, True), (2_000_000, False)])
def test_loops_of_searches_are_compiled_where_they_evaluate_many_rows(n_rows, is_small):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(n_rows))
    functions = likelihood_of(model).functions
    assert functions.few_slopes == is_small
    assert (functions.gradients is not functions.as_loops.gradients) == is_small


def test_a_call_of_nuts_takes_less_than_half_a_second(by_nuts):
    seconds = []
    for i in range(7):
        start = time.perf_counter()
        draw(by_nuts, *CORESETS[0], 200, seed=i)
        seconds.append(time.perf_counter() - start)
    assert min(seconds[2:]) < 0.5


def test_a_failed_warm_start_is_counted_and_begun_anew(loglik):
    sampler = CoresetSampler(loglik, kind="nuts")
    for i in range(2):
        draw(sampler, *CORESETS[0], 100, seed=i)
    last = sampler._nuts.last
    sampler._nuts.last = replace(
        last, positions=np.full_like(last.positions, np.nan), n_divergences=0
    )
    assert_right(draw(sampler, *CORESETS[1], 1_000), *CORESETS[1])
    assert sampler.counts["n_failed_starts"] == 1


def test_where_nuts_cannot_start_the_variable_is_named_once():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Potential("limit", pm.math.log(mu - 50.0))
        pm.Normal("y", mu, observed=np.zeros(20))
    sampler = sampler_of(model, kind="nuts")
    with refused(SamplingError, "initial point", "'limit'", "nan") as caught:
        draw(sampler, np.arange(3), np.ones(3), 100)
    assert not re.search(r"SamplerWarning|Try model\.debug|\n", caught.value.message)


def test_the_initial_point_is_not_blamed_where_nuts_begins_at_a_known_mode(loglik, fails):
    start = loglik.observations.space.start
    sampler = CoresetSampler(loglik, kind="nuts", starts=[start])
    fails(nuts, "_chain", PyMCSamplingError("Bad initial energy"))
    with refused(SamplingError, "NUTS", "coreset", "Bad initial energy."):
        draw(sampler, *CORESETS[0], 100)


def test_of_another_samplers_failure_the_backtrace_is_left_out():
    error = RuntimeError(
        "All points failed\n\nCaused by:\n  code 3\n\nStack backtrace:\n 0: <unknown>"
    )
    assert nuts.text_of(error) == "All points failed Caused by: code 3"


def test_discrete_variables_are_named():
    with pm.Model() as model:
        flip = pm.Bernoulli("flip", 0.5)
        pm.Normal("y", flip, observed=np.zeros(20))
    sampler = sampler_of(model)
    with refused(SamplingError, "'flip'"):
        draw(sampler, np.arange(3), np.ones(3), 100)


@pytest.fixture(scope="module")
def hierarchy():
    rng = np.random.default_rng(11)
    group, counts = rng.integers(0, 5, N), rng.poisson(2.0, N)
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        effect = pm.Deterministic("effect", sd * pm.Normal("z", shape=5))
        pm.Poisson("y", pm.math.exp(effect[group]), observed=counts)
    chosen, weights = CORESETS[0]
    totals = [np.bincount(group[chosen], w, 5) for w in (weights, weights * counts[chosen])]
    return likelihood_of(model), partial(cdf_of_scale, *totals)


def cdf_of_scale(exposure, events, x):
    """Of the scale given all groups: each group's effect, known to 0.1, is summed over a grid."""
    sd, effect = np.linspace(1e-2, 5, 500), np.linspace(-4, 4, 2_001)
    prior = norm.logpdf(effect, scale=sd[:, None])
    groups = zip(events, exposure, strict=True)
    inner = sum(logsumexp(prior + n * effect - e * np.exp(effect), axis=1) for n, e in groups)
    log_density = inner - sd**2 / 2
    density = np.exp(log_density - log_density.max())
    below = cumulative_trapezoid(density, sd, initial=0)
    return np.interp(x, sd, below / below[-1])


@pytest.mark.parametrize("kind", ["auto", pytest.param("nuts", marks=pytest.mark.slow)])
def test_draws_of_a_hierarchy_are_those_of_its_posterior(hierarchy, kind):
    loglik, cdf = hierarchy
    sampler = CoresetSampler(loglik, kind=kind)
    for i in (1, 2):  # from a cold start, and from a warm one
        draws = draw(sampler, *CORESETS[0], 1_000, seed=i)
    # Every tenth draw: what remains of the chain's autocorrelation is negligible.
    assert kstest(draws.values["sd"][::10], cdf).pvalue > 1e-5


def test_laplace_draws_are_corrected_for_skewness():
    """A rate with few events: its logarithm is skewed, by a gamma distribution in closed form."""
    y = np.array([1, 0, 2, 1])
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0), observed=y)
    loglik = likelihood_of(model)
    sampler = CoresetSampler(loglik, kind="auto")
    draws = draw(sampler, np.arange(4), np.ones(4), 2_000)
    assert sampler.counts["n_corrected_laplace"] == 1
    # Half of the draws are sure to count.
    exact = gamma(2 + y.sum(), scale=1 / (1 + len(y)))
    assert draws.values["rate"].mean() == pytest.approx(
        exact.mean(), abs=5 * exact.std() / 1_000**0.5
    )
    assert kstest(draws.values["rate"][:500], exact.cdf).pvalue > 1e-5
    around = laplace(sampler.posterior(loglik.all_rows, np.ones(4)).density, sampler.start)
    raw, _ = around.draw(2_000, rng=np.random.default_rng(1))
    assert kstest(np.exp(raw[:, 0]), exact.cdf).pvalue < 1e-4


def test_heavy_tails_are_drawn_as_heavy_as_they_are():
    """Five Cauchy variables, of which the data say next to nothing."""
    with pm.Model() as model:
        mu = pm.StudentT("mu", nu=1, shape=5)
        pm.Normal("y", mu.sum(), 1e4, observed=np.zeros(20))
    sampler = sampler_of(model)
    draws = draw(sampler, np.arange(3), np.ones(3), 2_000).values["mu"]
    for own in draws.T:
        assert kstest(own[::4], student(1).cdf).pvalue > 1e-5
    far = np.abs(draws) > student(1).ppf(0.995)
    assert far.mean() == pytest.approx(0.01, abs=5 * 0.1 / 2_000**0.5)


def test_ctrl_c_is_not_taken_for_a_short_run(by_nuts, ctrl_c):
    sampler = by_nuts
    for i in range(2):
        draw(sampler, *CORESETS[0], 100, seed=i)
    timer = Timer(0.5, ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        draw(sampler, *CORESETS[0], 300_000)
    timer.join()
    assert sampler.counts["n_failed_starts"] == 0
    assert_right(draw(sampler, *CORESETS[1], 1_000), *CORESETS[1])


def test_draws_beyond_the_likelihood_are_counted():
    with pm.Model() as model:
        pm.Uniform("y", 0, pm.Exponential("end"), observed=np.linspace(0.1, 2.0, 20))
    loglik = likelihood_of(model)
    sampler = CoresetSampler(loglik)
    draws = Draws({"end": np.array([1.5, 2.5, 3.0])})
    total = sampler.sums(draws).total
    assert total[2] - total[1] == pytest.approx(-20 * np.log(3.0 / 2.5))
    assert total[0] == -np.inf
    assert sampler.counts["n_not_finite"] == 1


def test_a_look_is_at_all_rows(loglik):
    sampler = CoresetSampler(loglik, kind="laplace")
    draws = draw(sampler, *CORESETS[0], 50)
    values = sampler.loglik(draws, loglik.source.all)
    sums = sampler.sums(draws, n_candidates=N)
    np.testing.assert_allclose(sums.total, (values - values.mean(axis=1)[:, None]).sum(axis=0))
    assert sums.norm_total == pytest.approx(values.std(axis=1).sum())
    assert not len(sampler.sums(draws).candidates)  # unless they are asked for
    np.testing.assert_array_equal(sums.candidates.positions, np.arange(N))


def test_the_mode_of_a_coreset_is_looked_for_near_that_of_all_rows():
    """Two rows with heavy tails have two modes, and the model's start is next to the other one."""
    y = np.append(np.random.default_rng(1).normal(20, 1, 400), 0.0)
    with pm.Model() as model:
        pm.Cauchy("y", pm.Normal("mu", 0, 100), 1.0, observed=y)
    loglik = likelihood_of(model)
    sampler = CoresetSampler(loglik, kind="laplace")
    rows, rng = loglik.source.take(np.array([0, 400])), np.random.default_rng(1)

    def mean():
        return sampler.draw(rows, np.full(2, 200.0), 100, rng=rng).values["mu"].mean()

    assert abs(mean()) < 1
    assert proposal(sampler, 100, start_size=200, rng=rng) is not None
    assert abs(mean() - y[0]) < 1


@pytest.mark.parametrize("nowhere", [0.0, 0.9999])
def test_a_gradient_that_is_not_finite_ends_no_search(nowhere):
    """From 100, where the curvature is small, L-BFGS takes steps to where there is no density."""

    def slopes(x):
        values = 100 * (np.log(np.abs(x[:, 0])) - x[:, 0])
        return values, np.where(x > nowhere, 100 / x - 100, np.nan)

    density, start = Density(slopes), np.full(1, 100.0)
    if nowhere:  # the curvature at the mode cannot be known
        with pytest.raises(SamplingError):
            laplace(density, start)
    else:
        assert_allclose(laplace(density, start).location, 1, rtol=1e-5)


@pytest.mark.parametrize("beyond", [-np.inf, np.nan])
@pytest.mark.parametrize("way", ["draw", "rough_draw"])
def test_points_of_density_zero_have_no_weight(beyond, way):
    """The normal distribution ends at 2.2 standard deviations."""
    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Potential("y", pm.math.switch(mu < 2.2, -((mu - np.zeros(4)) ** 2) / 8, beyond))
    sampler = CoresetSampler(likelihood_of(model, observed="y"))
    rows, weights = sampler.loglikelihood.all_rows, np.ones(4)
    rng = np.random.default_rng(1)
    draws = getattr(sampler, way)(rows, weights, 2_000, rng=rng)
    values = draws.values["mu"]
    assert values.max() < 2.2
    assert abs(values.mean() + norm.pdf(2.2) / norm.cdf(2.2)) < 5 * values.std() / np.sqrt(2_000)
    assert sampler.counts["n_corrected_laplace"] == 1


# -- Draws that a build has weighed, after a file and in models whose variables come otherwise. ----

needs_files = pytest.mark.skipif(find_spec("h5netcdf") is None, reason="needs the extra 'netcdf'")

N_LATE, GROUPS = 3_000, 40
_rng = np.random.default_rng(5)
GROUP, DESIGN = _rng.integers(0, GROUPS, N_LATE), _rng.normal(size=(N_LATE, 3))
EFFECT = _rng.normal(0, 0.15, GROUPS)[GROUP]
LATE = _rng.binomial(1, expit(EFFECT + DESIGN @ [0.3, -0.2, 0.1] - 0.5))
MANY, REAL = _rng.normal(size=(N_LATE, 28)), _rng.normal(5 * EFFECT, 1.5)
SHORT = {"draws": 30, "chains": 1, "random_seed": 1, "progressbar": False, "quiet": True}
VARIABLES = {
    "base": lambda sd: pm.Normal("base", 0, 2 * sd),
    "scale": lambda _: pm.HalfNormal("scale"),
    "slopes": lambda sd: pm.Normal("slopes", 0, sd, shape=3),
    "many": lambda sd: pm.Normal("many", 0, sd, shape=28),
    "effects": lambda _: pm.Normal("effects", shape=GROUPS),
}


def in_order(names, sd):
    return {name: VARIABLES[name](sd) for name in names}


def scaled(names=("base", "scale", "slopes"), sd=1.0):
    with pm.Model() as model:
        own = in_order(names, sd)
        eta = own["base"] + DESIGN @ own["slopes"]
        pm.Normal("y", eta, 0.5 + own["scale"], observed=REAL)
    return model


def of_many(names=("base", "many"), sd=1.0):
    with pm.Model() as model:
        own = in_order(names, sd)
        pm.Bernoulli("y", logit_p=own["base"] + MANY @ own["many"], observed=LATE)
    return model


def of_groups(names=("base", "scale", "effects", "slopes"), sd=1.0):
    with pm.Model() as model:
        own = in_order(names, sd)
        effects = own["scale"] * own["effects"]
        eta = own["base"] + DESIGN @ own["slopes"] + effects[GROUP]
        pm.Bernoulli("y", logit_p=eta, observed=LATE)
    return model


KINDS = {
    Mixture: (scaled, ("slopes", "scale", "base"), "auto"),
    Normal: (of_many, ("many", "base"), "control_variates"),
    ConditionalGaussian: (
        of_groups,
        ("effects", "slopes", "scale", "base"),
        "control_variates",
    ),
}


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def case(request, tmp_path_factory):
    make, other, method = KINDS[request.param]
    coreset = build_coreset(make(), method=method, random_seed=1, progressbar=False)
    assert isinstance(coreset.proposal.around, request.param)
    path = tmp_path_factory.mktemp("files") / "coreset.nc"
    coreset.to_netcdf(path)
    return coreset, make, other, path


@needs_files
def test_a_coreset_from_a_file_has_the_same_draws_as_before(case, tmp_path):
    coreset, make, _, path = case
    expected = coreset.sample(**SHORT)
    assert "accepted" in expected["sample_stats"]  # no NUTS
    Coreset.from_netcdf(path).to_netcdf(tmp_path / "again.nc")  # without its model
    same = Coreset.from_netcdf(tmp_path / "again.nc", make())
    assert same.proposal.modes is same.modes
    assert (same.modes is None) == (coreset.modes is None)
    found = same.sample(**SHORT)["posterior"].to_dataset()
    xr.testing.assert_allclose(found, expected["posterior"].to_dataset(), rtol=1e-9)
    draws = (each.importance_draws(random_seed=1) for each in (same, coreset))
    xr.testing.assert_equal(*(tree["posterior"].to_dataset() for tree in draws))


def of_distribution(coreset, n_draws):
    """Draws of what the build has found near the posterior, by the names of variables."""
    space = coreset.loglikelihood.observations.space
    x, _ = coreset.proposal.around.draw(n_draws, rng=np.random.default_rng(2))
    return space.constrain(x).to_datatree()["posterior"].to_dataset()


@needs_files
def test_models_whose_variables_come_in_another_order_have_the_same_posterior(case):
    coreset, make, other, path = case
    one = of_distribution(coreset, 500)
    for found in (Coreset.from_netcdf(path, make(other)), coreset.with_model(make(other))):
        assert list(found.loglikelihood.observations.space.columns)[: len(other)] == list(other)
        draws = (each.importance_draws(random_seed=1) for each in (found, coreset))
        xr.testing.assert_allclose(*(tree["posterior"].to_dataset() for tree in draws))
        again = of_distribution(found, 500)
        for name in coreset.proposal.draws.values:
            mean, sd = one[name].mean(("chain", "draw")), one[name].std(("chain", "draw"))
            shift = again[name].mean(("chain", "draw")) - mean
            # Normal around the same draws, where a scale's own distribution is skewed.
            assert np.abs(shift / sd).max() < 1
            assert np.abs(np.log(again[name].std(("chain", "draw")) / sd)).max() < 1.5


@needs_files
def test_draws_for_other_priors_or_data_are_not_kept(case):
    _, make, _, path = case
    with warned("other priors", "NUTS", "check()"):
        other = Coreset.from_netcdf(path, make(sd=0.5))
    assert (other.proposal, other.certificate, other.modes) == (None, None, None)


# -- what is in a file -----------------------------------------------------------------------------


#: The second of two coordinates is not normal along its axis.
TABLES = GriddedMarginals(
    np.array([1.0, 2.0]),
    np.array([[2.0, 0.5], [0.0, 1.0]]),
    {1: Table(np.array([0.0, 1.0, 3.0]), np.array([0.0, -1.0, -9.0]))},
)


def known(around):
    return Proposal(draws=Draws({"a": np.zeros(3)}), log_ratios=np.arange(3.0), around=around)


@pytest.mark.parametrize(
    "around",
    [
        None,
        factor_of(np.array([[2.0, 1.0], [1.0, 2.0]])),
        factor_of(sparse.csr_array(np.diag([2.0, 3.0]))),
        Normal(np.zeros(2), factor_of(np.eye(2)), Tails(stretch=np.ones((2, 2)))),
        TABLES,
        Mixture([heavy_tailed(np.full(1, c), np.eye(1)) for c in (-1, 1)], np.ones(2) / 2),
    ],
    ids=lambda around: type(around).__name__,
)
@needs_files
def test_distributions_are_stored_field_by_field(around):
    stored = stored_proposal(known(around), None)
    again = restored_proposal(stored, None)
    assert type(again.around) is type(around)
    assert stored_proposal(again, None).identical(stored)
    if around is not None and not isinstance(around, CholeskyFactor):
        draws = [each.draw(50, rng=np.random.default_rng(1))[0] for each in (around, again.around)]
        assert_array_equal(*draws)


@needs_files
def test_fields_that_a_file_lacks_have_their_defaults():
    stored = stored_proposal(known(heavy_tailed(np.zeros(2), np.eye(2))), None)
    form = json.loads(stored["form"].item())
    del form["around"]["fields"]["tails"]["fields"]["stretch"]
    again = restored_proposal(stored.assign(form=json.dumps(form)), None)
    assert again.around.tails.stretch is None


@pytest.mark.parametrize(
    "change",
    [
        {"log_ratios": ("log_ratios.0", np.full(3, np.nan))},
        {"log_ratios": ("other", np.zeros(4))},
        {"form": json.dumps({"version": 0})},
        {"form": "{"},
    ],
)
@needs_files
def test_odd_contents_are_refused_by_name(change, tmp_path):
    with pm.Model():
        pm.Normal("y", pm.Normal("a"), 1.0, observed=DESIGN[:60, 0])
        coreset = build_coreset(size=4, method="uniform", random_seed=1, progressbar=False)
    tree = coreset.to_datatree()
    tree["proposal"] = stored_proposal(known(factor_of(np.eye(1))), None).assign(change)
    write_netcdf(tree, tmp_path / "odd.nc")
    with refused(InvalidDataError, "odd.nc", "coreset file", topic="coresets-in-files"):
        Coreset.from_netcdf(tmp_path / "odd.nc")
