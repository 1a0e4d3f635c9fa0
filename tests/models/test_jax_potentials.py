"""Potentials by JAX are those of PyMC and of Numba, for every kind of model; or it is refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_coresets import Jax, UnsupportedModelError
from pymc_coresets.compat import jax_api
from pymc_coresets.compat.jax_api import jax
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.verification import verify
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.sampler import CoresetSampler
from tests.models.conftest import Specimen
from tests.models.zoo import CASES

#: One of each kind; the others are slow.
QUICK = {
    "linear",
    "logistic by logit_p",
    "negative binomial",
    "student",
    "softmax",
    "varying slopes of all covariates",
    "zero-inflated poisson",
    "censored normal on both sides",
    "censored weibull",  # a derivative close to where log(1 - exp(x)) is infinite
    "normal mixture",
    "missing values imputed",
    "normal vectors with a mean of each row",
    "cells, item response",
}
#: What PyTensor has no translation of, or JAX no derivative.
REFUSED: dict[str, str] = {}
CHOSEN = [
    pytest.param(name, id=name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES
]


@pytest.fixture(scope="module", params=CHOSEN)
def kind(request):
    return Specimen(CASES[request.param])


@pytest.fixture(scope="module")
def on_jax(kind):
    if kind.case.name in REFUSED:
        with pytest.raises(UnsupportedModelError, match=REFUSED[kind.case.name]):
            _ = LogLikelihood(kind.observations, backend=Jax()).kernel
        pytest.skip("refused, as it should be")
    return LogLikelihood(kind.observations, backend=Jax())


def test_the_quick_kinds_are_in_the_zoo():
    assert set(CASES) >= QUICK | set(REFUSED)


def test_potentials_are_those_of_pymc_and_of_numba(kind, on_jax):
    draws = kind.reference.draws
    found = on_jax.matrix(draws, finite=False)
    # PyMC rounds some constants of a Gaussian to single precision.
    assert_allclose(found, kind.reference.loglik, rtol=1e-8, atol=1e-9)
    assert_allclose(found, kind.loglik.matrix(draws, finite=False), rtol=1e-10, atol=1e-10)


def test_a_look_is_that_of_numba(kind, on_jax):
    draws, n_rows = kind.reference.draws, kind.case.n_obs
    found, expected = (each.look(draws, n_candidates=n_rows) for each in (on_jax, kind.loglik))
    scale = np.abs(kind.reference.loglik).sum()
    assert_allclose(found.total, expected.total, rtol=1e-10, atol=1e-12 * scale)
    assert_allclose(found.norm_total, expected.norm_total, rtol=1e-9)
    np.testing.assert_array_equal(found.candidates.positions, expected.candidates.positions)


def test_gradients_of_all_rows_are_those_of_pymc(kind, on_jax):
    space = Unconstrained(kind.sampled)
    if space.model.discrete_value_vars or kind.case.twin is not None:
        pytest.skip("no gradient, or no reference for it")
    names, points = list(space.point(space.start)), kind.reference.points
    at_points = np.stack([np.concatenate([np.ravel(p[n]) for n in names]) for p in points])
    n_rows = kind.case.n_obs
    values, gradients = on_jax.evaluator.slopes(space).at(at_points)(on_jax.in_memory.all)
    assert np.isfinite(gradients).all()
    assert_allclose(values, kind.reference.loglik.sum(axis=0), rtol=1e-10)
    for point, found in zip(points, gradients, strict=True):
        full, prior = (kind.reference.weighted(point, np.full(n_rows, w))[1] for w in (1.0, 0.0))
        expected = np.concatenate([np.ravel(full[n] - prior[n]) for n in names])
        assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_densities_of_chosen_rows_are_those_of_these_rows(kind, on_jax):
    """The device keeps blocks of the source: others may begin and end with the same rows."""
    if kind.model.discrete_value_vars or kind.case.n_obs < 4:
        pytest.skip("no gradient, or too few rows")
    ends = [0, kind.case.n_obs - 1]
    for between in (1, 2):
        rows = on_jax.in_memory.take(np.sort([*ends, between]))
        weights = np.array([1.0, between, 2.0])
        found, expected = (
            CoresetSampler(each).posterior_of(rows, weights) for each in (on_jax, kind.loglik)
        )
        x = found.start + 0.1
        assert_allclose(found.logp_and_gradient(x)[1], expected.logp_and_gradient(x)[1])


@pytest.mark.slow
def test_float32_is_off_by_rounding_errors_of_the_terms(kind, on_jax):
    single = LogLikelihood(kind.observations, backend=Jax(dtype="float32"))
    draws = kind.reference.draws
    found, expected = (each.matrix(draws, finite=False) for each in (single, on_jax))
    assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# -- what it needs, and what it leaves alone -------------------------------------------------------


class Opaque(Op):
    """An operation that only Python can carry out."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0]


def likelihood(build, backend=None):
    with pm.Model() as model:
        build()
    return LogLikelihood(find_observations(model), backend=backend)


def test_an_operation_without_translation_is_refused_by_name():
    loglik = likelihood(
        lambda: pm.Normal("y", Opaque()(pm.Normal("b", shape=2)).sum(), 1.0, observed=np.ones(5)),
        Jax(),
    )
    with pytest.raises(UnsupportedModelError, match=r"Opaque.*backend='numba'"):
        loglik.matrix({"b": np.zeros((1, 2))})


def test_double_precision_does_not_depend_on_the_configuration_and_leaves_it():
    loglik = likelihood(lambda: pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.ones(5)), Jax())
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        [value] = loglik.matrix({"mu": np.array([1.0 + 1e-5])})[0]
        assert not jax.config.jax_enable_x64
    finally:
        jax.config.update("jax_enable_x64", before)
    assert value == pytest.approx(-0.5e-10 - 0.5 * np.log(2 * np.pi), rel=1e-15)


def test_matrix_products_in_float32_keep_their_digits_on_a_gpu():
    x = np.ones((5, 3))
    loglik = likelihood(
        lambda: pm.Normal("y", x @ pm.Normal("b", shape=3), 1.0, observed=np.ones(5)),
        Jax(dtype="float32"),
    )
    data = [loglik.in_memory.all.arrays[i] for i in loglik.kernel.arrays]
    traced = loglik.kernel.values.trace([np.ones((2, 3))], data, n_rows=5)
    assert "HIGHEST" in str(traced.jaxpr)


def test_a_row_that_pads_a_block_counts_for_nothing_even_where_it_is_infinite():
    def build():
        pm.Uniform("y", 0.0, pm.HalfNormal("upper"), observed=np.array([1.0] * 64 + [9.0]))

    numba, on_jax = likelihood(build), likelihood(build, Jax())
    draws = {"upper": np.array([10.0, 12.0, 5.0])}
    found, expected = (each.look(draws).total for each in (on_jax, numba))
    assert_allclose(found, expected)
    assert np.isneginf(found[2])


def test_few_numbers_of_draws_and_rows_are_compiled():
    def build():
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(40.0))

    numba, on_jax = likelihood(build), likelihood(build, Jax())
    for n_draws, n_rows in ((1, 1), (5, 40), (8, 7), (9, 40), (16, 3)):
        draws, rows = {"mu": np.linspace(0, 1, n_draws)}, on_jax.in_memory.take(slice(n_rows))
        assert_allclose(on_jax.matrix(draws, rows), numba.matrix(draws, rows))
    assert on_jax.kernel.values._cache_size() == 2
    assert {on_jax.evaluator.matrix_rows(n) for n in (1, 5, 8)} == {on_jax.evaluator.matrix_rows(2)}


def test_where_float32_has_too_few_digits_it_is_refused():
    def build():
        far = 1e6 + np.linspace(0, 1, 50)
        pm.Normal("y", 1e6 + pm.Normal("mu"), 0.01, observed=far)

    rng = np.random.default_rng(1)
    verify(likelihood(build, Jax()), rng=rng)
    with pytest.raises(UnsupportedModelError, match="float64"):
        verify(likelihood(build, Jax(dtype="float32")), rng=rng)


def test_parameters_that_no_gradient_reaches_are_no_obstacle():
    def build():
        k = pm.Poisson("k", 3.0, initval=2)
        pm.Normal("y", pt.switch(k > 1, 1.0, 0.0), 1.0, observed=np.ones(5))

    found = likelihood(build, Jax()).matrix({"k": np.array([0, 2])})
    assert_allclose(found, likelihood(build).matrix({"k": np.array([0, 2])}))


def test_the_slope_of_log1mexp_is_finite_at_zero_and_below():
    slope = jax.grad(jax_api._smooth_log1mexp)
    assert slope(0.0) == 0.0  # any will do, but NaN
    assert_allclose(slope(-1e-12), -1e12, rtol=1e-3)
    assert_allclose(slope(-2.0), -1 / np.expm1(2.0), rtol=1e-6)
