"""Draws against the gradients of their density: Stein's identity, and shifts of means."""

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_array_equal
from scipy import stats

from pymc_coresets.diagnostics import stein
from pymc_coresets.diagnostics.posterior_draws import Chains
from pymc_coresets.diagnostics.stein import (
    Move,
    Stretch,
    deviation,
    deviation_by_values,
    in_halves,
    size_by_values,
    standard_errors_from_zero,
)
from pymc_coresets.diagnostics.stein_of_units import (
    Shifts,
    deviation_of_units,
    deviation_of_values,
    sizes_of_columns,
)

# -- Draws of densities and altered ones, by Stein's identities: closed forms, alarms and power. ---

CORRELATION = 0.8


def normal(rng, shape, n_dims):
    """Correlated normal draws with scales of 1 to n_dims, and their scores."""
    covariance = np.full((n_dims, n_dims), CORRELATION) + (1 - CORRELATION) * np.eye(n_dims)
    scales = np.arange(1.0, n_dims + 1)
    covariance *= scales[:, None] * scales
    x = rng.multivariate_normal(np.zeros(n_dims), covariance, size=shape)
    return x, lambda x: -np.linalg.solve(covariance, x[..., None])[..., 0]


def cauchy(rng, shape, _):
    return rng.standard_cauchy((*shape, 1)), lambda x: -2 * x / (1 + x**2)


def log_gamma(rng, shape, _):
    return np.log(rng.standard_gamma(0.2, (*shape, 1))), lambda x: 0.2 - np.exp(x)


def funnel(rng, shape, _):
    log_scale = rng.normal(0, 1.5, (*shape, 1))
    x = np.concatenate([log_scale, rng.normal(size=(*shape, 1)) * np.exp(log_scale)], axis=2)

    def score(x):
        squares = np.square(x[..., 1:] * np.exp(-x[..., :1]))
        return np.concatenate(
            [-x[..., :1] / 2.25 - 1 + squares, -x[..., 1:] * np.exp(-2 * x[..., :1])], axis=-1
        )

    return x, score


def names(n):
    return [f"b[{i}]" for i in range(n)]


def compared(x, score):
    away = in_halves(x - np.median(x, axis=(0, 1)))
    return deviation(away, in_halves(score(x)), names(x.shape[2]))


@pytest.mark.parametrize("shape", [(4, 1_000), (1, 400), (2, 150)])
@pytest.mark.parametrize("density", [normal, cauchy, log_gamma, funnel])
def test_draws_of_the_density_itself_pass(density, shape):
    """Twenty times; the limit is exceeded once in 10,000 times."""
    for seed in range(20):
        x, score = density(np.random.default_rng(seed), shape, 5)
        assert not compared(x, score).is_noticeable, seed


def altered(kind, x, sd, rng):
    """Alter the last coordinate, or all of them."""
    x, last = x.copy(), x[..., -1]
    mean = last.mean()
    if kind == "shift":
        x[..., -1] += 0.2 * sd[-1]
    elif kind == "shrink":
        x[..., -1] = mean + 0.85 * (last - mean)
    elif kind == "stretch":
        x[..., -1] = mean + 1.15 * (last - mean)
    elif kind == "cut":
        x[..., -1] = last.clip(mean - 1.6 * sd[-1], mean + 1.6 * sd[-1])
    elif kind == "outliers":
        x[..., -1] = np.where(rng.random(last.shape) < 0.05, mean + 3 * sd[-1], last)
    elif kind == "permuted":
        x[..., -1] = rng.permutation(last.ravel()).reshape(last.shape)
    elif kind == "all shrink":
        x *= 0.9
    elif kind == "all shift":
        x += 0.2 * sd
    return x


@pytest.mark.parametrize("n_dims", [4, 20, 60])
@pytest.mark.parametrize(
    "kind",
    ["shift", "shrink", "stretch", "cut", "outliers", "permuted", "all shrink", "all shift"],
)
def test_altered_draws_are_told(kind, n_dims):
    """Each of which moves a number that people quote by a fifth of a standard deviation."""
    rng = np.random.default_rng(1)
    x, score = normal(rng, (4, 1_000), n_dims)
    found = compared(altered(kind, x, x.std(axis=(0, 1)), rng), score)
    assert found.is_noticeable
    if kind in {"shift", "cut"}:
        assert found.where == f"b[{n_dims - 1}]"


def test_an_error_that_all_dimensions_share_is_told_by_all_together():
    """Each width is off by two standard errors, and none says so alone."""
    rng = np.random.default_rng(1)
    x, score = normal(rng, (4, 1_000), 60)
    found = compared(0.97 * x, score)
    assert found.is_noticeable
    assert found.where == ""


def test_chains_are_whitened_by_the_others():
    """By their own covariance, widths of n draws in D dimensions would be off by up to D / n."""
    x, _ = normal(np.random.default_rng(1), (3, 50), 2)
    roots = stein._roots_of_others(x)
    others = [x[1:], x[:1], x[:1]]
    for root, other in zip(roots, others, strict=True):
        np.testing.assert_allclose(root @ root.T, np.cov(other.reshape(-1, 2).T))
    assert stein._roots_of_others(x[:, :5]) is None  # too few draws


def test_a_mean_field_approximation_is_told_by_its_widths():
    """Its standard deviations are those given all other coordinates."""
    rng = np.random.default_rng(1)
    _, score = normal(rng, (4, 1_000), 4)
    precision = -score(np.eye(4))
    mean_field = rng.normal(size=(4, 1_000, 4)) / np.sqrt(np.diag(precision))
    found = compared(mean_field, score)
    assert found.size > 2 * found.limit


def test_correlated_draws_are_worth_fewer():
    """An autoregression with a tenth of independent draws: the t statistic stays in bounds."""
    largest = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x, noise = np.empty((4, 2_000, 1)), rng.normal(size=(4, 2_000, 1))
        x[:, 0] = noise[:, 0]
        for i in range(1, 2_000):
            x[:, i] = 0.8 * x[:, i - 1] + 0.6 * noise[:, i]
        sizes, df = standard_errors_from_zero(x)
        assert df == 99
        largest.append(abs(sizes[0]))
    assert np.quantile(largest, 0.9) < 3
    assert np.mean(largest) > 0.5  # of a standard normal number: 0.8


def test_widths_of_few_draws_raise_no_more_alarms_than_shifts():
    """The statistic of widths, 1 - x^2, is skewed: its t statistic has a long left tail."""
    rng, shares = np.random.default_rng(1), []
    for _ in range(8):  # all 40,000 at once would be four hundred megabytes
        x = rng.normal(size=(1, 400, 5_000))
        sizes, df = standard_errors_from_zero(1 - np.square(x))
        shares.append((np.abs(sizes) > stats.t.isf(1e-4 / 2, df)).mean())
    assert np.mean(shares) < 3e-4  # 4e-4 without the transformation; standard error 5e-5
    constant, _ = standard_errors_from_zero(np.stack([x[..., 0] * 0, x[..., 0] * 0 + 1], axis=-1))
    assert_array_equal(constant, [0.0, np.inf])


def test_a_density_with_a_jump_is_judged_by_its_values():
    """Exponential draws: the mean score is not zero, but values confirm no deviation."""
    x = np.random.default_rng(1).exponential(size=(4, 1_000, 2))
    assert compared(x, lambda x: -np.ones_like(x)).is_noticeable

    def log_density(x):
        return np.where((x < 0).any(axis=1), -np.inf, -x.sum(axis=1))

    own = deviation_by_values(x, np.ones(2), log_density, names(2))
    assert not own.is_noticeable
    moved = deviation_by_values(x + np.array([0.0, 0.2]), np.ones(2), log_density, names(2))
    assert moved.is_noticeable
    assert moved.where == "b[1]"


@pytest.mark.parametrize(
    "move",
    [
        Move(np.array([1.0, 2.0]), 1.0, np.zeros(2)),
        Move(np.array([0.5, 0.0]), 0.0, np.array([2.0, 0.0])),
        Move(np.array([0.0, 1.0]), 0.0, np.array([1.0, 0.0])),
        Stretch(2),
    ],
)
def test_moves_have_inverses_and_jacobians(move):
    x = np.random.default_rng(1).normal(size=(3, 2))
    for a in move.amounts():
        there, log_jacobian = move.of(x, a)
        back, other = move.of(there, move.inverse(a))
        np.testing.assert_allclose(back, x, atol=1e-12)
        assert log_jacobian == pytest.approx(-other)
        columns = [(move.of(x + h, a)[0] - move.of(x - h, a)[0])[0] / 2 for h in np.eye(2)]
        assert log_jacobian == pytest.approx(np.linalg.slogdet(np.stack(columns))[1])


@pytest.mark.parametrize(("by", "is_told"), [(0.0, False), (0.3, True)])
def test_values_confirm_what_gradients_tell(by, is_told):
    x = np.random.default_rng(2).normal(size=(4, 1_000, 3)) + by * np.array([0, 1.0, 0])
    axis = np.array([0.0, 1.0, 0.0])
    size = size_by_values(
        x, np.zeros(3), lambda x: stats.norm.logpdf(x).sum(axis=1), Move(axis, 1.0, 0 * axis)
    )
    assert (size > 4) is is_told


def test_draws_that_are_moved_far_beyond_the_density_say_nothing():
    """All ratios are about exp(-600), whose squares are zero in float64."""
    x = np.random.default_rng(1).normal(size=(4, 1_000, 1))
    shift = Move(np.full(1, 36.0), 1.0, np.zeros(1))
    with np.errstate(all="ignore"):
        size = size_by_values(x, np.zeros(1), lambda x: -np.square(x[:, 0]) / 2, shift)
    assert size < 4.0


# -- Draws of many variables given others, by Stein's identities: closed forms, jumps and limits. --

SHAPE, N = (4, 500), 8
NAMES, VARIABLES = [f"z[{k}]" for k in range(N)], ["z"] * N


def test_shifts_are_undone():
    rng = np.random.default_rng(1)
    shifts, x = Shifts(rng.normal(size=(5, 3))), rng.normal(size=(5, 3))
    there, log_jacobian = shifts.of(x, 0.7)
    back, _ = shifts.of(there, shifts.inverse(0.7))
    np.testing.assert_allclose(back, x)
    assert log_jacobian == 0.0


def uniform(z, **options):
    """Compare draws with uniform variables between 0 and 1, whose derivatives are zero."""

    def log_density(_, x):
        return np.where((x > 0) & (x < 1), 0.0, -np.inf).sum(axis=1)

    return deviation_of_units(z, 0 * z, 0 * z, NAMES, log_density, variables=VARIABLES, **options)


def test_a_density_with_jumps_is_not_contradicted_by_its_derivatives():
    z = np.random.default_rng(1).random((*SHAPE, N))
    assert sizes_of_columns(z, 0 * z).min() > 100  # the identity of widths does not hold
    assert not uniform(z).is_noticeable
    assert uniform(0.8 * z).is_noticeable


def normal_stein_of_units(z, **options):
    def log_density(_, x):
        return -np.square(x).sum(axis=1) / 2

    return deviation_of_units(z, -z, 0 * z, NAMES, log_density, variables=VARIABLES, **options)


def test_what_is_too_small_in_each_column_is_seen_in_all():
    z = np.random.default_rng(1).normal(size=(*SHAPE, N))
    assert not normal_stein_of_units(z).is_noticeable
    assert normal_stein_of_units(z + 0.08).where == "z"
    some = np.arange(N) < 4
    assert not normal_stein_of_units(z + 0.08 * ~some, together=some).is_noticeable
    assert normal_stein_of_units(z, n_all=10**6).limit > normal_stein_of_units(z).limit


@pytest.mark.parametrize(("n_draws", "explained"), [(1_000, 0.03), (100, 0.3)])
def test_one_column_whose_draws_were_permuted_goes_with_other_variables(n_draws, explained):
    """Normal variables around a shared one, which explains a share of their variance."""
    rng = np.random.default_rng(1)
    shared, variance = rng.normal(size=(4, n_draws, 1)), 1 / explained - 1
    z = shared + rng.normal(0, np.sqrt(variance), size=(4, n_draws, N))

    def found(z):
        def log_density(_, x):
            return -np.square(x - shared.reshape(-1, 1)).sum(axis=1) / 2 / variance

        of_z, given = (shared - z) / variance, (shared - 20) / variance + 0 * z  # at 20
        return deviation_of_units(z, of_z, given, NAMES, log_density, variables=VARIABLES)

    assert not found(z).is_noticeable
    z[:, :, 3] = rng.permutation(z[:, :, 3].ravel()).reshape(4, n_draws)
    assert found(z).is_noticeable
    assert found(z).where == "z[3]"


@pytest.mark.parametrize("seed", range(5))
def test_values_that_are_rare_are_not_noticeable(seed):
    rng = np.random.default_rng(seed)
    p = rng.choice([0.5, 1e-2, 1e-4, 1e-7], size=N) * rng.random((*SHAPE, 1))
    z = (rng.random((*SHAPE, N)) < p).astype(int)
    both = np.stack([1 - p, p], axis=2)
    assert not deviation_of_values(z, both, NAMES, "z").is_noticeable
    assert deviation_of_values(1 - z, both, NAMES, "z").is_noticeable


# -- The largest shifts by importance weights, of normal draws whose answers are known. ------------

CHAINS = (4, 5_000)


def weighted(log_weights):
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def test_the_largest_shift_of_a_mean_is_found_and_named():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=CHAINS), 3.0 * rng.normal(size=(*CHAINS, 2))
    y[..., 0] = 1.0
    dims = ("chain", "draw")
    posterior = xr.Dataset({"x": (dims, x), "y": ((*dims, "k"), y)})
    mean, sd = Chains(posterior).largest_shifts(weighted(0.2 * y[..., 1] / 3.0 + 0.05 * x))
    assert mean.name == "y[1]"
    assert mean.size == pytest.approx(0.2, abs=4 * mean.error)  # of N(0.2, 1) over N(0, 1)
    assert 0.2 / np.sqrt(x.size) < mean.error < 0.6 / np.sqrt(x.size)
    # Of the sd nothing changes: the largest of six errors, in the weights' own scale.
    assert abs(sd.size) < 0.05


def test_the_largest_change_of_a_standard_deviation_is_found():
    x = np.random.default_rng(2).normal(size=CHAINS)
    posterior = xr.Dataset({"x": (("chain", "draw"), x), "same": (("chain", "draw"), 0 * x)})
    _, sd = Chains(posterior).largest_shifts(weighted(-(x**2) / 2 * (1 / 0.95**2 - 1)))
    assert sd.name == "x"
    assert sd.size == pytest.approx((0.95**2 - 1) / 2, abs=4 * sd.error)


def test_constants_and_words_have_no_shift():
    posterior = xr.Dataset({"c": (("chain", "draw"), np.ones(CHAINS)), "n": ("k", np.arange(3.0))})
    weights = np.full(CHAINS, 1 / np.prod(CHAINS))
    assert Chains(posterior).largest_shifts(weights) == (None, None)
