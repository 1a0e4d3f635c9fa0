"""Levels with a joint distribution of their own, such as random walks: against normal algebra.

Rows are normal, so that those of a level are jointly normal, too, without the level's variables.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytest
from scipy.stats import kstest, multivariate_normal

from pymc_coresets import UnsupportedModelError, build_coreset
from tests.models.reference import density, logp_without
from tests.models.units import Shared, chosen, compared, drawn, loglik_of, nodes_at, read
from tests.refusals import refused

AREAS, YEARS, PER_CELL = 7, 3, 2
AREA, YEAR = (a.ravel() for a in np.indices((AREAS, YEARS, PER_CELL))[:2])
SEEN = np.random.default_rng(1).permutation(AREA.size)[3:]  # in any order; some cells have one row
AREA, YEAR = AREA[SEEN], YEAR[SEEN]
_rng = np.random.default_rng(2)
Y = _rng.normal(size=(AREAS, YEARS)).cumsum(axis=1)[AREA, YEAR] + _rng.normal(size=AREA.size)
SQUARE, TIMES = np.eye(YEARS), np.arange(YEARS, dtype=float)
LOWER = np.tril(np.ones((YEARS, YEARS)))


class Joint(NamedTuple):
    """A distribution of the years of an area: as users write it, and its mean and covariance."""

    build: Callable[[], Any]
    moments: Callable[[Shared], tuple[np.ndarray, np.ndarray]]


def start() -> Any:
    return pm.Normal.dist(0.0, 2.0)


def _walk() -> Any:
    drift, w = pm.Normal("drift"), pm.HalfNormal("w")
    return pm.GaussianRandomWalk("z", mu=drift, sigma=w, init_dist=start(), shape=(AREAS, YEARS))


def of_walk(shared: Shared) -> tuple[np.ndarray, np.ndarray]:
    return shared["drift"] * TIMES, LOWER @ np.diag([4.0] + 2 * [shared["w"] ** 2]) @ LOWER.T


def _autoregression() -> Any:
    rho, w = pm.Normal("drift", 0.0, 0.5), pm.HalfNormal("w")
    return pm.AR("z", rho=rho, sigma=w, init_dist=start(), shape=(AREAS, YEARS))


def of_autoregression(shared: Shared) -> tuple[np.ndarray, np.ndarray]:
    steps = np.linalg.inv(SQUARE - shared["drift"] * np.eye(YEARS, k=-1))
    return 0 * TIMES, steps @ np.diag([4.0] + 2 * [shared["w"] ** 2]) @ steps.T


def _process() -> Any:
    covariance = pm.HalfNormal("w") ** 2 * pm.gp.cov.Matern32(1, ls=2.0)(TIMES[:, None])
    mean = pm.Normal("drift") * TIMES
    return pm.MvNormal("z", mean, covariance + 1e-3 * SQUARE, shape=(AREAS, YEARS))


def of_process(shared: Shared) -> tuple[np.ndarray, np.ndarray]:
    r = 3**0.5 * np.abs(TIMES[:, None] - TIMES) / 2.0
    return shared["drift"] * TIMES, shared["w"] ** 2 * (1 + r) * np.exp(-r) + 1e-3 * SQUARE


def _sums_to_zero() -> Any:
    pm.Normal("drift")
    return pm.ZeroSumNormal("z", pm.HalfNormal("w"), shape=(AREAS, YEARS))


def of_sums_to_zero(shared: Shared) -> tuple[np.ndarray, np.ndarray]:
    return 0 * TIMES, shared["w"] ** 2 * (SQUARE - 1 / YEARS)


def _innovations() -> Any:
    steps = pm.Normal("z", pm.Normal("drift"), pm.HalfNormal("w"), shape=(AREAS, YEARS))
    return steps.cumsum(axis=1)


def of_innovations(shared: Shared) -> tuple[np.ndarray, np.ndarray]:
    return shared["drift"] * (TIMES + 1), shared["w"] ** 2 * LOWER @ LOWER.T


JOINT = {
    "walk": Joint(_walk, of_walk),
    "autoregression": Joint(_autoregression, of_autoregression),
    "process": Joint(_process, of_process),
    "sums to zero": Joint(_sums_to_zero, of_sums_to_zero),
    "innovations": Joint(_innovations, of_innovations),
}
PLACES = [{"drift": 0.2, "w": 0.6}, {"drift": -0.7, "w": 0.1}, {"drift": 1.3, "w": 3.0}]


@cache
def model_of(name: str) -> pm.Model:
    with pm.Model(coords={"area": range(AREAS)}) as model:
        pm.Normal("y", JOINT[name].build()[AREA, YEAR], 0.8, observed=Y)
    return model


def of_rows(name: str, shared: Shared, area: int) -> tuple[np.ndarray, ...]:
    """Return which year each row of an area is, and the rows' mean and covariance."""
    mean, cov = JOINT[name].moments(shared)
    year = YEAR[area == AREA]
    return year, mean[year], cov[np.ix_(year, year)] + 0.64 * np.eye(len(year))


def log_evidence(name: str, shared: Shared) -> np.ndarray:
    found = []
    for area in range(AREAS):
        _, mean, cov = of_rows(name, shared, area)
        found.append(multivariate_normal.logpdf(Y[area == AREA], mean, cov))
    return np.array(found)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * (n in ("autoregression", "innovations")))
        for n in JOINT
    ],
)
def test_few_nodes_are_exact_for_what_is_normal(name):
    units = compared(model_of(name), "z")
    assert units.factor.n_dims == YEARS - (name == "sums to zero")
    found = loglik_of(nodes_at(units, 5))
    for shared in PLACES:
        np.testing.assert_allclose(found(shared), log_evidence(name, shared), rtol=0, atol=1e-8)


def test_walks_are_integrated_out_by_themselves():
    area, year = np.repeat(np.arange(300), 3), np.tile(np.arange(3), 300)
    with pm.Model() as model:
        z = pm.GaussianRandomWalk("z", sigma=pm.HalfNormal("w"), init_dist=start(), shape=(300, 3))
        pm.Poisson("y", pm.math.exp(z[area, year]), observed=np.ones(900, dtype=int))
    assert chosen(model) == ("z",)


def test_the_axis_of_which_levels_are_independent_is_found_if_it_is_the_shorter_one():
    """There are more years than areas, but a year is not independent of the next."""
    area, year = np.repeat(np.arange(3), 5), np.tile(np.arange(5), 3)
    with pm.Model() as model:
        z = pm.GaussianRandomWalk("z", sigma=pm.HalfNormal("w"), init_dist=start(), shape=(3, 5))
        pm.Normal("y", z[area, year], 1.0, observed=np.zeros(15))
    factor = read(model, "z").factor
    assert (factor.n_levels, factor.n_dims) == (3, 5)
    assert (factor.level_of_row == area).all()


@pytest.mark.slow
def test_a_matrix_with_a_row_for_each_walk_is_the_same():
    table = np.random.default_rng(3).normal(size=(AREAS, YEARS))
    with pm.Model() as matrix:
        pm.Normal("y", _walk(), 0.8, observed=table)
    with pm.Model() as long:
        cells = np.indices(table.shape).reshape(2, -1)
        pm.Normal("y", _walk()[tuple(cells)], 0.8, observed=table.ravel())
    found, expected = (loglik_of(nodes_at(read(m, "z"), 5)) for m in (matrix, long))
    np.testing.assert_allclose(found(PLACES[0]), expected(PLACES[0]), rtol=1e-9)


@pytest.mark.slow  # a minute
def test_the_posterior_of_all_walks_is_that_of_the_closed_form():
    """All units are kept, so that nothing but the nodes' error is between them."""
    model = model_of("walk")
    coreset = build_coreset(model, integrate="z", random_seed=1)
    assert (coreset.size, set(coreset.weights)) == (AREAS, {1.0})
    prior, logp = logp_without(model, ["y", "z"]), density(coreset.model)
    apart = []
    for shared in PLACES:
        point = {"drift": np.array(shared["drift"]), "w_log__": np.log(shared["w"])}
        whole = point | {"z": np.zeros((AREAS, YEARS))}
        expected = prior(whole) + log_evidence("walk", shared).sum()
        apart.append(logp(point)[0] - expected)
    np.testing.assert_allclose(apart, 0.0, atol=1e-7)


def test_draws_of_walks_are_those_of_the_closed_form():
    """Given the shared variables and the rows of an area: whitened, they are standard normal."""
    shared = {"drift": 0.2, "w": 0.6}
    units, n = nodes_at(read(model_of("walk"), "z"), 5), 2_000
    found = drawn(units, 4, **{name: np.full(n, value) for name, value in shared.items()})
    prior_mean, prior = of_walk(shared)
    for area in range(AREAS):
        year, mean, cov = of_rows("walk", shared, area)
        gain = np.linalg.solve(cov, prior[year]).T
        middle = prior_mean + gain @ (Y[area == AREA] - mean)
        root = np.linalg.cholesky(prior - gain @ prior[year])
        white = np.linalg.solve(root, (found[:, area] - middle).T)
        assert min(kstest(x, "norm").pvalue for x in white) > 1e-4  # of 21 comparisons
        np.testing.assert_allclose(np.cov(white), np.eye(YEARS), atol=5 * (2 / n) ** 0.5)


def test_far_from_where_they_were_placed_nodes_have_no_density_of_their_own():
    """By one step of Newton's, these counts had a higher density there than at their mode."""
    rng, placed, far = np.random.default_rng(6), [0.8, -1.1, -0.5], np.array([-0.3, -1.5, -0.1])
    area, year = (a.ravel() for a in np.indices((40, YEARS, 5))[:2])
    walk = rng.normal(0.0, [0.6, 0.3, 0.3], (40, YEARS)).cumsum(axis=1)
    with pm.Model() as model:
        mean, step, first = pm.Normal("mean"), pm.HalfNormal("step"), pm.HalfNormal("first")
        init = pm.Normal.dist(0.0, first)
        z = pm.GaussianRandomWalk("z", sigma=step, init_dist=init, shape=(40, YEARS))
        counts = rng.poisson(np.exp(0.8 + walk[area, year]))
        pm.Poisson("y", pm.math.exp(mean + z[area, year]), observed=counts)
    units = read(model, "z")
    found, there = (loglik_of(nodes_at(units, 9, at)) for at in (placed, far))
    np.testing.assert_allclose(found(far), there(far), rtol=0, atol=2e-4)
    assert found(far).sum() < found(np.array(placed)).sum() - 10.0


def test_a_column_that_is_not_there_has_no_density():
    units = nodes_at(read(model_of("walk"), "z"), 1)
    columns = [a for a in units.data_of_unit_rows if a.values.dtype.kind == "i"]
    assert len(columns) == 1
    columns[0].values[units.sizes[0] - 1] = YEARS
    found = loglik_of(units)(PLACES[0])
    assert not np.isfinite(found[0])
    assert np.isfinite(found[1:]).all()


# -- what is refused, and in which words -----------------------------------------------------------

LONG, MANY = 12, 300
CELLS = tuple(np.indices((MANY, LONG)).reshape(2, -1))


def long_walk(**arguments: Any) -> Any:
    return pm.GaussianRandomWalk("z", sigma=pm.HalfNormal("w"), init_dist=start(), **arguments)


def test_levels_that_a_loop_joins_are_refused_without_the_names_of_operations():
    with pm.Model() as model:
        z = pm.GARCH11("z", omega=1.0, alpha_1=0.1, beta_1=0.2, initial_vol=1.0, shape=(AREAS, 3))
        pm.Normal("y", z[AREA, YEAR], pm.HalfNormal("s"), observed=Y)
    with refused(
        UnsupportedModelError, "'z'", "loop", "pytensor.scan", topic="local-latent-variables"
    ) as caught:
        read(model, "z")
    assert "{" not in str(caught.value)


@pytest.mark.parametrize("matrix", [True, False])
def test_walks_of_too_many_steps_remain_parameters_and_it_is_said(matrix):
    with pm.Model() as model:
        z = long_walk(shape=(MANY, LONG))
        counts = np.ones((MANY, LONG), dtype=int)
        eta, y = (z, counts) if matrix else (z[CELLS], counts.ravel())
        pm.Poisson("y", pm.math.exp(eta), observed=y)
    topic = "local-latent-variables" if matrix else ""
    with refused(UnsupportedModelError, "['z']" if matrix else "'z'", topic=topic) as caught:
        build_coreset(model, random_seed=1, progressbar=False)
    if not matrix:
        assert "['z'] have 12 values for each level" in str(caught.value)
        assert "(few @ weights)[level, time]" in str(caught.value)
        assert "(3, 12)" in str(caught.value)
        assert "integrate=False" in str(caught.value)
    assert "{" not in str(caught.value)
    assert "HSGP" not in str(caught.value)


@pytest.mark.slow
def test_walks_by_their_values_at_a_few_times_are_integrated_out():
    """As the message says: (few @ weights)[level, time]."""
    times = np.linspace(0, YEARS - 1, LONG)
    weights = np.maximum(1 - np.abs(times - TIMES[:, None]), 0)
    month = np.random.default_rng(5).integers(LONG, size=AREA.size)
    with pm.Model() as model:
        pm.Normal("y", (_walk() @ weights)[AREA, month], 0.8, observed=Y)
    found = loglik_of(nodes_at(compared(model, "z"), 5))(PLACES[0])
    middle, walk = of_walk(PLACES[0])
    for area in range(AREAS):
        at = weights[:, month[area == AREA]].T
        cov = at @ walk @ at.T + 0.64 * np.eye(len(at))
        expected = multivariate_normal.logpdf(Y[area == AREA], at @ middle, cov)
        assert found[area] == pytest.approx(expected, abs=1e-8)
