"""Points, draws, and densities of weighted rows at them: gradients, and log-concavity."""

import keyword
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from arviz_base import generate_dims_coords
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm, poisson

from pymc_coresets import InvalidDataError, build_coreset
from pymc_coresets.reading.draws import Draws, dims_of
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.graphs import parameter_inputs
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.rowlogp.functions import Functions
from pymc_coresets.rowlogp.log_concavity import (
    AFFINE,
    Convexities,
    is_log_concave,
    rows_are_log_concave,
)
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.sampling.density import Density, Surrogate, pass_of
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.one_point import OnePoint
from tests.derived import likelihood_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused

# -- Many points of the unconstrained space at once, against PyMC's own functions of one point. ----


def transformed():
    pm.Normal("eta", pm.HalfNormal("sd", shape=2)[:, None], shape=(2, 3))
    pm.Dirichlet("share", np.ones(3))
    pm.Uniform("within", -1.0, 2.0)


def cholesky_of_correlations():
    pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))


def ordered_and_zero_sum():
    pm.Normal("cuts", shape=3, transform=pm.distributions.transforms.ordered)
    pm.ZeroSumNormal("levels", shape=4)


def others_kept():
    x = pm.Normal("x", shape=2)
    pm.Potential("tilt", (x**2).sum())
    pm.Poisson("counts", pm.math.exp(x[0]), observed=[1, 2, 0])
    pm.Potential("plane", 100 * x.sum())


def discrete():
    k = pm.Poisson("k", 2.0)
    pm.Normal("x", k, 1.0, shape=2)


def flat():
    pm.Flat("anything", shape=2)


def loop():
    start = pm.Normal("start")
    steps = pm.Normal("steps", shape=4)
    path = pytensor.scan(
        lambda step, before: 0.5 * before + step,
        sequences=[steps],
        outputs_info=[start],
        return_updates=False,
    )
    pm.Potential("rough", -(path**2).sum())


def with_dims():
    a = pmd.Normal("a", dims="city")
    pmd.Normal("b", a, pmd.HalfNormal("sd"), dims="city")


MODELS = [
    transformed,
    cholesky_of_correlations,
    ordered_and_zero_sum,
    others_kept,
    discrete,
    flat,
    loop,
    with_dims,
]


def test_a_start_that_pymc_gives_to_ordered_variables_is_finite():
    with pm.Model() as model:
        ordered_and_zero_sum()
    assert not np.isfinite(model.initial_point()["cuts_ordered__"]).all()
    space = Unconstrained(model)
    [found], [gradient] = Density.of_model(space).slopes(space.start[None])
    # Cut points 0, 1, 2, whose logarithms of distances are 0, and levels of 0.
    assert_allclose(space.constrain(space.start[None]).values["cuts"], [[0.0, 1.0, 2.0]])
    assert_allclose(found, -3 * np.log(2 * np.pi) - (1 + 4) / 2)
    assert_allclose(gradient[:3], [-3.0, 1 - 3.0, 1 - 2.0])


def given_and_random():
    pm.Normal("given", shape=2, initval=np.array([3.0, 4.0]))
    pm.HalfNormal("random", initval="prior")


@pytest.mark.filterwarnings("ignore:PyTensor could not link")  # PyMC's initial points of LKJ
@pytest.mark.parametrize("write", [*MODELS, given_and_random])
def test_initial_values_are_those_that_pymc_compiles(write):
    with pm.Model(coords={"city": list("abc")}) as model:
        write()
    found, expected = Unconstrained(model).initial_point, model.initial_point(random_seed=0)
    assert list(found) == [value.name for value in model.value_vars]
    for name, value in found.items():
        assert value.dtype == expected[name].dtype
        assert_allclose(value, expected[name], rtol=1e-12)


@pytest.mark.filterwarnings("ignore:PyTensor could not link")  # PyMC's initial points of LKJ
@pytest.mark.parametrize(
    "write", [pytest.param(m, marks=[pytest.mark.slow] * (m is loop)) for m in MODELS]
)
def test_many_points_at_once_are_as_each_by_itself(write, limits):
    with pm.Model(coords={"city": list("abc")}) as model:
        write()
        free = [pt.as_tensor(rv, allow_xtensor_conversion=True) for rv in model.free_RVs]
        summed = pm.Normal("summed", sum(rv.sum() for rv in free), 1.0, observed=np.zeros(5))
    limits(entries_at_once=80)
    space = Unconstrained(model)
    points = 0.5 * np.random.default_rng(1).normal(size=(9, space.n_dims))
    points[:, ~space.continuous] = np.arange(9)[:, None]
    kept = [v for v in (*model.basic_RVs, *model.potentials) if v is not summed]
    logp = model.compile_logp(vars=kept, mode=PLAIN_MODE)
    rest = RestLogDensity(find_observations(model, observed="summed"))
    log_density = rest.values
    assert_allclose(log_density(points), [logp(space.point(x)) for x in points], rtol=1e-10)
    if not model.discrete_value_vars:
        values, slopes = rest.slopes(points)
        assert_allclose(values, log_density(points), rtol=1e-10)
        steps = 1e-5 * np.eye(space.n_dims)
        expected = [(log_density(points + e) - log_density(points - e)) / 2e-5 for e in steps]
        assert_allclose(slopes, np.transpose(expected), rtol=1e-5, atol=1e-5)
    free = model.replace_rvs_by_values(model.free_RVs)
    backward = model.compile_fn(free, mode=PLAIN_MODE, on_unused_input="ignore")
    draws = space.constrain(points)
    for i, x in enumerate(points):
        for rv, value in zip(model.free_RVs, backward(space.point(x)), strict=True):
            assert_allclose(draws.values[rv.name][i], value, rtol=1e-10, atol=1e-14)
    assert_allclose(space.free(draws), points, atol=1e-7)


@pytest.mark.filterwarnings("ignore:PyTensor could not link")  # PyMC's shapes of LKJ
@pytest.mark.parametrize("write", MODELS)
def test_shapes_are_those_that_pymc_evaluates(write):
    with pm.Model(coords={"city": list("abc")}) as model:
        write()
    expected, names = model.eval_rv_shapes(), [rv.name for rv in model.free_RVs]
    own, free = parameter_inputs(model), parameter_inputs(model, names)
    for rv in model.free_RVs:
        assert own[rv.name].type.shape == expected[rv.name]
        assert free[rv.name].type.shape == expected[model.rvs_to_values[rv].name]


@pytest.mark.parametrize("write", [transformed, ordered_and_zero_sum, discrete, with_dims])
def test_draws_are_float64_where_the_model_is_float32(write):
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model(coords={"city": list("abc")}) as model:
            write()
        space = Unconstrained(model)
        points = 0.5 * np.random.default_rng(1).normal(size=(3, space.n_dims))
        points[:, ~space.continuous] = np.arange(3)[:, None]
        draws = space.constrain(points)
        assert_allclose(space.free(draws), points, atol=1e-12)


# PyMC refuses "/", and ":" at the end.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"))
TYPES = [*np.sctypeDict, "floatX", "i8,f4", ">f8", "(2,3)f8", "U5", "m8[s]", "f"]
NAMES = (
    TEXT
    | st.sampled_from([*TYPES, *keyword.kwlist])
    | (st.integers() | st.floats()).map(str)
    | st.lists(st.sampled_from(["a", "1", "f8", "::", "|", ":", " ", ",", "(", ")"])).map("".join)
).filter(lambda name: not name.endswith(":"))


@given(name=NAMES)
@example("1|g_sigma")
@example("bs(time, degree=2, df=10)")
@example("a::b")
@settings(max_examples=40, deadline=None)
def test_a_variable_may_have_any_name_that_pymc_takes(name):
    with pm.Model() as model:
        pm.HalfNormal(name, shape=2)
    space, points = Unconstrained(model), np.arange(6.0).reshape(3, 2)
    tree = space.constrain(points).to_datatree()
    draws = Draws.of(tree, {name: (2,)})
    assert_allclose(space.free(draws), points)
    assert list(space.columns[name]) == [0, 1]
    x = pt.vector(name)
    assert_allclose(of_points([x], [x.sum()])(points)[0], points.sum(axis=1))


# -- draws -----------------------------------------------------------------------------------------

SHAPES = {"mu": (), "beta": (3,)}
RNG = np.random.default_rng(1)
MU, BETA = RNG.normal(size=(2, 5)), RNG.normal(size=(2, 5, 3))


def dataset():
    return xr.Dataset(
        {"mu": (("chain", "draw"), MU), "beta": (("chain", "draw", "k"), BETA)},
    )


@pytest.mark.parametrize(
    "draws",
    [
        dataset(),
        xr.DataTree.from_dict({"posterior": dataset()}),
        dataset().transpose("k", "draw", "chain"),
        {"mu": MU, "beta": BETA},
        {"mu": MU.reshape(10), "beta": BETA.reshape(10, 3), "other": np.zeros(3)},
        Draws({"mu": MU.reshape(10), "beta": BETA.reshape(10, 3)}),
    ],
    ids=["dataset", "tree", "transposed", "chains", "flat", "draws"],
)
def test_every_form_gives_the_same_draws(draws):
    found = Draws.of(draws, SHAPES)
    np.testing.assert_array_equal(found.values["mu"], MU.ravel())
    np.testing.assert_array_equal(found.values["beta"], BETA.reshape(10, 3))


def test_stacked_samples_are_read():
    stacked = dataset().stack(sample=("chain", "draw"))
    np.testing.assert_array_equal(Draws.of(stacked, SHAPES).values["mu"], MU.ravel())


def test_a_dimension_of_the_model_may_be_called_sample():
    draws = dataset().rename(k="sample").transpose("sample", ...)
    found = Draws.of(draws, SHAPES)
    np.testing.assert_array_equal(found.values["mu"], MU.ravel())
    np.testing.assert_array_equal(found.values["beta"], BETA.reshape(10, 3))


@pytest.mark.parametrize(
    ("draws", "facts"),
    [
        ({"mu": MU}, ("lack", "'beta'")),
        ({"mu": MU, "beta": BETA[..., :2]}, ("'beta'", "shape")),
        ({"mu": MU, "beta": np.full_like(BETA, np.nan)}, ("'beta'", "NaN")),
        ({"mu": MU[:, :4], "beta": BETA}, ("'mu': 8", "'beta': 10")),
        (xr.DataTree(), ("'posterior'", "[]")),
        ([1.0, 2.0], ("list", "DataTree")),
    ],
)
def test_bad_draws_are_named(draws, facts):
    with refused(InvalidDataError, facts, topic="draws"):
        Draws.of(draws, SHAPES)


def test_draws_of_the_package_itself_may_be_far_out():
    """Where they overflow, the user gave none: the log-likelihood there is NaN."""
    draws = Draws({"mu": np.array([0.0, np.inf]), "beta": np.full((2, 3), np.nan)})
    assert np.isinf(Draws.of(draws, SHAPES).values["mu"][1])
    with refused(InvalidDataError, "'mu'", "NaN", topic="draws"):
        Draws.of(draws.values, SHAPES)


def test_draws_become_a_datatree_and_draws_again():
    draws = Draws({"mu": np.arange(6.0), "b": np.arange(12.0).reshape(6, 2)})
    tree = draws.to_datatree(
        n_chains=2, dims={"b": ("k",)}, coords={"k": ("x", "y"), "other": None}
    )
    assert dict(tree["posterior"]["b"].sizes) == {"chain": 2, "draw": 3, "k": 2}
    assert list(tree["posterior"]["k"].values) == ["x", "y"]
    same = Draws.of(tree, {"mu": (), "b": (2,)})
    np.testing.assert_array_equal(same.values["b"], draws.values["b"])


def test_dims_and_labels_are_those_of_pymc():
    with pm.Model(coords={"k": ["x", "y"]}) as model:
        model.add_coord("unlabelled", length=3)
        pm.Normal("a", shape=(2, 3))
        pm.Normal("b", dims=("unlabelled", "k"))
        theirs = pm.sample_prior_predictive(4, random_seed=1)["prior"].to_dataset()
    draws = Draws({str(name): values[0].to_numpy() for name, values in theirs.items()})
    ours = draws.to_datatree(dims=model.named_vars_to_dims, coords=model.coords)["posterior"]
    xr.testing.assert_identical(ours.to_dataset(), theirs.drop_attrs(deep=True))


@pytest.mark.parametrize(
    "dims", [[], ["a"], ["a", None], [None, "a"], [None, "a", None], ["a", "b", "c"]]
)
def test_axes_without_names_are_numbered_as_by_arviz(dims):
    theirs, _ = generate_dims_coords((2, 3, 4), "x", list(dims))
    assert dims_of("x", 3, {"x": dims}) == theirs


def test_half_precision_is_too_coarse():
    with refused(InvalidDataError, "'beta'", "float16", "float32", topic="draws"):
        Draws.of({"mu": MU, "beta": BETA.astype(np.float16)}, SHAPES)
    single = Draws.of({"mu": MU, "beta": BETA.astype(np.float32)}, SHAPES)
    np.testing.assert_allclose(single.values["beta"], BETA.reshape(10, 3), rtol=1e-6)


# -- Which functions of rows NumPy evaluates, blocks of rows, and points without a density. --------

COUNTS = np.array([0, 1, 4])


def rows(n_obs, *, mean_size=1.0, n_nodes=1, prototypes=False):
    return SimpleNamespace(
        n_obs=n_obs, mean_size=mean_size, n_nodes=n_nodes, prototypes=prototypes, inputs=[]
    )


@pytest.mark.parametrize(
    ("given", "few"),
    [
        (rows(8_000), True),
        (rows(8_001), False),
        (rows(200, mean_size=4.0, n_nodes=10), True),
        (rows(200, mean_size=4.0, n_nodes=11), False),
        (rows(10, prototypes=True), False),
    ],
)
def test_numpy_evaluates_few_rows_if_they_are_all(given, few):
    assert Functions.of(given, are_all=True).few_rows is few
    assert not Functions.of(given).few_rows


@pytest.mark.parametrize(
    ("given", "few"),
    [
        # Of 1,000 rows at most, 2,000 points; and 20 of all: 2^23 numbers.
        (rows(1_000, n_nodes=4), True),
        (rows(1_000, n_nodes=5), False),
        (rows(319_000), True),
        (rows(320_000), False),
        (rows(10, prototypes=True), False),
    ],
)
def test_numpy_evaluates_the_slopes_of_few_searches(given, few):
    assert Functions.of(given).few_slopes is few


def test_many_numbers_are_for_loops():
    few = Functions(rows(10), few_rows=True, few_slopes=True)
    assert few.for_numbers(2**25) is few
    loops = few.for_numbers(2**25 + 1)
    assert (loops.few_rows, loops.few_slopes) == (False, False)
    assert loops.for_numbers(2**30) is loops.as_loops is loops


@pytest.mark.parametrize(
    ("n_bytes", "n_nodes", "size"),
    [(8, 1, 2**14), (256, 1, 2**14), (512, 1, 2**13), (512, 8, 2**11), (2**30, 1, 1)],
)
def test_blocks_have_at_most_so_many_rows_and_bytes(n_bytes, n_nodes, size):
    """Of each row's data, and of half of its nodes."""
    inputs = [SimpleNamespace(values=SimpleNamespace(nbytes=1_000 * n_bytes // 2))] * 2
    observations = SimpleNamespace(inputs=inputs, n_obs=1_000, n_nodes=n_nodes)
    loglik = SimpleNamespace(observations=observations, functions=SimpleNamespace(gradients=None))
    assert pass_of(loglik, np.zeros((1, 2))).size == size


def test_weighted_rows_have_a_density_and_slopes():
    """Minus infinity where nothing is left of it."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("b")), observed=COUNTS)
    loglik = likelihood_of(model)
    weights = np.array([1.0, 2.0, 0.5])
    surrogate = CoresetSampler(loglik).posterior(loglik.all_rows, weights)
    at = np.array([[800.0], [0.3]])
    expected = norm.logpdf(0.3) + poisson.logpmf(COUNTS, np.exp(0.3)) @ weights
    np.testing.assert_allclose(surrogate.log_density(at), [-np.inf, expected], rtol=1e-12)
    found = surrogate.slopes(at[1:])
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)
    slope = weights @ (COUNTS - np.exp(0.3)) - 0.3
    np.testing.assert_allclose(found.gradients, [[slope]], rtol=1e-12)


def test_densities_and_gradients_have_the_quadratic_beside_weighted_rows():
    """At many points and at one after another, in closed form: an observation of both numbers."""
    y, seen, covariance = (
        np.array([0.5, -1.0]),
        np.array([0.3, 0.7]),
        np.array([[2.0, 0.5], [0.5, 1.0]]),
    )
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Normal("y", b[0] + b[1], 1.0, observed=y)
    loglik = likelihood_of(model)
    quadratic = Quadratic(
        names=("b0", "b1"),
        center=seen,
        slope=np.array([0.1, -0.2]),
        curvature=-np.linalg.inv(covariance),
        interface=loglik.observations.parameters["b"],
    )
    weights, x = np.array([4.0, 0.5]), np.array([[0.0, 0.0], [1.0, -2.0], [3.0, 0.5]])
    posterior = Surrogate(loglik, loglik.in_memory.all, weights, quadratic)
    away = y - x.sum(axis=1)[:, None]
    of_rows = norm.logpdf(away) @ weights
    known = multivariate_normal(seen, covariance)
    of_quadratic = (x - seen) @ quadratic.slope + known.logpdf(x) - known.logpdf(seen)
    values = norm.logpdf(x).sum(axis=1) + of_rows + of_quadratic
    pull = quadratic.slope + (x - seen) @ quadratic.curvature
    gradients = -x + (away @ weights)[:, None] + pull
    one = OnePoint(posterior)
    for found in (posterior.slopes(x), zip(*map(one, x), strict=True)):
        for own, expected in zip(found, (values, gradients), strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-12)


# -- Proofs of log-concavity: no claim that numbers contradict, and no search where there is one. --

X = RNG.normal(size=(50, 3))
BINARY, SEEN, MEASURED = (X[:, 0] > 0).astype(int), RNG.poisson(2, 50), X[:, 1]


def normal():
    return pm.Normal("b", 0, 1, shape=3)


def model_of(likelihood, prior=normal):
    with pm.Model() as model:
        likelihood(X @ prior())
    return model


CONCAVE = {
    "logistic": lambda e: pm.Bernoulli("y", logit_p=e, observed=BINARY),
    "logistic by p": lambda e: pm.Bernoulli("y", p=pm.math.sigmoid(e), observed=BINARY),
    "binomial": lambda e: pm.Binomial("y", 9, logit_p=e, observed=SEEN),
    "poisson": lambda e: pm.Poisson("y", pm.math.exp(e), observed=SEEN),
    "normal": lambda e: pm.Normal("y", e, 2.0, observed=MEASURED),
    "laplace": lambda e: pm.Laplace("y", e, 2.0, observed=MEASURED),
    "gamma": lambda e: pm.Gamma("y", 2.0, 2.0 / pm.math.exp(e), observed=SEEN + 0.5),
    "weibull": lambda e: pm.Weibull("y", 2.0, pm.math.exp(e), observed=SEEN + 0.5),
    "softmax": lambda e: pm.Categorical(
        "y", logit_p=pt.stack([e, -e, 2 * e], axis=1), observed=SEEN % 3
    ),
    "known scale of effects": lambda e: pm.Bernoulli(
        "y",
        logit_p=e + pm.Normal("a", pm.Normal("m"), 1.0, shape=5)[SEEN % 5],
        observed=BINARY,
    ),
    "normal in a logarithm": lambda e: pm.Poisson(
        "y", pm.math.exp(e) * pm.LogNormal("a", 0.0, 1.0), observed=SEEN
    ),
}
OTHERS = {
    "free scale": lambda e: pm.Normal("y", e, pm.HalfNormal("s"), observed=MEASURED),
    "student": lambda e: pm.StudentT("y", nu=4, mu=e, sigma=1.0, observed=MEASURED),
    "squares": lambda e: pm.Normal("y", e**2, 1.0, observed=MEASURED),
    "free scale of effects": lambda e: pm.Bernoulli(
        "y",
        logit_p=e + pm.Normal("a", 0, pm.HalfNormal("t"), shape=5)[SEEN % 5],
        observed=BINARY,
    ),
    "jump at a free place": lambda e: pm.Normal(
        "y", pm.math.switch(e > pm.Normal("at"), 1.0, 0.0), 1.0, observed=MEASURED
    ),
    "equal on a half-space": lambda e: pm.Potential(
        "y", pt.switch(pt.eq(pt.maximum(e, 0.0), 0.0), e, -e)
    ),
    "equal where a square is zero": lambda e: pm.Potential(
        "y", pt.switch(pt.eq(pt.sqr(pt.maximum(e, 0.0)), 0.0), e, -2 * e)
    ),
    "complement of a probability by squares": lambda e: pm.Bernoulli(
        "y", p=pm.math.sigmoid(-(e**2)), observed=0 * BINARY
    ),
    "discrete": lambda e: pm.Normal("y", e + pm.Bernoulli("k", 0.3), 1.0, observed=MEASURED),
}


def proven(model):
    return is_log_concave(likelihood_of(model))


@pytest.mark.parametrize("kind", CONCAVE)
def test_what_is_proven_is_concave_by_the_density_of_pymc(kind):
    model = model_of(CONCAVE[kind])
    assert proven(model)
    logp = model.compile_logp(mode=PLAIN_MODE)
    n_dims = sum(np.size(value) for value in model.initial_point().values())
    for one, other in 2.0 * np.random.default_rng(2).normal(size=(12, 2, n_dims)):
        values = [logp(point_of(model, x)) for x in (one, other, (one + other) / 2)]
        assert values[2] >= (values[0] + values[1]) / 2 - 1e-9 * abs(values[2])


def point_of(model, x):
    point, used = {}, 0
    for name, start in model.initial_point().items():
        point[name] = x[used : used + start.size].reshape(start.shape)
        used += start.size
    return point


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_concave_is_not_proven(kind):
    assert not proven(model_of(OTHERS[kind]))


@pytest.mark.parametrize(
    ("prior", "is_concave"),
    [
        (lambda: pm.Laplace("b", 0, 1, shape=3), True),
        (lambda: pm.Flat("b", shape=3), True),
        (lambda: pm.StudentT("b", nu=3, shape=3), False),
        (lambda: pm.Cauchy("b", 0, 1, shape=3), False),
        (lambda: pm.NormalMixture("b", [0.5, 0.5], mu=[-1, 1], sigma=0.1, shape=3), False),
    ],
)
def test_the_prior_counts(prior, is_concave):
    assert proven(model_of(CONCAVE["logistic"], prior)) is is_concave


def test_nothing_is_known_of_rows_of_discrete_variables():
    assert not rows_are_log_concave(find_observations(model_of(OTHERS["discrete"])))


def test_nothing_is_known_of_rows_whose_signs_are_not():
    """With negative numbers of trials, which no model has, terms are convex."""
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.CustomDist("y", b, logp=lambda y, b: y * -pt.exp(b), observed=MEASURED)
    assert not proven(model)


# -- rules -----------------------------------------------------------------------------------------

ONE = [pt.exp, pt.softplus, pt.sigmoid, pt.sqr, pt.abs, pt.log1p, pt.neg, pt.erfc, pt.sqrt, pt.log]
TWO = [pt.add, pt.sub, pt.mul, pt.true_div, pt.maximum, pt.minimum]
LEAVES = st.sampled_from(["x", "y", "2", "-1", "0.5"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(ONE), inner), st.tuples(st.sampled_from(TWO), inner, inner)
    ),
    max_leaves=6,
)
PLACES = np.random.default_rng(3).uniform(-2, 2, size=(2, 2, 200))


def graph_of(tree, inputs):
    if isinstance(tree, str):
        return inputs[tree] if tree in inputs else pt.constant(float(tree))
    function, *arguments = tree
    return function(*(graph_of(one, inputs) for one in arguments))


@given(TREES)
@settings(max_examples=150, deadline=None)
def test_no_rule_claims_what_numbers_contradict(tree):
    inputs = {"x": pt.vector("x"), "y": pt.vector("y")}
    graph = graph_of(tree, inputs)
    claimed = Convexities(dict.fromkeys(inputs.values(), AFFINE), {}).of(graph)
    evaluated = numpy_function(list(inputs.values()), [graph * pt.ones_like(inputs["x"])])
    with np.errstate(all="ignore"):
        one, other, middle = (evaluated(*at)[0] for at in (*PLACES, PLACES.mean(axis=0)))
        mean, logs = (one + other) / 2, np.log(middle) - (np.log(one) + np.log(other)) / 2
        rounding = 1e-9 * (1 + np.abs(one) + np.abs(other))
        contradicted = {
            "convex": middle > mean + rounding,
            "concave": middle < mean - rounding,
            "log_convex": logs > 1e-9,
            "log_concave": logs < -1e-9,
            "nonnegative": middle < 0,
        }
    # Where a logarithm is not defined, nothing is claimed.
    defined = np.isfinite(one) & np.isfinite(other) & np.isfinite(middle)
    for name, against in contradicted.items():
        assert not (getattr(claimed, name) and (against & defined).any()), name


@pytest.mark.parametrize(("exponent", "is_even"), [(4, True), (3, False), ([2, 3, 2], False)])
def test_even_powers_are_convex(exponent, is_even):
    x = pt.vector("x")
    found = Convexities({x: AFFINE}, {}).of(pt.pow(x, np.array(exponent)))
    assert (found.convex, found.nonnegative, found.concave) == (is_even, is_even, False)


def test_a_square_is_not_positive_everywhere():
    x = pt.vector("x")
    never = pt.gt(pt.sqr(0.0 * x), 0.0)
    found = Convexities({x: AFFINE}, {}).of(pt.switch(never, -pt.sqr(x), pt.sqr(x)))
    assert (found.concave, found.convex) == (False, False)


# -- builds ----------------------------------------------------------------------------------------


def test_no_other_modes_are_looked_for_in_a_log_concave_posterior():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3_000, 3))
    y = rng.random(3_000) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5]))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        pm.Bernoulli("y", logit_p=x @ b, observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.modes.n_starts == 0
    assert coreset.modes.n_ended.sum() == 0
    assert "log-concave" in repr(coreset.modes)
    assert "log-concave" in coreset.certificate.modes.words
    assert coreset.certificate.verdict.text.startswith("Reliable: ")
