"""Variables of the levels of a factor, integrated out: against closed forms, and sums over grids.

The sums are of PyMC's own densities of rows and levels, which know nothing of units.
"""

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import pytest
from scipy.optimize import brentq
from scipy.special import factorial2, gammaln, logsumexp

from pymc_coresets import InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.predictor.row_graph import row_graph_of
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.predictive.pymc_densities import (
    _GRIDS,
    _places,
    log_densities_of_units,
    second_opinion,
)
from pymc_coresets.reading import unconstrained
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.units.nodes import Nodes, Rule, first_degree, has_rules, higher_rules
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.reading.units.placement import with_loops
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import RowsToRead
from pymc_coresets.rowlogp.units import chosen_units
from pymc_coresets.rowlogp.verification_of_units import verify_units
from pymc_coresets.sampling.units.centring import centred, integrated_out
from tests.models.reference import density, logp_without
from tests.models.units import around_the_mode, by_grid, chosen, loglik_of, nodes_at, read
from tests.refusals import refused

# -- normal rows, normal levels: a closed form -----------------------------------------------------

SIZES = np.array([1, 2, 3, 0, 40, 400, 10_000])  # of units: one of no rows, one of very many
LEVEL = np.repeat(np.arange(7), SIZES)
_rng = np.random.default_rng(1)
REAL = _rng.normal(size=7)[LEVEL] + _rng.normal(size=LEVEL.size)


def normal_rows(*, centred: bool, level: np.ndarray = LEVEL, y: np.ndarray = REAL) -> pm.Model:
    with pm.Model() as model:
        mean, b, width, noise = pm.Normal("mean"), pm.Normal("b"), pm.HalfNormal("w"), scale("s")
        if centred:
            z = pm.Normal("z", mean, width, shape=7)
        else:
            z = mean + width * pm.Normal("z", shape=7)
        pm.Normal("y", b + z[level], noise, observed=y)
    return model


def scale(name: str) -> Any:
    return pm.HalfNormal(name)


def closed_form(shared: dict[str, float]) -> np.ndarray:
    """Log-densities of rows that are jointly normal, of each level that has any."""
    found = []
    for level in np.flatnonzero(SIZES):
        y, n = REAL[level == LEVEL] - shared["b"] - shared["mean"], SIZES[level]
        of_noise, of_levels = shared["s"] ** 2, shared["w"] ** 2
        ratio = of_levels / (of_noise + n * of_levels)
        square = (y @ y - ratio * y.sum() ** 2) / of_noise
        log_det = (n - 1) * np.log(of_noise) + np.log(of_noise + n * of_levels)
        found.append(-(square + log_det + n * np.log(2 * np.pi)) / 2)
    return np.array(found)


@cache
def few_nodes(*, centred: bool) -> Callable[..., np.ndarray]:
    return loglik_of(nodes_at(read(normal_rows(centred=centred), "z"), 5))


#: Where nodes begin, in the middle of a posterior, at its ends, and where it has lost its way.
PLACES = [
    {"mean": 0.0, "w": 1.0, "s": 1.0, "b": 0.0},
    {"mean": 0.1, "w": 1.2, "s": 0.9, "b": 0.02},
    {"mean": 1.0, "w": 0.1, "s": 0.5, "b": 1.0},
    {"mean": 1.0, "w": 1e-3, "s": 0.5, "b": 0.0},
    {"mean": -3.0, "w": 1e-5, "s": 3.0, "b": 3.5},
    {"mean": 5.0, "w": 20.0, "s": 0.3, "b": -9.0},
]


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("shared", PLACES, ids=str)
def test_few_nodes_are_exact_for_normal_levels_wherever_the_shared_variables_are(shared, centred):
    # Sums of 10^4 rows, of up to 10^5 nats, have ten digits.
    np.testing.assert_allclose(
        few_nodes(centred=centred)(shared), closed_form(shared), rtol=1e-12, atol=1e-8
    )


def test_a_level_without_rows_is_no_unit():
    units = nodes_at(read(normal_rows(centred=True), "z"), 5)
    assert units.n_obs == 6
    np.testing.assert_array_equal(units.positions, [0, 1, 2, 4, 5, 6])


def test_gradients_are_those_of_the_closed_form():
    units = nodes_at(read(normal_rows(centred=True), "z"), 9)
    slopes = gradient_of(units)
    # Curvatures at the mode are exact here, so that nodes are, and their second moments.
    for shared in PLACES[:3]:
        for name, slope in zip(shared, slopes(shared), strict=True):
            h = 1e-4 * shared[name] + 1e-6
            ahead, behind = (closed_form(shared | {name: shared[name] + d}) for d in (h, -h))
            # Differences of what is rounded at 1e-11, over h; their own error is of order h^2.
            difference = (ahead - behind).sum() / (2 * h)
            assert slope == pytest.approx(difference, rel=1e-5, abs=1e-3), name


def gradient_of(units: Observations) -> Callable[[dict[str, float]], list[np.ndarray]]:
    """Return the gradient of the sum of log-likelihoods, in the order of the given variables."""
    inputs = [*units.parameters.values(), *(row.placeholder for row in units.inputs), units.n_rows]
    names = list(units.parameters)
    slopes = pt.grad(units.loglik.sum(), list(units.parameters.values()))
    function, arrays = numpy_function(inputs, slopes), [row.values for row in units.inputs]

    def evaluate(shared: dict[str, float]) -> list[np.ndarray]:
        found = function(*(np.asarray(shared[name]) for name in names), *arrays, units.n_obs)
        return [found[names.index(name)] for name in shared]

    return evaluate


def test_permuting_rows_changes_nothing_and_permuting_levels_permutes_units():
    rng = np.random.default_rng(2)
    kept = SIZES[LEVEL] < 400
    level, y, order = LEVEL[kept], REAL[kept], rng.permutation(kept.sum())
    others = np.array([6, 5, 4, 3, 2, 1, 0])
    found, shuffled, renamed = (
        loglik_of(nodes_at(read(normal_rows(centred=True, level=g, y=x), "z"), 5))(PLACES[1])
        for g, x in [(level, y), (level[order], y[order]), (others[level], y)]
    )
    np.testing.assert_allclose(shuffled, found, rtol=1e-13)
    np.testing.assert_allclose(renamed[::-1], found, rtol=1e-13)


# -- other families --------------------------------------------------------------------------------

UNITS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 4, 4, 3, 1, 0, 4, 4, 3])  # level of each row
N, G = UNITS.size, 5
X, NOISE = _rng.normal(size=N), _rng.normal(size=N)
COUNT, BINARY = _rng.poisson(2.0, size=N), _rng.integers(0, 2, size=N)
POSITIVE, INSIDE = _rng.gamma(3.0, 0.5, size=N), _rng.beta(2.0, 2.0, size=N)
INCOME = _rng.normal(size=G)


def seen(family: Any, given: np.ndarray, **arguments: Any) -> Any:
    return family("y", observed=given, **arguments)


def thresholds() -> Any:
    return pt.cumsum(pt.exp(pm.Normal("c", shape=3))) - 2.0


FAMILIES: dict[str, Callable[[Any], Any]] = {
    "normal": lambda eta: seen(pm.Normal, NOISE, mu=eta, sigma=1.3),
    "Student t": lambda eta: seen(pm.StudentT, NOISE, mu=eta, nu=4, sigma=1.3),
    "logistic": lambda eta: seen(pm.Logistic, NOISE, mu=eta, s=0.8),
    "Bernoulli": lambda eta: seen(pm.Bernoulli, BINARY, logit_p=eta),
    "binomial": lambda eta: seen(pm.Binomial, COUNT, n=9, logit_p=eta),
    "Poisson": lambda eta: seen(pm.Poisson, COUNT, mu=pt.exp(eta)),
    "negative binomial": lambda eta: seen(pm.NegativeBinomial, COUNT, mu=pt.exp(eta), alpha=2.0),
    "gamma": lambda eta: seen(pm.Gamma, POSITIVE, alpha=3.0, beta=3.0 * pt.exp(-eta)),
    "Weibull": lambda eta: seen(pm.Weibull, POSITIVE, alpha=1.5, beta=pt.exp(eta)),
    "beta": lambda eta: seen(pm.Beta, INSIDE, mu=pm.math.sigmoid(eta), nu=5.0),
    "ordered": lambda eta: seen(pm.OrderedLogistic, COUNT % 4, eta=eta, cutpoints=thresholds()),
}
PRIORS: dict[str, Callable[[], Any]] = {
    "normal": lambda: pm.Normal("z", pm.Normal("m"), pm.HalfNormal("w"), shape=G),
    "Student t": lambda: pm.StudentT("z", nu=6, mu=pm.Normal("m"), sigma=0.7, shape=G),
    "gamma": lambda: pt.log(pm.Gamma("z", alpha=3.0, beta=pm.Exponential("rate", 0.5), shape=G)),
}
#: Of 31 nodes.  Tails of a Student t, and double exponential ones of the logarithm of what is gamma
#: distributed, are far from those of a normal density: the error falls slowly there.
ERRORS = {"normal": 1e-8, "Student t": 2e-4, "gamma": 1e-6}


def diagonal() -> list[Any]:
    """Return all pairs, of which a few are fast enough for each day."""
    pairs = list(product(range(len(FAMILIES)), range(len(PRIORS))))
    families, priors = list(FAMILIES), list(PRIORS)
    return [
        pytest.param(
            families[i],
            priors[j],
            id=f"{families[i]} rows, {priors[j]} levels",
            marks=[pytest.mark.slow]
            * (i % 2 or i // 2 % len(PRIORS) != j or families[i] in ("Weibull", "ordered")),
        )
        for i, j in pairs
    ]


def unconstrained_places(units: Observations) -> list[np.ndarray]:
    """Return where nodes begin, and another place: as far off as a posterior's of 50 units is."""
    n_dims = units.space.n_dims
    return [np.zeros(n_dims), np.random.default_rng(3).normal(0.0, 0.15, size=n_dims)]


@pytest.mark.parametrize(("family", "prior"), diagonal())
def test_integrals_are_those_of_a_fine_grid(family, prior):
    with pm.Model() as model:
        z = PRIORS[prior]()
        FAMILIES[family](pm.Normal("b") * X + z[UNITS])
    units = nodes_at(read(model, "z"), 61)
    found = loglik_of(units)
    for x in unconstrained_places(units):
        np.testing.assert_allclose(found(x), by_grid(units, x), rtol=0, atol=ERRORS[prior])


@cache
def counts(*, centred: bool) -> Any:
    with pm.Model() as model:
        mean, width = pm.Normal("mean"), pm.HalfNormal("w")
        if centred:
            z = pm.Normal("z", mean, width, shape=G)
        else:
            z = mean + width * pm.Normal("z", shape=G)
        pm.Poisson("y", pt.exp(z[UNITS]), observed=COUNT)
    return read(model, "z")


def around_modes(degree: int, mean: float, width: float) -> list[float]:
    """Return integrals of `counts` by nodes around the exact modes of its levels."""
    nodes, found = Nodes.of_degree(degree, 1), []
    for level in range(G):
        y = COUNT[level == UNITS]

        def slope(z, y=y):
            return y.sum() - len(y) * np.exp(z) - (z - mean) / width**2

        mode = brentq(slope, -20, 20, xtol=1e-13)
        curvature = len(y) * np.exp(mode) + width**-2
        z = mode + nodes.points[:, 0] / np.sqrt(curvature)
        of_rows = y.sum() * z - len(y) * np.exp(z) - gammaln(y + 1).sum()
        prior = -np.square((z - mean) / width) / 2 - np.log(width) - np.log(2 * np.pi) / 2
        found.append(logsumexp(of_rows + prior + nodes.log_weights) - np.log(curvature) / 2)
    return found


def test_one_node_is_the_method_of_laplace():
    units = around_the_mode(nodes_at(counts(centred=True), 1))
    found = loglik_of(units)({"mean": 0.0, "w": 1.0})
    for level, of_nodes in enumerate(around_modes(1, 0.0, 1.0)):
        y = COUNT[level == UNITS]
        z = brentq(lambda z, y=y: y.sum() - len(y) * np.exp(z) - z, -20, 20, xtol=1e-13)
        density = y.sum() * z - len(y) * np.exp(z) - gammaln(y + 1).sum() - z**2 / 2
        expected = density - np.log(1 + len(y) * np.exp(z)) / 2
        assert of_nodes == pytest.approx(expected, abs=1e-12)
        # The curvature is that of a place within 1e-6 widths of the mode.
        assert found[level] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("width", [0.1, pytest.param(0.4, marks=pytest.mark.slow), 1.0])
def test_both_ways_to_write_a_scale_have_the_same_integral(width):
    shared = {"mean": 0.4, "w": width}
    one, other = (loglik_of(nodes_at(counts(centred=c), 81))(shared) for c in (True, False))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


def test_no_scale_is_so_small_that_rounding_makes_a_mode_there():
    one, other = (loglik_of(nodes_at(counts(centred=c), 17)) for c in (True, False))
    for power in range(3, 30):
        shared = {"mean": 0.4, "w": 10.0**-power}
        found, exact = one(shared), other(shared)  # whose variables are of size one
        resolved = np.isfinite(found)
        assert resolved.all() or power > 11
        assert (found[~resolved] == -np.inf).all()
        np.testing.assert_allclose(found[resolved], exact[resolved], rtol=0, atol=1e-3)


def test_the_error_of_nodes_falls_geometrically():
    units = counts(centred=True)
    x = np.array([0.3, -0.2])
    exact = by_grid(nodes_at(units, 1), x)
    found = [nodes_at(units, degree) for degree in (1, 5, 17, 49)]
    straight, errors = (
        [np.abs(loglik_of(each)(x) - exact).max() for each in every]
        for every in (map(around_the_mode, found), found)
    )
    # Around exact modes, Laplace's method is better than three nodes in this model.
    laplace, of_three = (
        np.abs(np.array(around_modes(d, 0.3, np.exp(-0.2))) - exact).max() for d in (1, 5)
    )
    assert 1e-3 < laplace < of_three
    assert straight[0] == pytest.approx(laplace, rel=0.1)  # curvatures are those near the mode
    assert straight[1] == pytest.approx(of_three, rel=0.05)
    for some in (straight, errors):
        np.testing.assert_array_less(some[2:], 1e-3 * np.array(some[1:-1]))
        assert some[-1] < 1e-9
    # As skew as the densities are, at thetas near that of the moments.
    np.testing.assert_array_less(errors[1:3], np.array(straight[1:3]) / 3)


def test_gradients_are_those_of_potentials_but_for_the_error_of_nodes():
    units = nodes_at(counts(centred=True), 41)
    found, slopes, h = loglik_of(units), gradient_of(units), 1e-5
    shared = {"mean": 0.4, "w": 0.6}
    for name, slope in zip(shared, slopes(shared), strict=True):
        ahead, behind = (found(shared | {name: shared[name] + d}).sum() for d in (h, -h))
        # Rounding of 1e-14, over h, and what 21 nodes are off by.
        assert slope == pytest.approx((ahead - behind) / (2 * h), abs=1e-6), name


@pytest.mark.slow
def test_the_error_that_is_stated_is_that_beside_a_fine_grid():
    rng, level = np.random.default_rng(3), np.repeat(np.arange(40), 4)
    far = np.tile([0.0, 0.0, 6.0, 6.0], 40) * (level % 3 == 0)  # rows that disagree: two modes
    y = rng.normal(size=40)[level] + far + 0.3 * rng.standard_t(3, len(level))
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), pm.HalfNormal("sd", 5), shape=40)
        pm.StudentT("y", nu=2, mu=z[level], sigma=pm.HalfNormal("s"), observed=y)
    units = centred(read(model, "z"), enough=1.0, key=1).observations
    assert units.rule == (13, False, 0, None)
    found, scales = loglik_of(units), np.array([0.16, 0.12, 0.13])  # sds of the posterior
    x = np.array(units.at) + scales * rng.normal(size=(40, 3))
    errors = [(found(at) - by_grid(units, at)).sum() for at in x]
    # Within what 39 degrees of freedom leave, and the wider draws that it is stated for.
    assert 0.3 < units.node_error / np.var(errors) < 6.0


def test_fewer_nodes_than_those_of_the_search_have_hardly_any_error():
    normal, of_counts = (
        centred(units, enough=1e-3, key=1).observations
        for units in (read(normal_rows(centred=True), "z"), counts(centred=True))
    )
    assert (normal.n_nodes, first_degree(1)) == (3, 13)
    assert normal.node_error < 1e-12  # those of normal densities are exact
    assert of_counts.n_nodes == 6  # five are off by more than a thousandth of what is acceptable


# -- nodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "n_dims"), [(9, 1), (121, 1), (13, 2), (11, 3), (11, 4), (7, 5), (5, 6)]
)
def test_nodes_are_exact_for_polynomials(degree, n_dims):
    nodes = Nodes.of_degree(degree, n_dims)
    weights = np.exp(nodes.log_weights - np.square(nodes.points).sum(axis=1) / 2)
    weights /= (2 * np.pi) ** (n_dims / 2)
    for powers in combinations_with_replacement(range(min(degree, 13) + 1), n_dims):
        if sum(powers) <= degree:
            found = weights @ np.prod(nodes.points ** np.array(powers), axis=1)
            exact, scale = (np.prod([_moment(k * p) for p in powers]) for k in (1, 2))
            assert abs(found - exact) < 1e-12 * scale**0.5


def _moment(power):
    """Of a standard normal distribution."""
    return 0.0 if power % 2 else float(factorial2(power - 1)) if power else 1.0


def test_products_leave_out_nodes_that_count_for_nothing():
    nodes = Nodes.of_degree(21, 2)
    assert 11**2 - 30 < len(nodes) < 11**2
    weights = np.exp(nodes.log_weights - np.square(nodes.points).sum(axis=1) / 2) / (2 * np.pi)
    np.testing.assert_allclose(weights @ nodes.points**4, 3.0, rtol=1e-5)


def test_symmetric_nodes_are_fewer_than_products():
    numbers = {(d, q): len(Nodes.of_degree(d, q)) for d, q in [(5, 6), (9, 3), (9, 4), (11, 3)]}
    assert numbers[5, 6] < 3**6 / 5
    assert numbers[9, 3] < 5**3 / 1.5
    assert numbers[9, 4] < 5**4 / 2
    assert numbers[11, 3] < 6**3 / 1.1


def test_degrees_rise_up_to_a_limit():
    first = first_degree(2)
    degrees = [rule.degree for rule in higher_rules(Rule(first), 2)]
    assert [first, *degrees] == [9, 11, 13, 17, 21, 33, 49]
    assert [has_rules(n) for n in (6, 7)] == [True, False]


# -- how users write them --------------------------------------------------------------------------

STRUCTURES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {}


def structure(
    *names: str, degree: int = 61, error: float = 1e-6, slow: bool = False, **grid: float
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enter a builder into the table, whose variables `names` are integrated out."""

    def enter(build: Callable[[], Any]) -> Callable[[], Any]:
        name = build.__name__.strip("_").replace("_", " ")
        STRUCTURES[name] = (
            build,
            {"names": names, "degree": degree, "error": error, "slow": slow, "grid": grid},
        )
        return build

    return enter


def normal(mean: Any, **arguments: Any) -> Any:
    return pm.Normal("y", mean, 1.0, **{"observed": NOISE} | arguments)


PLANE = {"half": 8.0, "step": 0.2}


@structure("a", "b", degree=9, error=1e-12, **PLANE)
def _intercepts_and_slopes():
    a = pm.Normal("a", pm.Normal("ma"), scale("wa"), shape=G)
    b = pm.Normal("b", 0.3, scale("wb"), shape=G)
    normal(a[UNITS] + b[UNITS] * X)


@structure("ab", degree=9, error=1e-12, slow=True, **PLANE)
def _correlated_centred():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    ab = pm.MvNormal("ab", pm.Normal("m", shape=2), chol=chol, shape=(G, 2))
    normal(ab[UNITS, 0] + ab[UNITS, 1] * X)


@structure("z", degree=9, error=1e-12, **PLANE)
def _correlated_not_centred():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    ab = pm.Deterministic("ab", pm.Normal("z", shape=(G, 2)) @ chol.T)
    normal(ab[UNITS, 0] + ab[UNITS, 1] * X)


@structure("z", degree=29, error=5e-4, slow=True, **PLANE)
def _levels_along_the_last_axis():
    z = pm.Normal("z", 0, scale("w"), shape=(2, G))
    pm.Poisson("y", pt.exp(z[0, UNITS] + 0.5 * z[1, UNITS] * X), observed=COUNT)


@structure("z", degree=29, error=5e-4, slow=True, **PLANE)
def _levels_along_the_last_axis_of_a_product():
    z = pm.Normal("z", 0, scale("w"), shape=(2, G))
    pm.Poisson("y", pt.exp((z[:, UNITS] * np.stack([np.ones(N), X])).sum(0)), observed=COUNT)


@structure("a", "b", "c", degree=5, error=1e-5, slow=True, half=5.0, step=0.25)
def _three_variables():
    a, b, c = (pm.Normal(name, 0, scale(f"w{name}"), shape=G) for name in "abc")
    normal(a[UNITS] + b[UNITS] * X + c[UNITS] * X**2)


@structure("z", degree=45, error=1e-3, slow=True, **PLANE)
def _probabilities_of_each():
    share = pm.Dirichlet("z", (2 + pt.exp(pm.Normal("m"))) * np.ones(3), shape=(G, 3))
    pm.Categorical("y", share[UNITS], observed=COUNT % 3)


@structure("e")
def _one_for_each_row():
    pm.Poisson("y", pt.exp(pm.Normal("m") + pm.Normal("e", 0, scale("w"), shape=N)), observed=COUNT)


@structure("frailty", slow=True)
def _frailty():
    frailty = pm.Gamma("frailty", 3.0, pm.Exponential("rate", 1.0), shape=G)
    pm.Exponential("y", frailty[UNITS] * pt.exp(pm.Normal("b") * X), observed=POSITIVE)


@structure("z", slow=True)
def _scale_of_each():
    pm.Normal("y", 0.0, pm.HalfNormal("z", scale("w"), shape=G)[UNITS], observed=NOISE)


@structure("z", error=1e-4, slow=True)
def _probability_of_each():
    pm.Bernoulli("y", pm.Beta("z", pm.Gamma("a", 5, 2), 3.0, shape=G)[UNITS], observed=BINARY)


@structure("z")
def _persons_and_items_in_a_matrix():
    answers = np.random.default_rng(5).integers(0, 2, size=(N, 3))
    eta = pm.Normal("z", shape=N)[:, None] - pm.Normal("b", shape=3)
    pm.Bernoulli("y", logit_p=eta, observed=answers)


@structure("z", slow=True)
def _persons_and_items_in_long_format():
    item, a, b = np.arange(N) % 3, pm.LogNormal("a", 0, 0.3, shape=3), pm.Normal("b", shape=3)
    z = pm.Normal("z", shape=G)
    pm.Bernoulli("y", logit_p=a[item] * (z[UNITS] - b[item]), observed=BINARY)


OUTER = np.array([0, 1, 1, 0, 1])  # of each level


@structure("z", slow=True)
def _nested_centred():
    z = pm.Normal("z", pm.Normal("outer", shape=2)[OUTER], scale("w"), shape=G)
    normal(z[UNITS])


@structure("z", slow=True)
def _nested_in_the_rows():
    z, outer = pm.Normal("z", 0, scale("w"), shape=G), pm.Normal("outer", shape=2)
    normal(z[UNITS] + outer[OUTER[UNITS]])


@structure("z", error=1e-4, slow=True)
def _seen_twice():
    z = pm.Normal("z", 0, scale("w"), shape=G)
    pm.Normal("y", z[UNITS], pt.exp(0.3 * z[UNITS]), observed=NOISE)


@structure("a", "b", degree=9, error=1e-12, slow=True, **PLANE)
def _negative_indices():
    a, b = (pm.Normal(name, 0, scale(f"w{name}"), shape=G) for name in "ab")
    normal(a[UNITS] + b[np.where(UNITS > 2, UNITS - G, UNITS)] * X)


@structure("z")
def _data_containers():
    # The first level has no rows, and the last ones are counted from the end.
    level, x = pm.Data("level", np.where(UNITS > 2, UNITS - G, UNITS + 1)), pm.Data("x", X)
    income = pm.Data("income", np.append(9.0, INCOME))
    z = pm.Normal("z", pm.Normal("c") * income, scale("w"), shape=G + 1)
    pm.Poisson("y", pt.exp(z[level] + pm.Normal("b") * x), observed=pm.Data("seen", COUNT))


@structure("z", slow=True)
def _covariate_of_levels_not_centred():
    mean = pm.Normal("c") * INCOME + scale("w") * pm.Normal("z", shape=G)
    pm.Poisson("y", pt.exp(mean[UNITS]), observed=COUNT)


@structure("z", slow=True)
def _covariate_in_the_scale_of_levels():
    z = pm.Normal("z", 0, scale("w") * np.exp(0.3 * INCOME), shape=G)
    pm.Poisson("y", pt.exp(z[UNITS]), observed=COUNT)


@structure("z")
def _two_observed():
    z = pm.Normal("z", 0, scale("w"), shape=G)
    pm.Poisson("y", pt.exp(z[UNITS]), observed=COUNT)
    pm.Normal("other", z[UNITS], 1.0, observed=NOISE)


ORDER = np.array([3, 0, 4, 1, 2])  # of entries: that of each level


@structure("z", slow=True)
def _entries_in_another_order():
    z = pm.Normal("z", pm.Normal("c") * INCOME, scale("w"), shape=G)
    pm.Poisson("y", pt.exp(z[ORDER][UNITS] + pm.Normal("b") * X), observed=COUNT)


@structure("z", slow=True)
def _entries_backwards_beside_data_of_levels():
    z = pm.Normal("z", pm.Normal("c") * INCOME, scale("w"), shape=G)
    normal((z[::-1] + 0.5 * INCOME)[UNITS] + z[::-1][UNITS] * X)


@structure("z", slow=True)
def _a_column():
    normal(pm.Normal("z", 0, scale("w"), shape=(G, 1))[UNITS][:, 0])


WHEN = np.arange(N) % 2 - 1  # the last of two columns is -1


@structure("z", degree=29, error=5e-4, **PLANE)
def _walks_seen_by_two_indices():
    start = pm.Normal.dist(pm.Normal("c") * INCOME, 1.0)
    z = pm.GaussianRandomWalk("z", sigma=scale("w"), init_dist=start, shape=(G, 2))
    pm.Poisson("y", pt.exp(z[UNITS, WHEN]), observed=COUNT)


@structure("z", degree=9, error=1e-12, slow=True, **PLANE)
def _levels_along_the_last_of_two_indices():
    normal(pm.Normal("z", 0, scale("w"), shape=(2, G))[WHEN, UNITS])


@structure("a", "b", degree=9, error=1e-12, slow=True, **PLANE)
def _curves_in_a_wide_table():
    a, b = (pm.Normal(name, 0, scale(f"w{name}"), shape=G) for name in "ab")
    curves = a[:, None] + b[:, None] * np.linspace(-1, 1, 20)
    normal(curves[UNITS, np.arange(N)])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * options["slow"])
        for name, (_, options) in STRUCTURES.items()
    ],
)
def test_units_are_found_however_they_are_written(name):
    build, options = STRUCTURES[name]
    with pm.Model() as model:
        build()
    found = read(model, *options["names"])
    verify_units(found, rng=np.random.default_rng(1))
    units = nodes_at(found, options["degree"])
    assert units.integrated == options["names"]
    assert not set(options["names"]) & set(units.parameters)
    found = loglik_of(units)
    for x in unconstrained_places(units):
        expected = by_grid(units, x, **options["grid"])
        np.testing.assert_allclose(found(x), expected, rtol=0, atol=options["error"])


def test_models_of_named_dimensions_are_the_same():
    with pm.Model(coords={"user": list("abcde"), "obs": range(N)}) as model:
        z = pmd.Normal("z", mu=0, sigma=pmd.HalfNormal("w"), dims="user")
        level, y = pmd.Data("level", UNITS, dims="obs"), pmd.Data("seen", NOISE, dims="obs")
        pmd.Normal("y", mu=z.isel(user=level), sigma=1.0, observed=y)
    with pm.Model() as plain:
        normal(pm.Normal("z", 0, scale("w"), shape=G)[UNITS])
    units, others = (nodes_at(read(m, "z"), 13) for m in (model, plain))
    assert units.dims == ("user",)
    found, expected = (loglik_of(u)(np.array([-0.4])) for u in (units, others))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# -- the coreset's model ---------------------------------------------------------------------------


def test_the_model_of_a_coreset_is_the_weighted_sum_without_the_data_of_other_rows():
    build, _ = STRUCTURES["data containers"]
    with pm.Model() as model:
        build()
    units = nodes_at(read(model, "z"), 29)
    chosen, weights = np.array([1, 3]), np.array([2.0, 3.5])
    rows = LogLikelihood(units).in_memory.take(chosen)
    small = coreset_model(units, rows, weights)
    assert [rv.name for rv in small.free_RVs] == ["c", "w", "b"]
    assert small.observed_RVs == []
    arrays = [v.get_value() for v in small.data_vars]
    assert all(len(a) <= sum(UNITS == 1) + sum(UNITS == 3) for a in arrays if a.ndim)
    x = np.array([0.3, -0.5, 0.2])
    point, found = units.space.point(x), loglik_of(units)
    prior = logp_without(model, ["y", "z"])
    others = {name: v for name, v in model.initial_point().items() if name not in point}

    def expected(x: np.ndarray) -> float:
        return prior(units.space.point(x) | others) + weights @ found(x)[chosen]

    logp, gradient = density(small)(point)
    assert logp == pytest.approx(expected(x), rel=1e-12)
    # By Fisher's identity: but for the error of nodes.
    assert gradient["c"] == pytest.approx(slope(expected, x, units, "c"), abs=1e-5)


def test_the_loops_of_nodes_are_written_once_for_all_models_of_a_graph():
    with pm.Model() as model:
        STRUCTURES["data containers"][0]()
    rows = LogLikelihood(units := nodes_at(read(model, "z"), 5)).in_memory
    coreset_model(units, rows.take(np.array([1])), np.ones(1))
    n_written = with_loops.cache_info().misses
    more = replace(units)  # as with other nodes
    coreset_model(more, rows.take(np.array([0, 2])), np.ones(2))
    assert with_loops.cache_info().misses == n_written


def test_a_pass_over_units_keeps_the_potentials_of_its_candidates():
    with pm.Model() as model:
        STRUCTURES["data containers"][0]()
    loglik = LogLikelihood(nodes_at(read(model, "z"), 5))
    points = np.random.default_rng(1).normal(0, 0.3, (30, loglik.n_dims))
    draws = loglik.observations.space.constrain(points)
    sums = loglik.sums(draws, n_candidates=loglik.n_rows)
    assert len(sums.candidates) == loglik.n_rows
    np.testing.assert_allclose(sums.loglik, loglik.matrix(draws, sums.candidates), rtol=1e-12)


@pytest.mark.parametrize(("n_units", "n_each", "shortest"), [(700, 2, 100), (7, 1_000, 1_000)])
def test_blocks_are_cut_along_draws_so_that_loops_along_rows_are_long(
    n_units, n_each, shortest, limits, calls
):
    """Units of few rows, and of many, of which not even one fits into a block at all draws."""
    level = np.repeat(np.arange(n_units), n_each)
    y = np.random.default_rng(2).normal(size=level.size)
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), pm.HalfNormal("w"), shape=n_units)
        pm.Normal("y", z[level], 1.0, observed=y)
    loglik = LogLikelihood(nodes_at(read(model, "z"), 5))
    points = np.random.default_rng(1).normal(0, 0.3, (101, loglik.n_dims))
    draws = loglik.observations.space.constrain(points)
    whole = loglik.matrix(draws)
    blocks = calls(Kernel, "arrays")
    limits(entries_of_units=2**13, entries_of_places=2**10)
    np.testing.assert_allclose(loglik.matrix(draws), whole, rtol=1e-12)
    seen = [call.args[1].n_unit_rows for call in blocks]
    assert len(seen) > 20
    assert min(seen) >= shortest


def slope(f: Callable[[np.ndarray], float], x: np.ndarray, units: Observations, name: str) -> float:
    """Return a difference of a function along the entry of a variable."""
    step = np.zeros(len(x))
    step[units.space.columns[name]] = 1e-5
    return (f(x + step) - f(x - step)) / 2e-5


# -- by PyMC's own densities -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_pymc() -> tuple[list[np.ndarray], np.ndarray]:
    """Draws of the shared variables, and PyMC's log-densities with levels integrated out."""
    units = nodes_at(counts(centred=True), 1)
    x = list(np.random.default_rng(8).normal(0.0, 0.3, size=(6, 2)))
    prior = logp_without(units.model, ["y", "z"])
    found = log_densities_of_units(LogLikelihood(units), units.space.constrain(np.array(x)))
    return x, found + np.array([prior(units.space.point(at)) for at in x])


def log_densities(x: list[np.ndarray], degree: int) -> np.ndarray:
    units = nodes_at(counts(centred=True), degree)
    prior, found = logp_without(units.model, ["y", "z"]), loglik_of(units)
    others = {"z": np.zeros(G)} if "z" in {v.name for v in units.model.value_vars} else {}
    return np.array([prior(units.space.point(at) | others) + found(at).sum() for at in x])


@pytest.mark.slow
def test_few_places_of_two_normal_variables_are_enough():
    level, x = np.repeat(np.arange(4), 3), np.random.default_rng(9).normal(size=12)
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, pm.HalfNormal("w"), shape=(4, 2))
        pm.Normal("y", z[level, 0] + z[level, 1] * x, 1.0, observed=x**2)
    loglik = LogLikelihood(units := nodes_at(read(model, "z"), 5))
    draws = units.space.constrain(np.array([[0.0], [0.4]]))
    first, last = (log_densities_of_units(loglik, draws, _GRIDS[2][i]) for i in (0, -1))
    np.testing.assert_allclose(first, last, rtol=0, atol=1e-6)
    assert len(_places(2, *_GRIDS[2][0])[0]) < 120


def test_densities_of_pymc_are_those_of_units(of_pymc):
    x, expected = of_pymc
    np.testing.assert_allclose(log_densities(x, 61), expected, rtol=0, atol=1e-6)


def test_wrong_potentials_are_found_out(of_pymc):
    x, expected = of_pymc
    right, wrong = (log_densities(x, k) for k in (61, 1))
    assert second_opinion(expected, 0 * expected, right).difference < 1e-6
    ratios = right - 0.99 * expected
    for unknown in (None, 0.0, np.nan, np.inf):
        with refused(UnsupportedModelError, "log-ratio"):
            second_opinion(expected, 0.99 * expected, ratios + 0.01 * right, node_error=unknown)
    # Far from the posterior nodes may be off by as little as changes nothing.
    second_opinion(expected, 0.99 * expected, 1.02 * ratios, node_error=0.0)
    with refused(UnsupportedModelError, "log-ratio"):
        second_opinion(expected, 0 * expected, 1.02 * right)
    with refused(UnsupportedModelError, "log-ratio"):
        second_opinion(expected, 0 * expected, wrong)
    # Unless it is known that nodes are off by as much.
    assert second_opinion(expected, 0 * expected, wrong, node_error=0.1).difference > 0.005


def test_log_ratios_that_differ_noticeably_are_not_said_to_agree():
    """The error of nodes allows them to."""
    of_full = np.linspace(-1e5, -1e5 + 1, 8)
    found = second_opinion(of_full, of_full, np.linspace(-0.2, 0.2, 8), node_error=0.01)
    assert found.in_short == "differ by up to 0.2 nats, at 8 draws"


def test_units_have_no_linear_predictor():
    with refused(UnsupportedModelError, "integrate=False", "method='auto'", topic="regressions"):
        row_graph_of(nodes_at(counts(centred=True), 1))


# -- what stays a parameter, and what is refused ---------------------------------------------------


def candidates(build: Callable[[], Any], asked: list[str] | None = None) -> Any:
    with pm.Model() as model:
        build()
    return chosen(model, asked)


MANY = 300
LEVEL_OF_MANY = np.repeat(np.arange(MANY), 2)
Y_OF_MANY = np.random.default_rng(6).normal(size=2 * MANY)


def rows_of_many(mean: Any) -> Any:
    return pm.Normal("y", mean, 1.0, observed=Y_OF_MANY)


def of_many(**arguments: Any) -> Any:
    return pm.Normal("z", 0, scale("w"), **{"shape": MANY} | arguments)


def test_levels_are_integrated_out_by_themselves_where_there_are_many():
    assert candidates(lambda: rows_of_many(of_many()[LEVEL_OF_MANY])) == ("z",)
    few = LEVEL_OF_MANY % 200
    assert candidates(lambda: rows_of_many(of_many(shape=200)[few])) == ()
    assert candidates(lambda: rows_of_many(of_many(shape=200)[few]), ["z"]) == ("z",)


def test_many_shared_parameters_need_more_levels():
    def build() -> None:
        b = pm.Normal("b", shape=20)
        design = np.random.default_rng(7).normal(size=(2 * MANY, 20))
        rows_of_many(of_many()[LEVEL_OF_MANY] + design @ b)

    assert candidates(build) == ()


@pytest.mark.parametrize(
    ("n_levels", "n_each", "n_columns", "found"),
    [
        (300, 2, 30, ("z",)),
        (300, 29, 30, ("z",)),
        (300, 30, 30, ()),  # many rows, of which each level keeps few
        (300, 2, 70, ()),  # hardly any dimensions less
        (3_000, 25, 160, ()),  # too many rows for chains of all
    ],
)
def test_beside_many_shared_parameters_levels_of_few_rows_are_all_kept(
    n_levels, n_each, n_columns, found
):
    level = np.repeat(np.arange(n_levels), n_each)

    with pm.Model() as model:
        b = pm.Normal("b", shape=n_columns)
        seen = of_many(shape=n_levels)[level] + b[np.arange(len(level)) % n_columns]
        pm.Normal("y", seen, 1.0, observed=np.zeros(len(level)))
    names, reason = chosen_units(find_observations(model))
    assert names == found
    said = f"{n_levels:,} levels are few beside {n_columns + 1} other free dimensions"
    assert (said in reason) == ("integrate=['z']" in reason) == (found == ())


def test_of_crossed_factors_the_larger_is_integrated_out():
    items = np.arange(2 * MANY) % 30

    def build() -> None:
        rows_of_many(of_many()[LEVEL_OF_MANY] + pm.Normal("item", shape=30)[items])

    # The larger has ten times as many levels as it should have beside few shared variables.
    assert candidates(build, ["z"]) == ("z",)
    assert candidates(build, ["item"]) == ("item",)
    with refused(InvalidOptionError, "integrate=['z', 'item']", "[['z'], ['item']]"):
        candidates(build, ["z", "item"])


def _tied_by_their_sum() -> None:
    rows_of_many(pm.ZeroSumNormal("z", 1.0, shape=MANY)[LEVEL_OF_MANY] + pm.Normal("m"))


def _tied_by_steps() -> None:
    start = pm.Normal.dist(0, 1)
    walk = pm.GaussianRandomWalk("z", sigma=scale("w"), init_dist=start, steps=MANY - 1)
    rows_of_many(walk[LEVEL_OF_MANY])


def _tied_by_a_covariance() -> None:
    rows_of_many(pm.MvNormal("z", np.zeros(MANY), np.eye(MANY), shape=MANY)[LEVEL_OF_MANY])


@pytest.mark.parametrize("build", [_tied_by_their_sum, _tied_by_steps, _tied_by_a_covariance])
def test_levels_that_are_tied_are_refused(build):
    with pm.Model() as model:
        build()
    with refused(UnsupportedModelError, "['z']", "independent", topic="local-latent-variables"):
        read(model, "z")


def test_variables_of_single_rows_that_are_tied_are_kept_by_two_options():
    with pm.Model() as model:
        start = pm.Normal.dist(0, 1)
        walk = pm.GaussianRandomWalk("z", sigma=scale("w"), init_dist=start, steps=MANY - 1)
        pm.Normal("y", walk, 1.0, observed=np.zeros(MANY))
    options, topic = "integrate=False, allow_local=True", "local-latent-variables"
    with refused(UnsupportedModelError, "['z']", options, topic=topic):
        read(model, "z")


NEIGHBOUR, PARENT = (np.arange(MANY) + 1) % MANY, np.arange(MANY) // 2
SWAPPED = np.concatenate([[1, 0], np.arange(2, MANY)])
OTHER_LEVELS: dict[str, Callable[[Any], Any]] = {
    "its own and its neighbour's": lambda z: z[LEVEL_OF_MANY] + 0.7 * z[NEIGHBOUR][LEVEL_OF_MANY],
    "its own, and two in another order": lambda z: z[LEVEL_OF_MANY] * z[SWAPPED][LEVEL_OF_MANY],
    "its own, and the last one first": lambda z: z[LEVEL_OF_MANY] + z[::-1][LEVEL_OF_MANY],
    "its parent's": lambda z: z[PARENT][LEVEL_OF_MANY],
}


@pytest.mark.parametrize("seen", OTHER_LEVELS)
def test_rows_that_see_entries_of_several_levels_are_refused(seen):
    with pm.Model() as model:
        rows_of_many(OTHER_LEVELS[seen](of_many()))
    with refused(UnsupportedModelError, "'z'", "z[level]", topic="local-latent-variables"):
        read(model, "z")


def test_entries_of_several_levels_stay_parameters_unless_they_were_named(caplog):
    with pm.Model() as model:
        rows_of_many(OTHER_LEVELS["its own and its neighbour's"](of_many()))
    options = {"tolerance": 0.01, "rng": np.random.default_rng(1), "key": 1}
    assert integrated_out(model, RowsToRead(integrate="auto"), **options) is None
    assert "depend on 'z' of other levels" in caplog.text
    with refused(UnsupportedModelError, "'z'", "z[level]", topic="local-latent-variables"):
        integrated_out(model, RowsToRead(integrate="z"), **options)


def test_a_prior_that_sees_another_level_is_refused():
    with pm.Model() as model:
        a = pm.Normal("a", shape=MANY)
        b = pm.Normal("b", a[NEIGHBOUR], 1.0, shape=MANY)
        rows_of_many((a + b)[LEVEL_OF_MANY])
    with refused(UnsupportedModelError, "['a']", "independent", topic="local-latent-variables"):
        read(model, "a", "b")


def _rows_of_the_next_level(units: UnitModel) -> UnitModel:
    level = units.factor.level_of_row
    factor = replace(units.factor, level_of_row=(level + 1) % units.factor.n_levels)
    return UnitModel.of(units.rows, factor)


def _data_in_another_order(units: UnitModel) -> UnitModel:
    factor = units.factor
    arrays = tuple(replace(a, values=a.values[ORDER]) for a in factor.arrays)
    return UnitModel.of(units.rows, replace(factor, arrays=arrays))


def test_units_need_one_initial_point_and_one_function_of_pymc(calls):
    with pm.Model() as model:
        _entries_in_another_order()
    points = calls(unconstrained, "make_initial_point_expression")
    units = read(model, "z")
    verify_units(units, rng=np.random.default_rng(1))
    form = units.observations_at_zero
    assert len(points) == 1
    np.testing.assert_array_equal(form.space.start, Unconstrained(form.model).start)
    again = pickle.loads(cloudpickle.dumps(units))  # without what was compiled
    np.testing.assert_array_equal(again.initial_values, units.initial_values)


def _half_of_the_prior(units: UnitModel) -> UnitModel:
    return UnitModel.of(units.rows, replace(units.factor, log_prior=units.factor.log_prior / 2))


@pytest.mark.parametrize(
    ("mistake", "facts", "topic"),
    [
        (
            _rows_of_the_next_level,
            ("observation 9", "['z']", "integrate=False"),
            "local-latent-variables",
        ),
        (_data_in_another_order, ("['z']", "PyMC", "integrate=False"), "models-that-are-refused"),
        (_half_of_the_prior, ("['z']", "PyMC", "integrate=False"), "models-that-are-refused"),
    ],
)
def test_mistakes_in_units_are_found_by_moving_their_variables(mistake, facts, topic):
    with pm.Model() as model:
        _entries_in_another_order()
    units, rng = read(model, "z"), np.random.default_rng(1)
    verify_units(units, rng=rng)
    with refused(UnsupportedModelError, facts, topic=topic):
        verify_units(mistake(units), rng=rng)


def test_why_levels_stay_parameters_is_said(caplog):
    with pm.Model() as model:
        _tied_by_their_sum()
    wanted, rng = RowsToRead(integrate="auto"), np.random.default_rng(1)
    assert integrated_out(model, wanted, tolerance=0.01, rng=rng, key=1) is None
    assert "'z'" in caplog.text
    assert "not independent of each other" in caplog.text


def _also_in_another_prior() -> None:
    z = of_many()
    pm.Normal("b", z.sum())
    rows_of_many(z[LEVEL_OF_MANY])


def _also_in_a_potential() -> None:
    z = of_many()
    pm.Potential("sums to zero", pm.logp(pm.Normal.dist(0, 0.1), z.sum()))
    rows_of_many(z[LEVEL_OF_MANY])


def _also_by_its_mean() -> None:
    z = of_many()
    rows_of_many(z[LEVEL_OF_MANY] - z.mean())


def _by_two_rows_of_levels() -> None:
    z = of_many()
    rows_of_many(z[LEVEL_OF_MANY] - z[(LEVEL_OF_MANY + 1) % MANY])


@pytest.mark.parametrize(
    "build",
    [_also_in_another_prior, _also_in_a_potential, _also_by_its_mean, _by_two_rows_of_levels],
)
def test_what_is_also_seen_elsewhere_stays_a_parameter(build):
    with refused(InvalidOptionError, "integrate=['z']", "[]"):
        candidates(build, ["z"])
    assert candidates(build) == ()


def test_unknown_names_are_refused_with_those_that_may_be_given():
    with refused(InvalidOptionError, "integrate=['zz']", "[['z']]"):
        candidates(lambda: rows_of_many(of_many()[LEVEL_OF_MANY]), ["zz"])


def test_too_many_variables_of_each_level_are_left_alone():
    def build() -> None:
        design = np.random.default_rng(7).normal(size=(2 * MANY, 7))
        rows_of_many((of_many(shape=(MANY, 7))[LEVEL_OF_MANY] * design).sum(-1))

    assert candidates(build) == ()
