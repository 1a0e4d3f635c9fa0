"""What pymc-marketing says of customers, from the draws of a coreset of them."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import build_coreset

# It uses what its libraries have deprecated.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

QUIET = {"random_seed": 1, "progressbar": False}
MANY = 100_000


@pytest.fixture(scope="module")
def clv():
    return pytest.importorskip("pymc_marketing.clv", reason="pymc-marketing is not installed")


def customers(n):
    """Simulate purchases by BG/NBD: after each, a customer leaves with some probability."""
    rng = np.random.default_rng(1)
    weeks = rng.integers(20, 60, size=n).astype(float)
    rate, leaving = rng.gamma(0.6, 0.2, size=n), rng.beta(0.8, 2.5, size=n)
    when = rng.exponential(1 / rate[:, None], size=(n, 60)).cumsum(axis=1)
    made = (when <= weeks[:, None]) & (np.arange(60) < rng.geometric(leaving)[:, None])
    return pd.DataFrame(
        {
            "customer_id": np.arange(n),
            "frequency": made.sum(axis=1),
            "recency": np.where(made, when, 0.0).max(axis=1),
            "T": weeks,
        }
    )


def fitted(clv, data):
    """Return pymc-marketing's model with the draws of a coreset, which are to be relied on."""
    found = clv.BetaGeoModel()
    found.build_model(data)
    coreset = build_coreset(found.model, **QUIET)
    found.idata = coreset.sample(draws=500, chains=4, **QUIET)
    assert coreset.check(found.idata).reliable
    assert len(coreset.weights) < 100
    return found


@pytest.fixture(scope="module")
def data():
    return customers(3_000)


@pytest.fixture(scope="module")
def of_coreset(clv, data):
    return fitted(clv, data)


def test_purchases_are_expected_as_after_a_fit_of_all_customers(clv, data, of_coreset):
    of_all = clv.BetaGeoModel()
    of_all.fit(data, draws=500, tune=500, chains=4, cores=1, **QUIET)
    own, theirs = (m.expected_purchases(data, future_t=10) for m in (of_coreset, of_all))
    assert own.dims == theirs.dims
    sd = theirs.std(["chain", "draw"])
    shift = (own - theirs).mean(["chain", "draw"]) / sd
    # Two means of at least 400 effective draws each: five standard errors of their difference.
    assert float(np.abs(shift).max()) < 5 * (2 / 400) ** 0.5
    assert_allclose(own.std(["chain", "draw"]) / sd, 1.0, atol=5 * 400**-0.5)


def test_customers_are_alive_with_a_probability(data, of_coreset):
    alive = of_coreset.expected_probability_alive(data)
    assert alive.sizes["customer_id"] == len(data)
    assert 0 <= float(alive.min()) <= float(alive.max()) <= 1


def test_the_fit_is_summarised(of_coreset):
    assert {"alpha", "r", "a", "b"} <= set(of_coreset.fit_summary().index)


def test_purchases_of_many_customers(clv):
    data = customers(MANY)
    found = fitted(clv, data)
    found.idata = found.idata.isel(draw=slice(None, None, 50))
    expected = found.expected_purchases(data, future_t=10)
    assert dict(expected.sizes) == {"chain": 4, "draw": 10, "customer_id": MANY}
    assert bool((expected > 0).all())
