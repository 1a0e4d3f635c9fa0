"""Pursuit's coresets of the papers' six data sets, against the full Laplace approximation."""

import numpy as np
import pytest

from benchmarks.closed_forms import Gaussian
from benchmarks.fixed_draws import relative_kl
from benchmarks.paper_data import DATA_SETS, data_folder, load

FOLDER = data_folder()
needs_data = pytest.mark.skipif(
    FOLDER is None, reason="no data sets: PYMC_CORESETS_DATA does not name their folder"
)
AT_50 = dict.fromkeys(DATA_SETS, 1e-3) | dict.fromkeys(
    ("synth_lr", "synth_poiss", "biketrips"), 1e-6
)


@needs_data
@pytest.mark.parametrize("name", DATA_SETS)
def test_pursuit_reaches_the_full_posterior(name):
    """Medians of three fixed seeds; single runs spread by a factor of about two."""
    model = load(name, FOLDER)
    runs = [relative_kl(model, ("pursuit",), (50, 100), n_draws=500, seed=s) for s in range(3)]
    at_50, at_100 = np.median(runs, axis=0)[0]
    assert at_50 <= AT_50[name]
    assert at_100 <= 1e-4


@needs_data
@pytest.mark.parametrize("name", DATA_SETS)
def test_order_of_the_methods(name):
    model = load(name, FOLDER)
    methods = ("uniform", "giga", "pursuit")
    uniform, giga, pursuit = relative_kl(model, methods, (50,), n_draws=500, seed=1)[:, 0]
    assert pursuit < giga < uniform


@needs_data
@pytest.mark.parametrize("name", DATA_SETS)
def test_derivatives_of_the_benchmark_models(name):
    model = load(name, FOLDER)
    eta = np.linspace(-3, 3, len(model.features))
    first, second = model.derivatives(eta)
    step = 1e-5
    lower, upper = model.loglik_at(eta - step), model.loglik_at(eta + step)
    assert first == pytest.approx((upper - lower) / (2 * step), rel=1e-5, abs=1e-5)
    slopes = model.derivatives(eta - step)[0], model.derivatives(eta + step)[0]
    assert second == pytest.approx((slopes[1] - slopes[0]) / (2 * step), rel=1e-5, abs=1e-5)


def test_kl_of_gaussians():
    """In one dimension KL = (r - 1 - log r + precision * shift^2) / 2 with r = other / own."""
    own = Gaussian(mean=np.array([1.0]), precision=np.array([[2.0]]))
    other = Gaussian(mean=np.array([3.0]), precision=np.array([[5.0]]))
    assert own.kl(other) == pytest.approx((2.5 - 1 - np.log(2.5) + 5 * 4) / 2)
    assert own.kl(own) == 0


def test_draws_have_the_inverse_precision():
    """Five standard errors of a covariance entry, sqrt((s_ii s_jj + s_ij^2) / n)."""
    precision, n = np.array([[2.0, 1.2], [1.2, 1.0]]), 20_000
    gaussian = Gaussian(mean=np.zeros(2), precision=precision)
    covariance = np.linalg.inv(precision)
    error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / n)
    found = np.cov(gaussian.draw(n, rng=np.random.default_rng(2)), rowvar=False)
    assert (np.abs(found - covariance) <= 5 * error).all()
