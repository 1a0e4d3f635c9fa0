"""Sparse derivatives of affine functions, by few evaluations."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pymc_coresets.glm.control_variates.sparse_derivatives import affine_derivatives

N = 50
SMALL, LARGE, OTHER = np.arange(2), 2 + np.arange(N), 2 + N + np.arange(N)


def of_levels(matrix):
    """Add what levels have for themselves."""
    matrix[LARGE, LARGE], matrix[OTHER, OTHER] = 2.0, np.linspace(1.0, 3.0, N)


def with_a_mean(matrix):
    matrix[0, LARGE] = matrix[LARGE, 0] = -1.5


def nested(matrix):
    inner, outer = OTHER, LARGE[np.arange(N) // 5]
    matrix[inner, outer] = matrix[outer, inner] = -0.5


def a_walk(matrix):
    matrix[LARGE[1:], LARGE[:-1]] = matrix[LARGE[:-1], LARGE[1:]] = 0.7


@pytest.mark.parametrize("parts", [[], [with_a_mean], [nested], [a_walk, with_a_mean, nested]])
def test_second_derivatives_are_known_from_both_sides(parts):
    matrix = np.diag(np.r_[1.0, 4.0, np.zeros(2 * N)])
    for part in (of_levels, *parts):
        part(matrix)
    found = affine_derivatives(
        lambda x: 1.0 + x @ matrix, np.ones(len(matrix)), [SMALL, LARGE, OTHER], symmetric=True
    )
    assert_allclose(found.toarray(), matrix, atol=1e-9)


@pytest.mark.parametrize("n_several", [0, 3])
def test_outputs_may_depend_on_one_coordinate_or_on_several(n_several):
    rng = np.random.default_rng(1)
    matrix = np.zeros((2 + N, 2 * N))
    matrix[LARGE[rng.integers(N, size=2 * N)], np.arange(2 * N)] = rng.normal(size=2 * N)
    matrix[0] = 1.0
    matrix[:, :n_several] = rng.normal(size=(len(matrix), n_several))
    found = affine_derivatives(lambda x: x @ matrix - 3.0, np.zeros(2 + N), [SMALL, LARGE])
    assert_allclose(found.toarray(), matrix, atol=1e-9)


def test_a_few_evaluations_are_enough_for_many_levels():
    n_points = []

    def function(x):
        n_points.append(len(x))
        return np.hstack([2.0 * x[:, 1:], x[:, :1]])

    found = affine_derivatives(function, np.zeros(10_001), [np.arange(1), np.arange(1, 10_001)])
    assert found.nnz == 10_001
    assert sum(n_points) < 20


def test_coordinates_that_are_not_named_do_not_move():
    def function(x):
        assert len(x)  # densities refuse no points
        return x

    assert affine_derivatives(function, np.zeros(N + 2), [LARGE]).nnz == N
