"""Draws from near a posterior, for weighting rows or instead of a coreset."""

import logging
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_coresets as pmc
from pymc_coresets import (
    InvalidDataError,
    Laplace,
    Prior,
    SamplingError,
    Subsample,
    UnsupportedModelError,
    build_coreset,
    one_call,
)
from pymc_coresets.diagnostics.importance import khat_threshold
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.certified_draws import around_mode
from pymc_coresets.sampling.certified_draws.around_mode import AroundMode, drawn_around_mode
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.weighting import UserDraws
from tests.derived import likelihood_of, sampler_of
from tests.refusals import refused

# -- Weighting distributions against closed forms: linear regression and a correlated posterior. ---

N, N_DRAWS = 400, 4_000
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.5], [0.0, 0.0, 1.0]])
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=N)


def posterior(weights):
    """Mean and covariance of the weighted linear regression (unit noise, N(0, 1) prior)."""
    covariance = np.linalg.inv(np.eye(3) + X.T @ (weights[:, None] * X))
    return covariance @ (X.T @ (weights * Y)), covariance


def assert_same_normal(draws, mean, covariance):
    """Five standard errors of whitened sample means and covariances of independent draws."""
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    limit = 5 / np.sqrt(len(draws))
    assert np.abs(whitened.mean(axis=1)).max() < limit
    assert np.abs(np.cov(whitened) - np.eye(3)).max() < limit * np.sqrt(2)


@pytest.fixture(scope="module")
def regression():
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        pm.Normal("y", X @ beta, 1.0, observed=Y)
    return sampler_of(model)


def draw(weighting, sampler, n_draws=N_DRAWS, seed=1):
    return weighting.draw(sampler, n_draws, rng=np.random.default_rng(seed))


def test_laplace_is_exact_for_a_normal_posterior(regression):
    assert_same_normal(draw(Laplace(), regression).values["beta"], *posterior(np.ones(N)))


def test_laplace_counts_merged_rows_as_often_as_they_occur():
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        pm.Normal("y", np.tile(X[:100], (3, 1)) @ beta, 1.0, observed=np.tile(Y[:100], 3))
    sampler = CoresetSampler(LogLikelihood(find_observations(model), collapse=True))
    assert (sampler.n_rows, sampler.loglikelihood.total_weight) == (100, 300)
    draws = draw(Laplace(), sampler).values["beta"]
    assert_same_normal(draws, *posterior(np.where(np.arange(N) < 100, 3.0, 0.0)))


def laplace_of(model):
    space = Unconstrained(model)
    return laplace(Density.of_model(space), space.start)


def test_laplace_covariance_is_the_inverse_hessian_on_the_unconstrained_scale():
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(2), cov=np.array([[2.0, 1.8], [1.8, 2.0]]))
        pm.LogNormal("s", 1.0, 0.3)
    points, _ = laplace_of(model).draw(20_000, rng=np.random.default_rng(1))
    draws = Unconstrained(model).constrain(points).values
    limit = 5 / np.sqrt(20_000)
    np.testing.assert_allclose(np.cov(draws["x"].T), [[2, 1.8], [1.8, 2]], atol=limit * 4)
    assert abs(np.log(draws["s"]).mean() - 1.0) < 0.3 * limit
    assert abs(np.log(draws["s"]).std() - 0.3) < 0.3 * limit


def test_laplace_does_not_depend_on_units():
    """A step of a ten-thousandth would be a hundred thousand standard deviations."""
    x = RNG.normal(size=200)
    counts = RNG.poisson(np.exp(1 + 0.3 * x))

    def factor(unit):
        with pm.Model() as model:
            b, a = pm.Normal("b", 0, 10 * unit), pm.Normal("a", 0, 10)
            pm.Poisson("y", pm.math.exp(a + b / unit * x), observed=counts)
        return laplace_of(model).factor.root

    expected, found = factor(1.0), factor(1e-9)
    found[0] *= 1e-9
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_laplace_sees_the_curvature_beyond_the_kinks():
    """Each row's gradient jumps: over a small step the curvature is none, or that of one row."""
    y = RNG.laplace(size=1_000)
    with pm.Model() as model:
        pm.Laplace("y", pm.Flat("m"), 1.0, observed=np.repeat(y, 4))
    found = laplace_of(model)
    # The Fisher information is one for each row; a fifth of it is the noise of the rows there.
    assert 1 / 1.5 < found.factor.root.item() / np.sqrt(4_000) < 1.5


def test_laplace_says_where_there_is_no_mode():
    with pm.Model() as funnel:
        log_scale = pm.Flat("log_scale")
        pm.Normal("x", 0, pm.math.exp(log_scale), shape=10)
    with refused(SamplingError, "weighting='subsample'"):
        laplace_of(funnel)


def test_a_prior_without_draws_is_refused_by_name():
    with pm.Model() as model:
        beta = pm.Normal("beta", pm.Flat("mean"), pm.HalfNormal("sd"), shape=3)
        pm.Normal("y", X @ beta, 1.0, observed=Y)
    sampler = sampler_of(model)
    with refused(UnsupportedModelError, "'mean'", "weighting='subsample'"):
        draw(Prior(), sampler)


def test_prior_draws_have_the_prior_moments(regression):
    assert_same_normal(draw(Prior(), regression).values["beta"], np.zeros(3), np.eye(3))


@pytest.mark.usefixtures("nuts_by_numpy")
@pytest.mark.parametrize("sampler", ["laplace", "nuts"])
def test_subsample_of_all_rows_is_the_posterior(regression, sampler):
    weighting = Subsample(size=N, sampler=sampler)
    draws = draw(weighting, regression, n_draws=1_000).values["beta"]
    # NUTS draws of a normal posterior are about as good as independent ones.
    assert_same_normal(draws, *posterior(np.ones(N)))


def test_a_subsample_is_weighted_up_to_all_rows(regression):
    draws = draw(Subsample(size=100, sampler="laplace"), regression).values["beta"]
    spread = np.cov(draws.T)
    _, covariance = posterior(np.ones(N))
    ratio = np.linalg.slogdet(spread)[1] - np.linalg.slogdet(covariance)[1]
    assert abs(ratio) < 1.0  # one hundredth of the weight would make this 3 log(4)


def test_user_draws_are_thinned_and_named(regression):
    few, many = ({"beta": RNG.normal(size=(n, 3))} for n in (50, 5_000))
    assert draw(UserDraws(few), regression, n_draws=20).n_draws == 50
    assert draw(UserDraws(many), regression, n_draws=20).n_draws == 4_000
    with refused(InvalidDataError, "'beta'", topic="draws"):
        draw(UserDraws({"gamma": np.zeros(50)}), regression)


def test_draws_are_reproducible(regression):
    one, two = (draw(Subsample(size=50), regression, n_draws=40).values["beta"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_constrain_inverts_the_models_own_transforms():
    with pm.Model() as model:
        pm.Beta("p", 2, 2)
        pm.Dirichlet("w", np.ones(3))
        pm.HalfNormal("s", shape=2)
    point = model.initial_point(random_seed=1)
    space = Unconstrained(model)
    back = space.constrain(space.start[None] + 0.3)
    assert back.values["w"].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(back.values["s"][0], np.exp(point["s_log__"] + 0.3))


# -- Draws of the full posterior from around its mode, where `sample` needs no coreset. ------------

N_MANY, D = 4_000, 26
QUIET = {"random_seed": 1, "progressbar": False}
SHORT = {"draws": 400, "chains": 2}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N_MANY, D))
    chance = 1 / (1 + np.exp(-(x @ rng.normal(0, 0.3, D))))
    with pm.Model(coords={"column": np.arange(D)}) as model:
        b = pm.Normal("b", 0, 1, dims="column")
        pm.Deterministic("largest", b.max())
        pm.Bernoulli("y", logit_p=x @ b, observed=rng.binomial(1, chance))
    return model


@pytest.fixture(scope="module")
def idata(model):
    return pmc.sample(model, **QUIET)


@pytest.fixture(scope="module")
def coreset(model):
    return build_coreset(model, **QUIET)


@pytest.fixture(scope="module")
def found(model):
    loglik = likelihood_of(model)
    return drawn_around_mode(loglik, key=1, rng=np.random.default_rng(2))


def test_draws_are_as_asked_for_and_say_what_they_are(idata):
    assert dict(idata["posterior"].sizes) == {"chain": 4, "draw": 1_000, "column": D}
    assert set(idata.children) == {"posterior", "observed_data"}
    np.testing.assert_allclose(idata["posterior"]["b"].max("column"), idata["posterior"]["largest"])
    assert idata.attrs["verdict"].startswith("Reliable: resampled draws of the full posterior")
    assert idata.attrs["psis_ess"] >= 1_000
    assert idata.attrs["pareto_khat"] < 0.67
    assert idata.attrs["divergence"] == 0.0
    assert idata.attrs["seconds_build"] > 0


def test_draws_are_those_of_the_full_posterior(idata, coreset):
    """As those of a coreset, whose posterior is within the tolerance of it."""
    other, own = coreset.sample(**QUIET)["posterior"]["b"], idata["posterior"]["b"]
    mean, sd = own.mean(("chain", "draw")), other.std(("chain", "draw"))
    # A thousand independent draws against thousands: an error of 0.035 sd.
    assert (abs(mean - other.mean(("chain", "draw"))) / sd).max() < 0.035 * 4.5
    assert abs(own.std(("chain", "draw")) / sd - 1).max() < 0.035 * 4.5 / np.sqrt(2)
    assert (abs(own.mean("draw") - mean) / sd).max() < 0.2  # the chains are alike


def test_one_line_says_it(model, caplog):
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        pmc.sample(model, **SHORT, **QUIET)
    [line] = (r.getMessage() for r in caplog.records if "no coreset was needed" in r.getMessage())
    assert line.startswith("Draws of the full posterior, from around its mode; no coreset was ")
    assert "Reliable: resampled draws" in line


def test_the_coreset_is_built_on_request(idata, model, coreset):
    built = pmc.coreset_of(idata, model)
    np.testing.assert_array_equal(built.indices, coreset.indices)
    np.testing.assert_array_equal(built.weights, coreset.weights)


def test_draws_that_do_not_identify_their_model_are_refused(idata, model):
    other = idata.copy()
    del other.attrs["coreset_densities"]
    with refused(InvalidDataError, "no coreset", "pymc_coresets.sample()", topic="draws"):
        pmc.coreset_of(other, model)


def test_a_coreset_follows_where_the_draws_are_not_certified(model, coreset, monkeypatch):
    """It is that of `build_coreset`: what was tried before leaves no trace in it."""
    monkeypatch.setattr(AroundMode, "is_certified", False)
    drawn = pmc.sample(model, **SHORT, **QUIET)
    np.testing.assert_array_equal(drawn["coreset"]["indices"], coreset.indices)
    np.testing.assert_array_equal(drawn["coreset"]["weights"], coreset.weights)


@pytest.mark.parametrize("options", [{"size": 500}, {"method": "control_variates"}])
def test_who_asks_for_a_coreset_gets_one(model, options, fails):
    fails(one_call, "drawn_around_mode")
    assert "coreset" in pmc.sample(model, **options, **SHORT, **QUIET).children


def test_weights_lines_and_modes_must_all_serve(found):
    assert found.is_certified
    assert found.certificate.modes.words == "1, as the posterior is log-concave"
    assert found.probes.n_points >= 3 * D  # along each coordinate

    def weighed(log_ratios):
        return replace(found, proposal=replace(found.proposal, log_ratios=log_ratios))

    ratios = found.proposal.log_ratios
    heavy = np.random.default_rng(1).standard_t(1, size=len(ratios))
    assert not weighed(heavy).is_certified
    shares = np.random.default_rng(2).permutation(len(ratios)) + 0.5
    tail = (shares / len(ratios)) ** -0.85  # without a variance
    tailed = weighed(np.log1p(0.015 * tail))
    assert tailed.certificate.ess >= tailed.enough
    assert khat_threshold(len(ratios)) < tailed.certificate.pareto_khat < 1.0
    assert not tailed.is_certified
    assert not weighed(ratios + np.log(4) * (np.arange(len(ratios)) % 2)).is_certified  # too few
    outside = replace(found.probes, outside=0.02, most=0.02, where="b[1]")
    assert not replace(found, probes=outside).is_certified


def test_draws_of_two_passes_have_the_weights_of_one(found):
    own, loglik = found.proposal, found.loglikelihood
    points = loglik.observations.space.free(own.draws)
    ratios = loglik.sums(own.draws).total + loglik.rest.values(points)
    ratios -= own.around.log_density(points)
    assert np.ptp(own.log_ratios - ratios) < 1e-8


def test_more_draws_follow_where_the_first_promised_too_much(found, monkeypatch):
    """Weights of a hundred draws are equal, and those of the others leave four fifths."""
    counts = []

    def with_more(_, known, n, *, rng):
        counts.append(n)
        more = rng.normal(0, 0.5, size=n)
        return replace(known, log_ratios=np.append(known.log_ratios, more))

    monkeypatch.setattr(around_mode, "with_more", with_more)
    first = replace(found.proposal, log_ratios=np.zeros(100))
    every = around_mode._enough(None, first, around_mode.ENOUGH, np.random.default_rng(1))
    assert len(counts) == 2
    assert every.smoothed.ess >= around_mode.ENOUGH


def test_what_pymc_contradicts_is_refused(found, monkeypatch):
    sums = LogLikelihood.sums

    def wrong(loglik, draws, **options):
        given = sums(loglik, draws, **options)
        return replace(given, total=given.total + 5.0 * draws.values["b"][:, 0])

    monkeypatch.setattr(LogLikelihood, "sums", wrong)
    with refused(UnsupportedModelError, "log-ratio", "PyMC"):
        found.drawn(chains=2, draws=50, rng=np.random.default_rng(1))


def test_where_other_modes_are_possible_a_coreset_is_built():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_000, 3))
    with pm.Model() as model:
        b = pm.StudentT("b", nu=3, mu=0, sigma=1, shape=3)
        pm.Normal("y", x @ b, 1.0, observed=rng.normal(x.sum(axis=1)))
    with refused(SamplingError, "modes"):
        drawn_around_mode(likelihood_of(model), key=1, rng=rng)


@pytest.fixture(scope="module")
def rare():
    """Standardised indicators of rare categories, of most of which all outcomes agree."""
    rng = np.random.default_rng(3)
    sizes = np.array([1, 5, 20, 60, 150])
    level = np.repeat(np.arange(6), [*sizes, N_MANY - sizes.sum()])
    dummies = (level[:, None] == np.arange(6)).astype(float)
    x = np.concatenate([rng.normal(size=(N_MANY, 20)), dummies], axis=1)
    x = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(N_MANY)])
    effects = np.concatenate([rng.normal(0, 0.3, 20), [0.2, -0.4, 0.6, -0.8, 0.3, 0.1, 0.2]])
    y = rng.binomial(1, 1 / (1 + np.exp(-(x @ effects))))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=27)
        pm.Bernoulli("y", logit_p=x @ b, observed=y)
    return model, x, y


def test_rare_categories_whose_outcomes_agree_need_no_coreset(rare, caplog):
    """Laplace's draws miss their posterior; the new ones have it by Stein's identities."""
    model, x, y = rare
    loglik = likelihood_of(model)
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        found = drawn_around_mode(loglik, key=1, rng=np.random.default_rng(2))
    assert "along" in caplog.text
    b = found.drawn(chains=1, draws=4_000, rng=np.random.default_rng(4))["posterior"]["b"][0]
    b = b.to_numpy()
    some = np.array_split(b, 16)  # a matrix of all rows and draws takes 256 MB
    scores = np.concatenate([(y - 1 / (1 + np.exp(-part @ x.T))) @ x for part in some]) - b
    # Resampled draws are worth at least a thousand.
    sd, n = b.std(axis=0), found.certificate.ess
    assert (np.abs(scores.mean(axis=0)) < 5 * scores.std(axis=0) / np.sqrt(n)).all()
    widths = (b - b.mean(axis=0)) * scores
    assert (np.abs(widths.mean(axis=0) + 1) < 5 * widths.std(axis=0) / np.sqrt(n)).all()
    assert sd[20:24].min() > 0.3
