"""Discrete variables of units, which take all their values: against sums of PyMC's densities."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from tests.models.units import by_grid, loglik_of, nodes_at, read

RNG = np.random.default_rng(8)
G, N = 5, 14
UNITS = np.sort(np.r_[np.arange(G), RNG.integers(0, G, N - G)])
X, Y = RNG.normal(size=N), RNG.normal(size=N)
SHARES = RNG.dirichlet(np.ones(3), size=G)
THREE, TWO = np.arange(3.0)[:, None], np.arange(2.0)[:, None]


def _classes() -> None:
    own = pm.Categorical("own", pm.Dirichlet("shares", np.ones(3)), shape=G)
    mean, sd = pm.Normal("mean", shape=3), pm.HalfNormal("sd", shape=3)
    pm.Normal("y", mean[own[UNITS]], sd[own[UNITS]], observed=Y)


def _shares_of_each() -> None:
    own = pm.Categorical("own", SHARES, shape=G)
    pm.Normal("y", pm.Normal("mean", shape=3)[own[UNITS]] * X, 1.0, observed=Y)


def _presence() -> None:
    own = pm.Bernoulli("own", pm.math.sigmoid(pm.Normal("m") * np.arange(G)), shape=G)
    seen = own[UNITS] * pm.math.sigmoid(pm.Normal("b") + X)
    pm.Bernoulli("y", pt.clip(seen, 0.01, 1), observed=Y > 1)


def _two() -> None:
    own = pm.Categorical("own", pm.Dirichlet("shares", np.ones(3)), shape=G)
    up = pm.Bernoulli("up", 0.3, shape=G)
    at = pm.Normal("mean", shape=3)[own[UNITS]] + pm.Normal("b") * up[UNITS]
    pm.Normal("y", at, pm.HalfNormal("sd"), observed=Y)


def _of_products() -> None:
    own = pm.Categorical("own", pm.Dirichlet("shares", np.ones(3)), shape=G)
    pm.Normal("y", (pm.Normal("mean", shape=3)[own] * np.arange(G))[UNITS], 1.0, observed=Y)


MODELS: dict[str, tuple[Callable[[], None], tuple[str, ...], np.ndarray, bool]] = {
    "classes": (_classes, ("own",), THREE, True),
    "shares of each unit": (_shares_of_each, ("own",), THREE, False),
    "presence": (_presence, ("own",), TWO, True),
    "two variables": (_two, ("own", "up"), np.array([*product(range(3), range(2))], float), True),
    "products with data of units": (_of_products, ("own",), THREE, True),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("one_for_all", [True, False])
def test_sums_over_all_values(name: str, one_for_all: bool, limits: Callable[..., None]) -> None:
    write, names, values, in_common = MODELS[name]
    with pm.Model() as model:
        write()
    units = read(model, *names)
    assert units.density.has_common_values == in_common
    if not one_for_all:
        limits(common_values=False)
    x = RNG.normal(size=units.observations_at_zero.space.n_dims)
    found = nodes_at(units, 1, x)
    np.testing.assert_allclose(
        loglik_of(found)(x), by_grid(found, x, values=values), rtol=1e-10, atol=1e-10
    )
