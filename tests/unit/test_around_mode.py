"""Draws of the full posterior from around its mode, where `sample` needs no coreset."""

import logging
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_coresets as pmc
from pymc_coresets import (
    InvalidDataError,
    SamplingError,
    UnsupportedModelError,
    build_coreset,
    one_call,
)
from pymc_coresets.diagnostics.importance import khat_threshold
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.certified_draws import around_mode
from pymc_coresets.sampling.certified_draws.around_mode import AroundMode, drawn_around_mode
from tests.refusals import refused

N, D = 4_000, 26
QUIET = {"random_seed": 1, "progressbar": False}
SHORT = {"draws": 400, "chains": 2}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, D))
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
    loglik = LogLikelihood(find_observations(model))
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
    assert found.probes.n_coordinates == D

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
        drawn_around_mode(LogLikelihood(find_observations(model)), key=1, rng=rng)


@pytest.fixture(scope="module")
def rare():
    """Standardised indicators of rare categories, of most of which all outcomes agree."""
    rng = np.random.default_rng(3)
    sizes = np.array([1, 5, 20, 60, 150])
    level = np.repeat(np.arange(6), [*sizes, N - sizes.sum()])
    dummies = (level[:, None] == np.arange(6)).astype(float)
    x = np.concatenate([rng.normal(size=(N, 20)), dummies], axis=1)
    x = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(N)])
    effects = np.concatenate([rng.normal(0, 0.3, 20), [0.2, -0.4, 0.6, -0.8, 0.3, 0.1, 0.2]])
    y = rng.binomial(1, 1 / (1 + np.exp(-(x @ effects))))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=27)
        pm.Bernoulli("y", logit_p=x @ b, observed=y)
    return model, x, y


def test_rare_categories_whose_outcomes_agree_need_no_coreset(rare, caplog):
    """Laplace's draws miss their posterior; the new ones have it by Stein's identities."""
    model, x, y = rare
    loglik = LogLikelihood(find_observations(model))
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        found = drawn_around_mode(loglik, key=1, rng=np.random.default_rng(2))
    assert "along" in caplog.text
    b = found.drawn(chains=1, draws=4_000, rng=np.random.default_rng(4))["posterior"]["b"][0]
    b = b.to_numpy()
    scores = (y - 1 / (1 + np.exp(-b @ x.T))) @ x - b
    # Resampled draws are worth at least a thousand.
    sd, n = b.std(axis=0), found.certificate.ess
    assert (np.abs(scores.mean(axis=0)) < 5 * scores.std(axis=0) / np.sqrt(n)).all()
    widths = (b - b.mean(axis=0)) * scores
    assert (np.abs(widths.mean(axis=0) + 1) < 5 * widths.std(axis=0) / np.sqrt(n)).all()
    assert sd[20:24].min() > 0.3
