"""Which functions of rows NumPy evaluates, blocks of rows, and points without a density."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal, norm, poisson

from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.functions import Functions
from pymc_coresets.sampling.density import Surrogate, pass_of
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.one_point import OnePoint

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
    loglik = LogLikelihood(find_observations(model))
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
    loglik = LogLikelihood(find_observations(model))
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
