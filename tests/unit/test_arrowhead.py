"""Cholesky factors by the Schur complement of coordinates that do not meet."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import LinAlgError

from pymc_coresets.sampling.factors.arrowhead import Arrowhead, independent


def crossed(rng, n_large=20, n_small=6):
    """Return the precision of the levels of two crossed factors, shuffled."""
    meets = rng.uniform(size=(n_large, n_small)) < 0.3
    matrix = np.diag(rng.uniform(8.0, 9.0, n_large + n_small))
    matrix[:n_large, n_large:] = meets
    matrix[n_large:, :n_large] = meets.T
    order = rng.permutation(len(matrix))
    return matrix[np.ix_(order, order)], set(np.flatnonzero(order < n_large).tolist())


@pytest.fixture
def dense():
    return crossed(np.random.default_rng(1))[0]


@pytest.fixture
def factor(dense):
    matrix = sparse.csr_array(dense)
    [cut] = Arrowhead.of(matrix)
    return cut.factor(matrix)


def test_levels_of_the_larger_factor_are_eliminated():
    dense, large = crossed(np.random.default_rng(1))
    assert set(np.flatnonzero(independent(sparse.csr_array(dense))).tolist()) >= large


def test_its_products_with_vectors_are_those_of_a_root(dense, factor):
    identity = np.eye(len(dense))
    root = factor.root_times(identity)
    assert_allclose(root @ root.T, dense, atol=1e-12)
    assert_allclose(root.T @ factor.offset(identity), identity, atol=1e-12)
    assert_allclose(factor.whiten(identity), root, atol=1e-12)
    assert_allclose(factor.whiten_gradients(dense[0]), root[0], atol=1e-12)


def test_it_solves_and_has_the_determinant(dense, factor):
    assert_allclose(factor.solve(dense), np.eye(len(dense)), atol=1e-12)
    assert_allclose(factor.solve(dense[0]), np.eye(len(dense))[0], atol=1e-12)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(dense)[1])


def test_it_survives_a_pickle(dense, factor):
    assert_allclose(pickle.loads(pickle.dumps(factor)).solve(dense[0]), factor.solve(dense[0]))


@pytest.mark.parametrize("where", ["inner", "outer"])
def test_a_matrix_that_is_not_positive_definite_is_refused(dense, factor, where):
    cut = factor.cut
    bad = getattr(cut, where)[0]
    dense[bad, bad] = -1.0
    with pytest.raises(LinAlgError):
        cut.factor(sparse.csr_array(dense))


def test_coordinates_that_all_meet_have_one_inner_one():
    matrix = sparse.csr_array(np.full((4, 4), 0.5) + np.eye(4))
    [cut] = Arrowhead.of(matrix)
    assert len(cut.inner) == 1
    assert_allclose(cut.factor(matrix).solve(matrix.toarray()), np.eye(4), atol=1e-12)
