import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import nnls

from pymc_coresets.methods.pursuit import ActiveSet
from pymc_coresets.solving.problem import nonnegative_least_squares


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 30))
def test_agrees_with_scipy(seed, n_rows, n_draws):
    rng = np.random.default_rng(seed)
    rows, target = rng.normal(size=(n_rows, n_draws)), rng.normal(size=n_draws)
    weights = nonnegative_least_squares(rows, target)
    _, distance = nnls(rows.T, target)
    assert (weights >= 0).all()
    assert np.linalg.norm(target - weights @ rows) == pytest.approx(distance, abs=1e-10)


@settings(deadline=None)
@given(
    arrays(np.float64, (8, 4), elements=st.integers(-2, 2).map(float)),
    arrays(np.float64, (4,), elements=st.integers(-5, 5).map(float)),
)
def test_optimality_conditions_hold_for_dependent_rows(rows, target):
    weights = nonnegative_least_squares(rows, target)
    gradient = rows @ (target - weights @ rows)
    assert (weights >= 0).all()
    assert gradient.max() <= 1e-10
    assert gradient[weights > 0] == pytest.approx(0, abs=1e-10)


def test_ill_conditioned_rows_keep_their_digits():
    """Condition number 1e6: normal equations would lose all but four digits."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=40) + 1e-6 * rng.normal(size=(6, 40))
    weights = nonnegative_least_squares(rows, np.arange(1.0, 7.0) @ rows)
    assert weights == pytest.approx(np.arange(1.0, 7.0), rel=1e-8)


def test_dependent_row_is_refused():
    active = ActiveSet(np.ones(3), capacity=3)
    row = np.array([0.1, 0.7, 0.3])
    assert active.add(0, row)
    assert not active.add(1, 3 * row)
    assert active.numbers == [0]


def test_row_without_gain_is_refused():
    active = ActiveSet(np.array([1.0, 1e-17]), capacity=2)
    assert active.add(0, np.array([1.0, 0.0]))
    assert not active.add(1, np.array([0.0, 1.0]))


def test_full_set_refuses():
    active = ActiveSet(np.ones(3), capacity=1)
    assert active.add(0, np.eye(3)[0])
    assert not active.add(1, np.eye(3)[1])


def test_superfluous_row_is_dropped():
    active = ActiveSet(np.array([1.0, 1.0]), capacity=3)
    for key, row in enumerate([[1.0, 0.9], [1.0, 0.0], [0.0, 1.0]]):
        active.add(key, np.array(row))
    assert np.linalg.norm(active.residual) < 1e-14
    assert len(active.numbers) == 2


def test_factorisation_survives_many_drops():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(300, 30)) + 1
    target = rows.sum(0) + 20 * rng.normal(size=30)
    active = ActiveSet(target, capacity=30)
    for key in rng.permutation(300):
        if key not in active.numbers:
            active.add(int(key), rows[key])
    residual = target - active.weights @ rows[active.numbers]
    assert active.residual == pytest.approx(residual, abs=1e-9 * np.linalg.norm(target))
    assert rows[active.numbers] @ residual == pytest.approx(0, abs=1e-9 * np.linalg.norm(target))


def test_factors_of_rows_that_are_almost_the_same_stay_orthogonal():
    rng = np.random.default_rng(6)
    middle, apart = rng.normal(size=50), 1e-7 * rng.normal(size=50)
    active = ActiveSet(middle, 2)
    assert active.add(0, middle + apart)
    assert active.add(1, middle - apart)
    assert active.weights == pytest.approx([0.5, 0.5], rel=1e-6)
    np.testing.assert_allclose(active._basis.T @ active._basis, np.eye(2), atol=1e-13)
