"""Whether draws are right about the tails: the judge of ``benchmarks.trust``, and its report."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import norm, t

from benchmarks import trust_truth
from benchmarks.trust import RELIABLE, Record, report, summary
from benchmarks.trust_cases import POSTERIORS, bimodal_cdf, funnel_cdf, quantiles_of
from benchmarks.trust_judge import Convergence, Judgement, convergence, judge
from benchmarks.trust_models import on_grid
from benchmarks.trust_truth import LEVELS, Marginal

TRUTH = {
    f"b[{k}]": Marginal(quantiles=list(norm.ppf(LEVELS)), errors=[0.0] * len(LEVELS))
    for k in range(2)
}
HARMLESS, HARD = "gamma", "cauchy"


def draws(change=lambda b: b):
    """Return draws of two standard normal components, of which the second is changed."""
    b = np.random.default_rng(1).normal(size=(4, 1000, 2))
    b[..., 1] = change(b[..., 1])
    return xr.Dataset({"b": (("chain", "draw", "b_dim_0"), b)})


def test_draws_of_the_truth_are_right():
    found = judge(draws(), TRUTH)
    assert found.right
    assert found.excess < 1e-3
    assert convergence(draws(), TRUTH).reached


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b + 0.3,
        lambda b: 0.7 * b,
        lambda b: 1.4 * b,
        lambda b: np.minimum(b, norm.ppf(0.985)),
        lambda b: t(2).ppf(norm.cdf(b)),
        np.abs,
    ],
    ids=["shifted", "narrow", "wide", "cut", "heavy", "one-sided"],
)
def test_draws_of_another_posterior_are_wrong(change):
    found = judge(draws(change), TRUTH)
    assert not found.right
    assert found.variable == "b[1]"


def test_a_small_difference_is_allowed():
    """A shift by 0.1 sd of a normal posterior is a symmetrised divergence of 0.01 nats."""
    assert judge(draws(lambda b: b + 0.09), TRUTH).right


def test_few_draws_prove_nothing():
    assert judge(draws(lambda b: 0.8 * b), TRUTH, 20.0).right


def test_chains_that_disagree_have_not_converged():
    apart = np.array([[0.0], [0.0], [0.0], [3.0]])
    assert not convergence(draws(lambda b: b + apart), TRUTH).reached


@pytest.mark.parametrize("cdf", [bimodal_cdf, funnel_cdf])
def test_closed_forms_invert_their_distribution(cdf):
    found = quantiles_of(cdf)(LEVELS)
    np.testing.assert_allclose([cdf(u) for u in found], LEVELS, rtol=1e-6)


def test_draws_from_a_grid_follow_the_density():
    grid = np.linspace(-6, 6, 601)
    with pm.Model() as model:
        drawn = on_grid("u", grid, pm.logp(pm.Normal.dist(0.3, 0.8), grid))
    levels = np.array([0.01, 0.3, 0.5, 0.99])
    found = [drawn.eval({model["u_level"]: level}) for level in levels]
    np.testing.assert_allclose(found, norm(0.3, 0.8).ppf(levels), atol=1e-3)


def record(name, said, *, right, rhat=1.0):
    excess = 0.0 if right else 0.5
    judged = Judgement(variable="b", level=0.5, share=0.4, excess=excess)
    chains = Convergence(rhat=rhat, ess=900.0)
    known = {} if right is None else {"judgement": judged, "chains": chains}
    return Record(name=name, seed=1, said=said, **known)


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        (record(HARD, RELIABLE, right=True), "true"),
        (record(HARD, RELIABLE, right=False), "**false reliable**"),
        (record(HARD, RELIABLE, right=True, rhat=1.04), "not converged"),
        (record(HARD, "doubtful", right=True), "false alarm"),
        (record(HARD, "doubtful", right=True, rhat=1.04), "true alarm"),
        (record(HARD, "doubtful", right=False), "true alarm"),
        (record(HARMLESS, "doubtful", right=True, rhat=1.04), "false alarm"),
        (record(HARMLESS, "doubtful", right=False), "true alarm"),
        (record(HARD, "refused: SamplingError", right=None), "alarm"),
        (record(HARMLESS, "refused: SamplingError", right=None), "false alarm"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_verdict_was_worth(case, outcome):
    assert case.outcome == outcome
    assert f"| {outcome} |" in report([case])


def test_the_summary_names_every_posterior_with_a_verdict_that_was_not_right():
    good = [record(name, RELIABLE, right=True) for name in (HARMLESS, "binomial", "cauchy", HARD)]
    wrong = record("horseshoe", RELIABLE, right=False)
    careful = record("weighted rows, (1|g)", "doubtful", right=True)
    lines = summary([*good, wrong, careful]).splitlines()[2:]
    assert lines == [
        "| 2 harmless | 0 | 2 of 2 | 2 | 0 |",
        "| 1 with tails, bounds or modes | 0 | 2 of 2 | 2 | 0 |",
        "| horseshoe | 0 | 1 of 1 | 0 | 1 |",
        r"| weighted rows, (1\|g) | 0 | 0 of 1 | 1 | 0 |",
    ]


def test_half_of_the_posteriors_are_harmless():
    assert len(POSTERIORS) == 40
    assert sum(case.harmless for case in POSTERIORS.values()) == 20


def test_the_file_holds_the_truth_about_every_posterior():
    assert list(json.loads(trust_truth.FILE.read_text())) == list(POSTERIORS)
