"""The joint objective of groups, and its minimiser, against dense matrices of all groups."""

import numpy as np
import pytest
from scipy.optimize import nnls

from pymc_coresets.solving.groups import GroupTerms, joint_objective, joint_weights, select_rows
from pymc_coresets.solving.nnls import nonnegative_least_squares
from pymc_coresets.solving.problem import tangent_vectors
from pymc_coresets.solving.shared_basis import SharedBasis, chance_functions, n_functions

N_GROUPS, N_ROWS, N_DRAWS, P = 6, 7, 400, 2


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(11)


@pytest.fixture(scope="module")
def world(rng):
    """Basis and vectors (G, n, S), whose local parts lie in orthogonal spaces, group by group."""
    basis = SharedBasis.of(rng.normal(size=(N_DRAWS, P)))
    m = basis.functions.shape[1]
    free = np.linalg.qr(np.c_[np.ones(N_DRAWS), basis.functions, rng.normal(size=(N_DRAWS, 40))])
    local = free[0][:, 1 + m : 1 + m + 4 * N_GROUPS].T.reshape(N_GROUPS, 4, N_DRAWS)
    shared = rng.normal(size=(N_GROUPS, N_ROWS, m)) + rng.normal(size=m)
    own = rng.normal(size=(N_GROUPS, N_ROWS, 4)) + 1.0
    return basis, shared @ basis.functions.T + own @ local


def terms_of(basis, vectors, chosen, weights):
    return [
        GroupTerms.of(v[c], v.sum(axis=0), w, basis)
        for v, c, w in zip(vectors, chosen, weights, strict=True)
    ]


def test_the_objective_is_the_variance_of_the_log_ratio(world, rng):
    basis, vectors = world
    chosen = [rng.permutation(N_ROWS)[:3] for _ in vectors]
    weights = [rng.exponential(2.0, 3) for _ in vectors]
    lacking = sum(
        v.sum(axis=0) - w @ v[c] for v, c, w in zip(vectors, chosen, weights, strict=True)
    )
    found = sum(joint_objective(terms_of(basis, vectors, chosen, weights), weights))
    np.testing.assert_allclose(found, N_DRAWS * np.var(lacking), rtol=1e-10)


def dense_problem(vectors, chosen):
    """All groups at once: their parts are orthogonal, so that the sums have the same objective."""
    rows = np.concatenate([v[c] for v, c in zip(vectors, chosen, strict=True)])
    return nnls(rows.T, vectors.sum(axis=(0, 1)))


def test_joint_weights_are_those_of_one_dense_problem(world, rng):
    basis, vectors = world
    chosen = [rng.permutation(N_ROWS)[:4] for _ in vectors]
    terms = terms_of(basis, vectors, chosen, [np.zeros(4)] * N_GROUPS)
    dense, distance = dense_problem(vectors, chosen)
    found = joint_weights(terms)
    np.testing.assert_allclose(np.concatenate(found), dense, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sum(joint_objective(terms, found)), distance**2, rtol=1e-8)
    assert (dense == 0).any()  # the constraints are felt


def test_rows_that_depend_on_each_other_are_no_trouble(world, rng):
    basis, vectors = world
    chosen = [rng.permutation(N_ROWS)[:6] for _ in vectors]  # in spaces of four dimensions
    vectors = vectors * np.linspace(0.5, 2, N_ROWS)[:, None]
    terms = terms_of(basis, vectors, chosen, [np.ones(6)] * N_GROUPS)
    found = sum(joint_objective(terms, joint_weights(terms)))
    total = sum(group.target_square for group in terms)
    assert found <= dense_problem(vectors, chosen)[1] ** 2 + 1e-7 * total


def test_weights_never_become_worse(world):
    basis, vectors = world
    terms = terms_of(basis, vectors, [np.arange(N_ROWS)] * N_GROUPS, [np.ones(N_ROWS)] * N_GROUPS)
    assert sum(joint_objective(terms, joint_weights(terms))) <= 1e-12


def test_no_groups_have_no_weights():
    assert joint_weights([]) == []


def test_rows_of_one_group_are_those_of_pursuit(world):
    basis, vectors = world
    group = vectors[0]
    target = group.sum(axis=0)
    nothing = np.zeros(basis.functions.shape[1])
    chosen, weights = select_rows(group, target, basis, nothing, tolerance=1e-12, size=N_ROWS)
    assert (np.diff(chosen) > 0).all()
    assert (weights > 0).all()
    np.testing.assert_allclose(weights @ group[chosen], target, atol=1e-6)
    expected = nonnegative_least_squares(group[chosen], target)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_a_group_makes_up_for_what_others_lack(world, rng):
    basis, vectors = world
    lacking = rng.normal(size=basis.functions.shape[1])
    group, target = vectors[0], vectors[0].sum(axis=0)
    chosen, weights = select_rows(group, target, basis, lacking, tolerance=1e-3, size=N_ROWS)
    left = target + basis.functions @ lacking - weights @ group[chosen]
    assert np.linalg.norm(basis.coordinates(left)) < np.linalg.norm(lacking)


def test_the_basis_holds_all_quadratic_functions(rng):
    z = rng.normal(size=(200, 3))
    basis = SharedBasis.of(z).functions
    assert basis.shape == (200, n_functions(3))
    wanted = z[:, 0] * z[:, 2] - 2 * z[:, 1] + 3 * z[:, 1] ** 2
    wanted -= wanted.mean()
    np.testing.assert_allclose(basis @ (basis.T @ wanted), wanted, atol=1e-10)
    # Functions that the draws do not tell apart are left out.
    assert SharedBasis.of(np.c_[z[:, :1], z[:, :1]]).functions.shape == (200, n_functions(1))


def test_what_is_shared_by_chance_is_taken_out(rng):
    z, own = rng.normal(size=(300, 1)), rng.normal(size=(300, 2))
    basis, own = SharedBasis.of(z), own - own.mean(axis=0)
    slopes, truth = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    vectors = truth @ basis.functions.T + slopes @ own.T
    cleaned = basis.coordinates(basis.without_noise(vectors, own))
    np.testing.assert_allclose(cleaned, truth, atol=1e-10)
    assert np.abs(basis.coordinates(vectors) - truth).max() > 0.01


def test_what_curvature_shares_by_chance_is_taken_out(rng):
    """Rows of a logistic regression, whose expectations given the shared part are known."""
    z, noise = rng.normal(size=(200, 2)), rng.normal(size=(200, 1))
    z, noise = np.r_[z, z], np.r_[noise, -noise]
    basis, lines = SharedBasis.of(z), 0.1 * rng.normal(size=(5, 2)) @ z.T
    nodes, masses = np.polynomial.hermite_e.hermegauss(20)
    values = -np.logaddexp(0, lines + 0.5 + 0.5 * noise[:, 0])
    at_nodes = -np.logaddexp(0, lines[..., None] + 0.5 + 0.5 * nodes)
    exact = basis.coordinates(tangent_vectors(at_nodes @ (masses / masses.sum())))

    def error(functions):
        by_chance = tangent_vectors(functions.T).T
        found = basis.coordinates(basis.without_noise(tangent_vectors(values), by_chance))
        return np.linalg.norm(found - exact)

    assert error(chance_functions(noise, z)) < 0.5 * error(noise**2 - 1)
    assert error(noise**2 - 1) < 0.5 * np.linalg.norm(
        basis.coordinates(tangent_vectors(values)) - exact
    )


def test_few_draws_allow_few_functions(rng):
    noise, shared = rng.normal(size=(40, 2)), rng.normal(size=(40, 5))
    assert chance_functions(noise, shared).shape == (40, 3)
    assert chance_functions(noise[:, :1], shared).shape == (40, 7)


def test_levels_without_a_local_part_are_weighted_for_what_is_shared(rng):
    """As one without variables of its own, in a model whose potentials are quadratic."""
    shared, target = rng.uniform(size=(2, 3, 2)), np.array([3.0, 2.0])
    groups = [
        GroupTerms(own, np.zeros((3, 3)), np.zeros(3), target / 2, 0.0, np.ones(3))
        for own in shared
    ]
    found = np.concatenate(joint_weights(groups))
    _, expected = nnls(shared.reshape(6, 2).T, target)
    assert (found >= 0).all()
    assert np.linalg.norm(shared.reshape(6, 2).T @ found - target) <= expected + 1e-5
