"""Draws of a posterior that its construction has certified: when they need a check of their own."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import InvalidDataError, build_coreset
from pymc_coresets.predictive.stand_ins import StandIn
from pymc_coresets.sampling.certified_draws.of_builds import check_of_certified

N = 3_000


@pytest.fixture(scope="module")
def coreset():
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    chance = 1 / (1 + np.exp(-(0.5 * x - 1)))
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 2), pm.HalfNormal("b", 2)
        pm.Bernoulli("y", logit_p=a + b * x, observed=rng.binomial(1, chance))
    return build_coreset(model, random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def idata(coreset):
    return coreset.sample(random_seed=2, progressbar=False)


def moved(idata, numbers, by):
    """Return the draws with some of them moved, of the first chain, in standard deviations."""
    a = idata["posterior"]["a"].copy(deep=True)
    a[0, numbers] = float(a.mean()) + by * float(a.std())
    changed = idata.copy()
    changed["posterior"] = idata["posterior"].to_dataset().assign(a=a)
    return changed


def with_error(coreset, error):
    """Return the coreset with an error of its log-likelihood, by ``a`` in standard deviations."""
    own = coreset.stand_in
    center = float(coreset.proposal.draws.values["a"].mean())
    sd = float(coreset.proposal.draws.values["a"].std())

    def loglik(draws):
        return own.loglik(draws) + error((draws.values["a"] - center) / sd)

    return SimpleNamespace(model=coreset.model, stand_in=replace(own, loglik=loglik))


def test_a_clear_certificate_is_not_measured_again(coreset, idata, monkeypatch):
    evaluated, at = [], StandIn.log_densities_at
    monkeypatch.setattr(
        StandIn, "log_densities_at", lambda own, x: evaluated.append(x.n_draws) or at(own, x)
    )
    found = check_of_certified(coreset, idata)
    assert found.reliable
    assert evaluated == [100, 8]  # and PyMC's second opinion
    assert found.divergence == coreset.certificate.divergence
    assert found.ess_bulk > 1_000
    assert 0 < found.probes.misfit < found.probes.misfit_limit
    assert found.second_opinion.difference < 1e-6
    assert found.modes.shares is not None


def test_what_draws_alone_show_is_judged_as_by_a_check(coreset, idata):
    stuck = idata.copy()
    a = idata["posterior"]["a"].copy(deep=True)
    a[0] += 2 * float(a.std())
    stuck["posterior"] = idata["posterior"].to_dataset().assign(a=a)
    assert check_of_certified(coreset, stuck).verdict == coreset.check(stuck).verdict
    assert not check_of_certified(coreset, stuck).reliable
    shrunk = idata.copy()
    a = idata["posterior"]["a"]
    shrunk["posterior"] = idata["posterior"].to_dataset().assign(a=a.mean() + 0.7 * (a - a.mean()))
    assert "standard errors" in check_of_certified(coreset, shrunk).verdict


@pytest.mark.parametrize("n_moved", [0, 3, 1_000])
def test_a_region_that_the_certified_draws_have_not_seen_needs_a_check(coreset, idata, n_moved):
    """Whatever the share of the draws there: a single one in a thousand is among the farthest."""
    beyond = with_error(coreset, lambda z: -np.log(2) * (z > 6))
    found = check_of_certified(beyond, moved(idata, np.arange(n_moved), 7.0))
    assert (found is None) == bool(n_moved)


def test_draws_at_which_the_ratios_vary_need_a_check(coreset, idata):
    assert check_of_certified(with_error(coreset, lambda z: 0.0 * z), idata) is not None
    assert check_of_certified(with_error(coreset, lambda z: 0.12 * np.sign(z)), idata) is None


@pytest.mark.parametrize(
    "change",
    [
        {"symmetrised_kl": 0.006},
        {"kl": 0.006},
        {"probes": None},
        {"caveat": "Rows were forgotten."},
    ],
)
def test_a_certificate_must_be_clear(coreset, idata, change):
    assert coreset.certificate.is_clear
    known = replace(coreset.certificate, **change)
    assert check_of_certified(replace(coreset, certificate=known), idata) is None


def test_draws_of_another_coreset_are_refused(coreset, idata):
    weights = 2 * coreset.weights
    with pytest.raises(InvalidDataError, match="of another coreset"):
        check_of_certified(replace(coreset, weights=weights), idata)


def test_draws_on_the_border_of_the_support_need_a_check(coreset, idata):
    rounded = idata.copy()
    b = idata["posterior"]["b"].copy(deep=True)
    b[0, 0] = 0.0
    rounded["posterior"] = idata["posterior"].to_dataset().assign(b=b)
    assert check_of_certified(coreset, rounded) is None


def test_few_draws_are_all_checked(coreset, idata):
    few = idata.isel(draw=slice(0, 20))
    assert check_of_certified(coreset, few) is None
