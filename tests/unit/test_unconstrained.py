"""Many points of the unconstrained space at once, against PyMC's own functions of one point."""

import keyword

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.graphs import parameter_inputs
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.sampling.density import Density
from tests.modes import PLAIN_MODE


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
