"""Factors of precisions, dense, sparse and of arrowheads, and derivatives with their pattern."""

import pickle

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.linalg import LinAlgError
from threadpoolctl import threadpool_info, threadpool_limits

import pymc_coresets as pmc
from pymc_coresets import Coreset, SamplingError, build_coreset
from pymc_coresets.compat.pymc_api import CpuLeapfrogIntegrator, DictToArrayBijection
from pymc_coresets.glm.concavity import concave, largest_share
from pymc_coresets.glm.control_variates.expansion import reliability
from pymc_coresets.glm.control_variates.sparse_derivatives import affine_derivatives
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import Quadratic, symmetric_product
from pymc_coresets.sampling.factors.arrowhead import Arrowhead, independent
from pymc_coresets.sampling.factors.cholesky import (
    CholeskyFactor,
    DenseFactor,
    factor_near,
    factor_of,
)
from pymc_coresets.sampling.maximisation.central_differences import sparse_differences
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.scales.laplace_given_scales import LaplaceGivenScales
from pymc_coresets.sampling.scales.scale_modes import MarginalModes
from pymc_coresets.sampling.steps.nuts import PrecisionLeapfrog, PrecisionPotential
from tests.modes import PLAIN_MODE
from tests.refusals import refused

# -- Cholesky factors by the Schur complement of coordinates that do not meet. ---------------------


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


# -- BLAS has one thread in all that takes long: for small matrices, others only wait. -------------

QUIET = {"random_seed": 1, "progressbar": False}


def threads():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture
def seen(monkeypatch):
    """The numbers of BLAS threads when normal distributions are factorised or used."""
    found = set()
    for name in ("__init__", "solve", "whiten", "offset"):
        usual = getattr(DenseFactor, name)

        def counted(self, *args, usual=usual, **kwargs):
            found.update(threads())
            return usual(self, *args, **kwargs)

        monkeypatch.setattr(DenseFactor, name, counted)
    return found


@pytest.fixture(scope="module")
def model():
    x = np.random.default_rng(1).normal(size=(3_000, 26))
    with pm.Model() as model:
        eta = 0.5 + x @ pm.Normal("b", 0, 1, shape=26)
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(3_000) % 4)
    return model


def test_builds_samples_and_checks_use_one_thread(model, seen):
    with threadpool_limits(2, "blas"):
        coreset = pmc.build_coreset(model, method="control_variates", **QUIET)
        coreset.importance_draws(random_seed=1)
        coreset.check(coreset.sample(**QUIET))
        assert seen == {1}
        assert threads() == {2}  # of the user, as before


def test_one_call_uses_one_thread(model, seen):
    with threadpool_limits(2, "blas"):
        pmc.sample(model, **QUIET)
    assert seen == {1}


# -- Sparse derivatives of affine functions, by few evaluations. -----------------------------------

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


# -- Modes of the scales of a hierarchy: the densities around them, and those of all variables. ----

CENTRES, HEIGHTS = np.array([[-20.0, 0.0], [20.0, 0.0]]), np.array([3.0, -1.0])


@pytest.fixture(scope="module")
def modes():
    """Two normal modes that are far apart, of the same widths."""
    parts = [Normal(centre, factor_of(np.diag([1.0, 4.0]))) for centre in CENTRES]
    return MarginalModes(parts, HEIGHTS)


def test_densities_at_modes_have_the_known_heights(modes):
    np.testing.assert_allclose(modes.log_density(CENTRES), HEIGHTS)
    away = CENTRES + 1.0
    np.testing.assert_allclose(modes.log_density(away), HEIGHTS - (1 + 4) / 2)


def test_points_belong_to_the_mode_of_the_higher_density(modes):
    """Between modes of equal widths, as far from the middle as heights over the distance."""
    border = (HEIGHTS[0] - HEIGHTS[1]) / 40
    points = np.array([[border - 0.01, 0.0], [border + 0.01, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(modes.nearest(points), [0, 1, 0])


def test_a_mode_of_scales_gives_that_of_all_variables():
    """Of a normal posterior, whose curvature is known."""
    rng, n, is_scale = np.random.default_rng(1), 5, np.array([True, False, False, True, False])
    root, mean = np.eye(n) + 0.3 * rng.normal(size=(n, n)), rng.normal(size=n)
    precision = root @ root.T

    def density(x):
        return -((x - mean) * ((x - mean) @ precision)).sum(axis=1) / 2, -(x - mean) @ precision

    def prior(x):
        return -np.square(x).sum(axis=1) / 20, -x / 10

    known = LaplaceGivenScales.at(density, prior, is_scale, np.zeros(n))
    marginal = np.linalg.inv(np.linalg.inv(precision)[np.ix_(is_scale, is_scale)])
    found = known.local(Normal(mean[is_scale], factor_of(marginal)))
    np.testing.assert_allclose(found.x, mean, atol=1e-6)
    np.testing.assert_allclose(found.around.factor.matrix, precision, rtol=1e-5, atol=1e-6)
    assert found.height == pytest.approx(0.0, abs=1e-10)


# -- Sparse quadratics of many coefficients: products, roots, derivatives, shrinking, and NUTS. ----

N_CROSSED, FIRST, SECOND = 3_000, 40, 30


def definite(seed, n=60):
    """Return a sparse matrix whose factor needs another order of its rows."""
    rng = np.random.default_rng(seed)
    root = sparse.random_array((n, n), density=0.05, rng=rng) + sparse.eye_array(n)
    return sparse.csr_array(root @ root.T + 0.1 * sparse.eye_array(n))


def crossed_models(rng, n=N_CROSSED):
    """Levels of two factors with free scales, and a free noise."""
    codes = [rng.choice(k, n, p=rng.dirichlet(np.ones(k))) for k in (FIRST, SECOND)]
    effects = [rng.normal(0, sd, k) for sd, k in ((0.8, FIRST), (0.5, SECOND))]
    y = sum(e[c] for e, c in zip(effects, codes, strict=True)) + rng.normal(size=n)
    with pm.Model() as model:
        eta = pm.Normal("mean", 0, 2)
        for name, code, k in zip("ab", codes, (FIRST, SECOND), strict=True):
            eta = eta + pm.Normal(name, 0, pm.HalfNormal(f"{name}_scale", 1), shape=k)[code]
        pm.Normal("y", eta, pm.HalfNormal("noise", 2), observed=y)
    return model


@pytest.fixture
def sparsely(limits):
    """Treat a few dozens of coefficients as if they were thousands."""
    limits(dense_up_to=10, dense_from=1.0, most_by_laplace=10)


@pytest.mark.parametrize("seed", range(3))
def test_coordinates_in_which_a_normal_distribution_is_round(seed):
    """Dense and sparse, and with the order of another factor."""
    matrix, rng = definite(seed), np.random.default_rng(seed)
    known = factor_of(matrix)
    for factor in (known, factor_of(matrix.toarray()), known.layout.factor(matrix)):
        z = rng.normal(size=(7, 60))
        x = factor.offset(z.T).T
        assert_allclose(factor.whiten(x), z, atol=1e-8)
        assert_allclose(np.square(z).sum(axis=1), (x * (matrix @ x.T).T).sum(axis=1))


@pytest.mark.parametrize("seed", range(5))
def test_a_factor_is_a_root(seed):
    matrix = definite(seed)
    rng = np.random.default_rng(seed)
    for given in (matrix, matrix.toarray()):
        factor = pickle.loads(pickle.dumps(factor_of(given)))
        root = np.column_stack([factor.root_times(z) for z in np.eye(60)])
        assert_allclose(root @ root.T, matrix.toarray(), atol=1e-10)
        assert_allclose(matrix @ factor.solve(np.eye(60)), np.eye(60), atol=1e-9)
    known = factor_of(matrix).layout.factor(2 * matrix)
    again = known.layout.factor(3 * matrix)  # in an order that is known
    root = np.column_stack([again.root_times(z) for z in np.eye(60)])
    assert_allclose(root @ root.T, 3 * matrix.toarray(), atol=1e-10)
    assert_allclose(matrix @ again.solve(np.eye(60)), np.eye(60) / 3, atol=1e-9)
    assert_allclose(again.log_determinant, np.linalg.slogdet(3 * matrix.toarray())[1])
    draws = factor.draw_inverse(4_000, rng=rng)  # of which a variance is known to 2 %
    expected = np.linalg.inv(matrix.toarray()).diagonal()
    assert_allclose(draws.var(axis=0), expected, rtol=0.12)


def test_the_cost_of_a_factor_counts_its_entries():
    """That of blocks is the sum of theirs, where a dense matrix of them costs the third power."""
    sizes = np.array([1, 2, 5])
    one = sparse.csr_array(np.eye(40) + 1.0)  # of which the factor has no zeros
    costs = [factor_of(sparse.block_diag([one] * k, format="csr")).n_operations for k in sizes]
    assert_allclose(costs, 20 * sizes * 40 * (41 / 2) ** 2)
    assert factor_of(sparse.eye_array(40, format="csr")).n_operations == 20 * 40
    assert_allclose([factor_of(np.eye(k)).n_operations for k in sizes], sizes**3 / 3)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("matrix", [[[1.0, 3.0], [3.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]])
def test_what_is_not_definite_is_refused_or_mended(kind, matrix):
    given = kind(np.array(matrix))
    with pytest.raises(LinAlgError):
        factor_of(given)
    mended = factor_near(given).matrix
    assert np.linalg.eigvalsh(mended @ np.eye(2))[0] > 0
    assert_allclose((mended @ np.eye(2))[0, 1], matrix[0][1])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("matrix", [[[0.0, 0.0], [0.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]])
def test_what_nothing_makes_definite_is_refused(kind, matrix):
    """As of a flat prior, for a variable that no row sees."""
    with refused(SamplingError, "improper", "precision"):
        factor_near(kind(np.array(matrix)))


@pytest.mark.parametrize(
    "mode", ["FAST_COMPILE", *(pytest.param(m, marks=pytest.mark.slow) for m in (None, "JAX"))]
)
def test_the_product_and_its_derivatives(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    matrix, x = definite(1, 8), pt.dvector("x")
    entries = matrix.tocoo()
    rows, columns = (place.astype(np.int32) for place in entries.coords)
    product = symmetric_product(*map(pt.as_tensor, (entries.data, rows, columns)), x)
    value = x @ product / 2
    function = pytensor.function([x], [product, pt.grad(value, x), pt.hessian(value, x)], mode=mode)
    at = np.arange(8.0)
    for found, expected in zip(
        function(at), (matrix @ at, matrix @ at, matrix.toarray()), strict=True
    ):
        assert_allclose(found, expected, rtol=1e-6)


def test_a_sparse_quadratic_is_the_dense_one(tmp_path):
    rng, matrix, c = np.random.default_rng(2), definite(2, 12), pt.dvector("c")
    numbers = {"names": tuple("abcdefghijkl"), "center": rng.normal(size=12), "interface": c}
    dense = Quadratic(slope=rng.normal(size=12), curvature=-matrix.toarray(), **numbers)
    sparse_one = Quadratic(slope=dense.slope, curvature=-matrix, **numbers)
    at = rng.normal(size=(5, 12))
    assert_allclose(sparse_one.at(at), dense.at(at))
    compiled = [pytensor.function([c], q.potential()) for q in (sparse_one, dense)]
    assert_allclose(compiled[0](at[0]), compiled[1](at[0]))
    sparse_one.stored.to_netcdf(tmp_path / "q.nc", engine="h5netcdf")
    again = Quadratic.restored(sparse_one.stored)
    assert sparse.issparse(again.curvature)
    assert_array_equal(again.curvature.toarray(), -matrix.toarray())
    for one in (sparse_one, dense):
        assert_allclose(one.slopes_at(at), one.slope + (at - one.center) @ -matrix.toarray())
        assert_allclose(one.uncorrelated.at(one.center[None]), 0.0)
        assert (one.uncorrelated.at(at) < 0).all()


def test_sums_and_shrinking_are_those_of_dense_matrices(limits):
    found = find_predictors(find_observations(crossed_models(np.random.default_rng(3))))
    rows, rng = (
        RowsInMemory(found, np.arange(N_CROSSED), np.ones(N_CROSSED)),
        np.random.default_rng(4),
    )
    curvatures = -np.moveaxis(np.array([np.eye(2)] * N_CROSSED), 0, -1)
    dense = rows.gram(curvatures)
    limits(dense_up_to=10)
    thin = rows.gram(curvatures)
    assert isinstance(dense, np.ndarray)
    assert sparse.issparse(thin)
    assert_allclose(thin.toarray(), dense, atol=1e-12)
    posterior = sparse.csr_array(sparse.eye_array(len(dense)) - thin)
    some, drawn = (
        rows.take(np.arange(0, N_CROSSED, 100)),
        np.ones(N_CROSSED // 100, dtype=bool),
    )
    weights, own = np.full(N_CROSSED // 100, 100.0), curvatures[..., ::100]
    covariance = np.linalg.inv(posterior.toarray())
    away = rng.multivariate_normal(np.zeros(len(dense)), covariance, size=400)
    shrunk = [
        concave(some, weights, own, p, away, drawn=drawn) for p in (posterior, posterior.toarray())
    ]
    for found_weights in shrunk:
        of_rows = -some.gram(found_weights * own).toarray()
        assert largest_share(of_rows, posterior.toarray()) <= 1.0 + 1e-6
    assert_allclose(shrunk[0], shrunk[1], rtol=0.1)
    assert largest_share(-some.gram(weights * own).toarray(), posterior.toarray()) > 1.0


def test_differences_are_derivatives():
    matrix, x = definite(5, 250), np.linspace(-1, 1, 250)
    found = sparse_differences(lambda points: (matrix @ points.T).T, x, np.full(250, 0.1))
    assert_allclose(found.toarray(), matrix.toarray(), atol=1e-9)
    assert found.nnz == matrix.nnz


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_leapfrog_steps_are_those_of_pymc(form):
    with pm.Model() as model:
        pm.StudentT("x", 3, shape=4)
    step = pm.NUTS(model=model)
    metric = form(np.diag([1.0, 2.0, 3.0, 4.0]) + 0.5)
    potential = PrecisionPotential(factor_of(metric), np.random.default_rng(1))
    ours, theirs = (
        kind(potential, step._logp_dlogp_func)
        for kind in (PrecisionLeapfrog, CpuLeapfrogIntegrator)
    )
    at, momentum = DictToArrayBijection.map({"x": np.ones(4)}), np.arange(4.0)
    found, expected = (one.compute_state(at, momentum) for one in (ours, theirs))
    for epsilon in (0.3, 0.3, -0.3, 0.3):
        found, expected = ours.step(epsilon, found), theirs.step(epsilon, expected)
        assert_allclose(found.q.data, expected.q.data, rtol=1e-12)
        for one, other in zip(found[1:], expected[1:], strict=True):
            assert_allclose(one, other, rtol=1e-12)


def test_nuts_draws_by_a_precision():
    """Of a normal distribution with correlations of 0.99, by a few hundred draws."""
    precision = np.linalg.inv(np.full((5, 5), 0.99) + 0.01 * np.eye(5))
    with pm.Model():
        pm.MvNormal("x", np.zeros(5), tau=precision)
        potential = PrecisionPotential(factor_of(precision), np.random.default_rng(1))
        step = pm.NUTS(potential=potential, compile_kwargs={"mode": PLAIN_MODE})
        idata = pm.sample(
            300, tune=100, step=step, chains=2, cores=1, random_seed=1, progressbar=False
        )
    x = idata.posterior["x"].to_numpy().reshape(-1, 5)
    # 600 draws that hardly depend on one another: a variance is known to 6 %.
    assert_allclose(x.var(axis=0), 1.0, rtol=0.3)
    assert_allclose((x[:, 0] - x[:, 1]).var(), 0.02, rtol=0.3)
    assert idata.sample_stats["tree_depth"].max() <= 4


@pytest.mark.usefixtures("sparsely")
@pytest.mark.parametrize(
    "nuts", [{}, pytest.param({"nuts_sampler": "pymc"}, marks=pytest.mark.slow)]
)
def test_factors_of_many_levels(nuts, tmp_path):
    """All that is made for thousands of dimensions, on a few dozen."""
    model = crossed_models(np.random.default_rng(6), 2 * N_CROSSED)
    coreset = build_coreset(model, method="control_variates", random_seed=1, progressbar=False)
    assert sparse.issparse(coreset.quadratic.curvature)
    assert coreset.objective <= 0.01
    assert isinstance(coreset.proposal.around.metric, CholeskyFactor)
    assert [v.name for v in coreset.model.free_RVs] == [v.name for v in model.free_RVs]
    options = {"draws": 200, "chains": 2, "cores": 1, "random_seed": 2, "progressbar": False}
    idata = coreset.sample(**nuts, **options)
    # Of 100 draws: with a standard error of 14 %.
    assert coreset.verify(idata, draws=100).by_pymc < 0.02
    assert not nuts or idata.sample_stats["tree_depth"].mean() <= 4
    # Its draws are the same after a file, and as a copy: how precisions are decomposed comes along.
    assert isinstance(coreset.proposal.around.decomposed.__self__, Arrowhead)
    coreset.to_netcdf(tmp_path / "coreset.nc")
    others = (
        Coreset.from_netcdf(tmp_path / "coreset.nc", model),
        pickle.loads(pickle.dumps(coreset)),
    )
    for other in others:
        assert isinstance(other.proposal.around.decomposed.__self__, Arrowhead)
        x, y = (
            c.proposal.around.draw(20, rng=np.random.default_rng(1))[0] for c in (other, coreset)
        )
        np.testing.assert_allclose(x, y, rtol=1e-9)


@pytest.mark.parametrize(("signal", "noise"), [(1.0, 0.0), (1.0, 1.0), (0.01, 3.0), (0.0, 1.0)])
def test_rows_never_add_more_than_they_take(signal, noise):
    """The error of a sum that counts by its reliability is ``signal noise / (signal + noise)``."""
    share = reliability(signal, noise)
    error = share**2 * noise + (1 - share) ** 2 * signal
    assert error <= min(signal, noise) + 1e-12
