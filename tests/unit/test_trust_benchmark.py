"""Whether draws are right about the tails: the judge of ``benchmarks.trust``, and its report."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import multivariate_normal, norm, t

from benchmarks import trust_truth, trust_units
from benchmarks.trust import RELIABLE, Record, report, summary
from benchmarks.trust_cases import POSTERIORS, bimodal_cdf, funnel_cdf, quantiles_of
from benchmarks.trust_grids import Curves, NormalLevels, grid, half_normal, normal
from benchmarks.trust_judge import Convergence, Judgement, convergence, judge
from benchmarks.trust_models import on_grid
from benchmarks.trust_truth import LEVELS, Marginal
from tests.modes import PLAIN_MODE

pytestmark = pytest.mark.slow  # of a benchmark

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


def test_levels_of_which_the_truth_is_unknown_are_not_judged():
    known = {"b[0]": TRUTH["b[0]"]}
    wrong = draws(lambda b: b + 3)
    assert judge(wrong, known).right
    assert not judge(wrong, TRUTH).right


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
        "| 1 with tails, bounds, modes or levels | 0 | 2 of 2 | 2 | 0 |",
        "| horseshoe | 0 | 1 of 1 | 0 | 1 |",
        r"| weighted rows, (1\|g) | 0 | 0 of 1 | 1 | 0 |",
    ]


def test_four_in_ten_posteriors_are_harmless():
    assert len(POSTERIORS) == 60
    assert sum(case.harmless for case in POSTERIORS.values()) == 24


def test_the_file_holds_the_truth_about_every_posterior():
    assert list(json.loads(trust_truth.FILE.read_text())) == list(POSTERIORS)


# -- grids -----------------------------------------------------------------------------------------


def test_a_grid_finds_a_narrow_ridge_in_a_wide_box():
    """Coarse nodes along other axes must not decide where one axis has its mass."""
    ridge = multivariate_normal([0.3, 2.0], [[1e-4, 1.9e-3], [1.9e-3, 0.04]])

    def log_density(points):
        return 3.0 + np.atleast_1d(ridge.logpdf(np.stack([points["a"], points["b"]], axis=-1)))

    found = grid(log_density, {"a": (-50.0, 50.0), "b": (-50.0, 50.0)}, 81)
    np.testing.assert_allclose(found.log_mass, 3.0, atol=1e-3)
    for name, exact in {"a": norm(0.3, 0.01), "b": norm(2.0, 0.2)}.items():
        np.testing.assert_allclose(
            exact.cdf(found.quantiles(name)(LEVELS)), LEVELS, rtol=0.01, atol=1e-4
        )


def test_a_grid_keeps_the_mass_at_a_bound():
    def log_density(points):
        return norm.logpdf(points["a"])

    found = grid(log_density, {"a": (0.0, 30.0)}, 61).quantiles("a")(LEVELS)
    np.testing.assert_allclose(found, norm.ppf((1 + LEVELS) / 2), rtol=1e-3)


@pytest.fixture
def some_levels():
    """Four groups of three rows that see five levels, one of them by no row."""
    rng = np.random.default_rng(3)
    seen = np.eye(5)[[1, 0, 4, 2]] + 0.5 * np.eye(5)[[0, 2, 1, 2]]
    return NormalLevels(
        y=rng.normal(size=(4, 3)),
        seen=seen,
        own=np.array([1.0, 2.0, -1.0, 0.5, 1.5]),
        shift=(20.0, normal(0, 2)),
        tau=(6.0, 2.0),
    )


def joint(levels, shift, tau, s):
    """Return the mean and covariance of the effects and of all rows."""
    rows = np.repeat(levels.seen, 3, axis=0)
    both = np.r_[np.eye(5), rows]
    noise = np.r_[np.zeros(5), np.full(len(rows), s**2)]
    return both @ levels.own * shift, tau**2 * both @ both.T + np.diag(noise)


def test_normal_levels_have_the_density_of_all_rows(some_levels):
    points = {
        "shift": np.array([0.3, -0.8, 1.0]),
        "tau": np.array([0.5, 1.5, 2.0]),
        "s": np.array([0.9, 0.7, 1.4]),
    }
    exact = []
    for shift, tau, s in zip(*points.values(), strict=True):
        mean, covariance = joint(some_levels, shift, tau, s)
        rows = multivariate_normal(mean[5:], covariance[5:, 5:]).logpdf(some_levels.y.ravel())
        prior = norm.logpdf(shift, 0, 2) + half_normal(2)(tau) + half_normal(1)(s)
        exact.append(rows + prior)
    np.testing.assert_allclose(np.diff(some_levels.log_density(points)), np.diff(exact), rtol=1e-9)


@pytest.mark.parametrize("j", range(5))
def test_normal_levels_have_the_effects_given_all_rows(some_levels, j):
    point = {"shift": np.array([0.4]), "tau": np.array([0.8]), "s": np.array([1.1])}
    mean, covariance = joint(some_levels, 0.4, 0.8, 1.1)
    gain = np.linalg.solve(covariance[5:, 5:], covariance[5:, j])
    exact = (
        mean[j] + gain @ (some_levels.y.ravel() - mean[5:]),
        np.sqrt(covariance[j, j] - gain @ covariance[5:, j]),
    )
    np.testing.assert_allclose(np.ravel(some_levels._given(point, j)), exact, rtol=1e-9)


def test_curves_agree_with_formulas():
    """Normal rows of normal levels, whose effects are integrated on a grid and exactly."""
    rng = np.random.default_rng(4)
    y = rng.normal(rng.normal(0.5, 0.8, size=(12, 1)), 0.7, size=(12, 4))
    nodes = np.linspace(-8, 8, 801)
    exact = NormalLevels(
        y=y, seen=np.eye(12), own=np.ones(12), shift=(20.0, normal(0, 2)), tau=(6.0, 1.0)
    )
    curves = Curves(
        nodes=nodes,
        rows=lambda s: norm.logpdf(y[:, :, None], nodes, s).sum(axis=1),
        log_prior=lambda z, points: norm.logpdf(z, points["shift"], points["tau"]),
        shared={
            "s": ((0.2, 3.0), half_normal(1)),
            "shift": ((-5.0, 5.0), normal(0, 2)),
            "tau": ((0.05, 5.0), half_normal(1)),
        },
        row_variable="s",
    )
    points = {"s": [0.6, 0.6, 0.9], "shift": [0.1, 0.7, 0.5], "tau": [0.7, 0.9, 1.2]}
    points = {name: np.array(values) for name, values in points.items()}
    np.testing.assert_allclose(
        np.diff(curves.log_density(points)), np.diff(exact.log_density(points)), rtol=1e-8
    )
    posterior = curves.grid(25)
    np.testing.assert_allclose(
        curves.level(posterior, 5)(LEVELS), exact.level(posterior, 5)(LEVELS), atol=2e-3
    )


def test_a_model_collapsed_by_hand_has_the_posterior_of_the_whole():
    """The effects are normal given the rest: their integral follows from their mode."""
    with pm.Model() as whole:
        trust_units.horseshoe_and_levels(np.random.default_rng(1), easier=False)
    with pm.Model() as collapsed:
        trust_units.horseshoe_and_levels(np.random.default_rng(1), easier=True)
    start = collapsed.initial_point()
    moved = start | {"a": np.array(0.8), "tau_log__": np.array(-0.4), "s_log__": np.array(0.1)}
    (effect,) = collapsed.replace_rvs_by_values([collapsed["effect"]])
    modes = collapsed.compile_fn(
        effect, inputs=collapsed.value_vars, on_unused_input="ignore", mode=PLAIN_MODE
    )
    density, slope = (
        whole.compile_logp(mode=PLAIN_MODE),
        whole.compile_dlogp([whole["effect"]], mode=PLAIN_MODE),
    )
    found, exact = [], []
    for point in (start, moved):
        full = {name: value for name, value in point.items() if name != "noise"}
        full["effect"] = modes(point)
        np.testing.assert_allclose(slope(full), 0.0, atol=1e-8)
        tau, s = (np.exp(point[name]) for name in ("tau_log__", "s_log__"))
        exact.append(density(full) - 600 / 2 * np.log(1 / tau**2 + 5 / s**2))
        found.append(collapsed.compile_logp(mode=PLAIN_MODE)(point))
    np.testing.assert_allclose(np.diff(found), np.diff(exact), rtol=1e-8)
