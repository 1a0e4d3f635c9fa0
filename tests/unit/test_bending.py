"""Nodes as skew as a density: the map of an axis, and what a skewness makes of it."""

import numpy as np
import pytensor.tensor as pt
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import gammaln, logsumexp, polygamma

from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.bending import bends_of, bent
from pymc_coresets.reading.units.nodes import Nodes
from pymc_coresets.rowlogp.unit_modes import _moments_of, _stretched

BENDS = np.array([-0.95, -0.4, 0.0, 0.2, 0.95])
_X, _BEND = pt.dcol("x"), pt.dvector("bend")
AT = numpy_function([_X, _BEND], list(bent(_X, _BEND)))


def test_slopes_are_those_of_the_places_which_reach_all_values():
    x, h = np.linspace(-200.0, 200.0, 4_001)[:, None], 1e-4
    y, log_slopes = AT(x, BENDS)
    ahead, behind = (AT(x + d, BENDS)[0] for d in (h, -h))
    np.testing.assert_allclose(np.exp(log_slopes), (ahead - behind) / (2 * h), rtol=1e-6)
    assert (np.diff(y, axis=0) > 0).all()
    assert (y[0] < -5.0).all()
    assert (y[-1] > 5.0).all()


def test_places_of_normal_numbers_have_mean_zero_variance_one_and_the_skewness():
    x, weights = hermegauss(61)
    weights = weights / weights.sum()
    skewness = np.array([-0.6, -0.2, 0.0, 0.4, 0.6])
    y, _ = AT(x[:, None], bends_of(skewness))
    for power, expected in ((1, 0.0), (2, 1.0), (3, skewness)):
        np.testing.assert_allclose(weights @ y**power, expected, atol=1e-4)


def test_an_axis_that_does_not_bend_is_left_as_it_is():
    x = np.linspace(-9.0, 9.0, 5)[:, None]
    y, log_slopes = AT(x, np.zeros(1))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(log_slopes, np.zeros_like(x))


@pytest.mark.parametrize("shape", [3.0, 10.0])
@pytest.mark.parametrize("degree", [9, 13])
def test_nodes_as_skew_as_log_gamma_densities_have_a_tenth_of_the_error(shape, degree):
    """Also where the shape is another than that of the moments, as theta differs."""

    def logs(a: float, x: np.ndarray) -> np.ndarray:  # by mode and curvature
        z = np.log(a) + x / np.sqrt(a)
        return np.asarray(a * z - np.exp(z))

    many, few = Nodes.of_degree(31, 1), Nodes.of_degree(degree, 1)
    at_many = (logs(shape, many.points[:, 0]) + many.log_weights)[None]
    moments = _moments_of(many.points, at_many, np.eye(1)[None])
    usual = np.array([[[0.0, 1.0, 0.0]]])

    def error(moments: np.ndarray) -> float:
        x, volume = _stretched()(few.points, moments)
        parts = (volume + few.log_weights[:, None])[:, 0]
        return float(np.std([
            logsumexp(logs(a, x[:, 0]) + parts) - np.log(a) / 2 - gammaln(a)
            for a in shape * np.exp(0.05 * np.random.default_rng(1).normal(size=30))
        ]))  # fmt: skip

    [[[mean, root, _]]] = moments
    mean_of_log, variance = polygamma(0, shape), polygamma(1, shape)
    assert mean == pytest.approx((mean_of_log - np.log(shape)) * np.sqrt(shape), abs=1e-3)
    assert root == pytest.approx(np.sqrt(variance * shape), abs=1e-3)
    assert error(moments) < error(usual) / 10
