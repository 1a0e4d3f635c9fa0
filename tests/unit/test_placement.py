"""Units: where nodes are placed, how densities bend there, and units that are joined."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.polynomial.hermite_e import hermegauss
from pytensor.graph import graph_inputs, vectorize_graph
from scipy.special import gammaln, lambertw, logsumexp, polygamma

from pymc_coresets import UnsupportedModelError
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.bending import bends_of, bent
from pymc_coresets.reading.units.joined_units import kept_units, model_of_units
from pymc_coresets.reading.units.labels import texts_of
from pymc_coresets.reading.units.nodes import Nodes
from pymc_coresets.reading.units.placement import Surface, with_loops
from pymc_coresets.reading.units.ragged import collect, spread
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.unit_modes import _moments_of, _stretched
from tests.models.units import nodes_at, read
from tests.modes import PLAIN_MODE, loop_mode
from tests.refusals import refused

# -- Where nodes of units lie: modes by Newton's method, for any units, draws and modes of Numba. --

RATE, SIZES, FACTOR = pt.scalar("rate"), pt.lvector("sizes"), pt.tensor3("factor")
CENTRE, Y, OFFSET = pt.matrix("centre"), pt.vector("y"), pt.vector("offset")
INPUTS = [RATE, CENTRE, FACTOR, SIZES, Y, OFFSET]

_rng = np.random.default_rng(1)
N_ROWS = np.array([3, 0, 1, 5, 2, 40])
N_UNITS, N = len(N_ROWS), int(N_ROWS.sum())
DATA = {
    "centre": np.zeros((N_UNITS, 2)),
    "factor": np.tile(np.eye(2), (N_UNITS, 1, 1)),
    "sizes": N_ROWS,
    "y": _rng.poisson(3.0, N).astype(float),
    "offset": _rng.normal(size=N_UNITS),
}


@cache
def surface() -> Surface:
    """Counts of rows, with a normal effect, beside another number of each unit.

    The mode of the effect has a closed form; the other is the effect but for what is normal.
    """
    z, other = pt.vector("z"), pt.vector("other")
    of_rows = Y * spread(RATE + z, SIZES) - pt.exp(spread(RATE + z, SIZES))
    prior = -pt.square(z) / 2 - pt.square(other - z - OFFSET) / 2
    return Surface([z, other], collect(of_rows, SIZES) + prior, SIZES, {OFFSET: 0}, {Y: 0})


def outputs() -> list[Any]:
    own = surface()
    return own.placement(CENTRE, FACTOR, *own.others, return_list=True)


def modes(rate: float) -> np.ndarray:
    """Solve ``sum of y - n exp(rate + z) - z = 0``, (n_units, 2)."""
    total = np.array([y.sum() for y in np.split(DATA["y"], np.cumsum(N_ROWS)[:-1])])
    z = total - np.real(lambertw(N_ROWS * np.exp(rate + total)))
    return np.stack([z, z + DATA["offset"]], axis=1)


@cache
def placing() -> Any:
    return pytensor.function(INPUTS, outputs(), mode=PLAIN_MODE)


def found_at(rate: float, **data: np.ndarray) -> np.ndarray:
    return np.array(placing()(rate, *(DATA | data).values()))


def test_what_no_unit_changes_is_computed_outside():
    z, rate = pt.vector("z"), pt.exp(2.0 * RATE)
    own = Surface([z], collect(Y * spread(rate * z, SIZES), SIZES) - z**2, SIZES, {}, {Y: 0})
    common = [v for v in own.others if v not in (Y, SIZES)]
    assert RATE not in common
    assert [v for v in graph_inputs(common) if v not in common and v.name] == [RATE]
    inner = set(graph_inputs([*own.placement.graphs.step, *own.placement.graphs.end]))
    assert RATE not in inner


RATES = [0.0, 1.0, -4.0, 6.0, -30.0]


@pytest.mark.parametrize("rate", RATES)
def test_modes_and_curvatures_are_those_of_the_closed_form(rate):
    z, other, a, b, c = found_at(rate)
    exact = modes(rate)
    curvature = N_ROWS * np.exp(rate + exact[:, 0]) + 2.0
    np.testing.assert_allclose(np.stack([z, other], axis=1), exact, atol=0.02)
    # Of a place within a tenth of a width of the mode.
    np.testing.assert_allclose(a**2, curvature, rtol=0.12)
    np.testing.assert_allclose(a * b, -1.0, rtol=1e-12)
    np.testing.assert_allclose(b**2 + c**2, 1.0, rtol=1e-12)


def test_places_do_not_depend_on_other_units():
    """Also if only some units go on: those of many rows are far from where they begin."""
    whole, starts = found_at(5.0), np.concatenate([[0], np.cumsum(N_ROWS)])
    for unit in range(N_UNITS):
        own = slice(unit, unit + 1)
        data = {name: DATA[name][own] for name in ("centre", "factor", "sizes", "offset")}
        alone = found_at(5.0, **data, y=DATA["y"][starts[unit] : starts[unit + 1]])
        np.testing.assert_allclose(alone[:, 0], whole[:, unit], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", [PLAIN_MODE, loop_mode(1)], ids=["NumPy", "loops"])
def test_draws_together_are_draws_one_by_one(mode):
    rates = pt.vector("rates")
    at_draws = vectorize_graph(outputs(), {RATE: rates})
    function = pytensor.function([rates, *INPUTS[1:]], at_draws, mode=mode)
    found = np.array(function(np.array(RATES), *DATA.values()))
    expected = np.array([found_at(rate) for rate in RATES]).swapaxes(0, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "mode", [PLAIN_MODE, pytest.param("NUMBA", marks=pytest.mark.slow)], ids=["NumPy", "Numba"]
)
def test_a_loop_of_pytensor_is_the_same(mode):
    graph = with_loops(pt.stack(outputs()))
    function = pytensor.function(INPUTS, graph, mode=mode)
    for rate in RATES:
        found = function(rate, *DATA.values())
        np.testing.assert_allclose(found, found_at(rate), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("width", "number"), [(1.0, 0), (0.1, N_UNITS)], ids=["usual", "wider"])
def test_units_are_looked_at_beyond_a_step_where_widths_are_much_larger_than_usual(width, number):
    seen = []
    own = surface().placement

    def end(*given):
        seen.append(len(given[0]))
        return lambda *state: function(*given, *state)

    functions = [
        numpy_function(own.graphs.inputs, graph) for graph in (own.graphs.step, own.graphs.end)
    ]
    step, function = functions
    factor = width * DATA["factor"]
    data = [np.array(0.0), *(DATA | {"factor": factor}).values()]
    values = dict(zip(INPUTS, data, strict=True))
    given = [values[v] for v in (CENTRE, FACTOR, *surface().others)]
    found = own.found(given, lambda *g: lambda *s: step(*g, *s), end)
    assert sum(seen) == number
    np.testing.assert_allclose(found, found_at(0.0, factor=factor), rtol=1e-9, atol=1e-11)


def test_a_unit_without_a_density_keeps_its_place_and_usual_widths():
    y = np.where(np.arange(N) < N_ROWS[0], np.inf, DATA["y"])
    found, usual = found_at(0.0, y=y), found_at(0.0)
    np.testing.assert_allclose(found[:, 0], [0.0, 0.0, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal(found[:, 1:], usual[:, 1:])


def test_places_have_no_gradient():
    z, *_ = outputs()
    slope = pytensor.function(INPUTS, pt.grad((RATE * z).sum(), RATE), mode=PLAIN_MODE)
    assert float(slope(1.0, *DATA.values())) == pytest.approx(found_at(1.0)[0].sum())


def test_data_of_units_do_not_depend_on_draws():
    with pytest.raises(NotImplementedError, match="shared variables"):
        vectorize_graph(outputs(), {Y: pt.matrix("y")})


# -- Nodes as skew as a density: the map of an axis, and what a skewness makes of it. --------------

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


# -- Units that are kept with their labels, rows and data, and put one after the other. ------------

OF, SEEN = np.array([3, 0, 1, 0, 3, 1, 1, 2]), np.arange(8)
LABELS, INCOME = ["ada", "ben", "cleo", "dan"], np.array([10.0, 20.0, 30.0, 40.0])
USERS = {"of": OF, "seen": SEEN, "w": INCOME, "labels": LABELS}


def model_of(labels):
    with pm.Model(coords={"user": labels}) as model:
        of, seen = pm.Data("of", OF), pm.Data("seen", SEEN)
        income = pm.Data("income", INCOME, dims="user")
        effect = pm.Normal("effect", pm.Normal("b") * income, 1.0, dims="user")
        pm.Poisson("y", pm.math.exp(effect[of]), observed=seen)
    return model


@pytest.fixture(scope="module")
def model():
    return model_of(LABELS)


@pytest.fixture(scope="module")
def units(model):
    return read(model, "effect")


def test_units_are_kept_with_their_own_labels_rows_and_data(units):
    kept = kept_units(units, np.array([1, 3]))
    assert kept["label"].to_numpy().tolist() == ["ben", "dan"]
    assert kept["size"].to_numpy().tolist() == [3, 2]
    assert kept["data seen"].to_numpy().tolist() == [2, 5, 6, 0, 4]
    [income] = [values for name, values in kept.items() if name.endswith("income")]
    assert income.to_numpy().tolist() == [20.0, 40.0]


def test_units_of_several_parts_follow_each_other(model, units):
    filled = model_of_units(model, [kept_units(units, np.array(some)) for some in ([1, 3], [0])])
    assert list(filled.coords["user"]) == ["ben", "dan", "ada"]
    assert filled["of"].get_value().tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert filled["seen"].get_value().tolist() == [2, 5, 6, 0, 4, 1, 3]
    assert filled["income"].get_value().tolist() == [20.0, 40.0, 10.0]
    assert model["seen"].get_value().tolist() == SEEN.tolist()  # left as it was


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [float, np.float32, str])
def test_labels_are_the_same_whatever_their_type(other):
    numbers = np.arange(7, 12)
    assert texts_of(numbers) == texts_of([other(i) for i in numbers])


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_dates_are_known_again_in_any_unit(unit):
    days = np.datetime64("2000-01-31") + np.arange(3)
    known = texts_of(days.astype(f"datetime64[{unit}]"))
    assert known == texts_of([pd.Timestamp(day) for day in days])
    labels = np.datetime64("2000-01-31", unit) + np.arange(4)
    units = read(model_of(labels), "effect")
    filled = model_of_units(model_of(labels), [kept_units(units, np.array([1, 2]))])
    assert texts_of(filled.coords["user"]) == texts_of(labels[1:3])


# -- what cannot be joined -------------------------------------------------------------------------


def unlabelled(data) -> pm.Model:
    with pm.Model() as model:
        user, seen = pm.Data("of", data["of"]), pm.Data("seen", data["seen"])
        effect = pm.Normal("effect", pm.Normal("a"), pm.HalfNormal("s"), shape=len(data["w"]))
        pm.Poisson("y", pm.math.exp(effect[user]), observed=seen)
    return model


def constant(data) -> pm.Model:
    with pm.Model(coords={"user": data["labels"]}) as model:
        user = pm.Data("of", data["of"])
        effect = pm.Normal("effect", pm.Normal("a"), pm.HalfNormal("s"), dims="user")
        pm.Poisson("y", pm.math.exp(effect[user]), observed=data["seen"])
    return model


def without_index(data) -> pm.Model:
    with pm.Model(coords={"user": data["labels"]}) as model:
        user, seen = pm.Data("of", data["of"] + 1), pm.Data("seen", data["seen"])
        effect = pm.Normal("effect", pm.Normal("a"), pm.HalfNormal("s"), dims="user")
        pm.Poisson("y", pm.math.exp(effect[user - 1]), observed=seen)
    return model


def without_dims(data) -> pm.Model:
    with pm.Model(coords={"user": data["labels"]}) as model:
        user, seen = pm.Data("of", data["of"]), pm.Data("seen", data["seen"])
        w = pm.Data("w", data["w"])
        effect = pm.Normal("effect", pm.Normal("g") * w, pm.HalfNormal("s"), dims="user")
        pm.Poisson("y", pm.math.exp(effect[user]), observed=seen)
    return model


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (unlabelled, ("['effect']", "labels", 'dims="level"')),
        (constant, ("array", "not in pm.Data")),
        (without_index, ("['effect']", "No data container")),
        (without_dims, ("(w)", "dims")),
    ],
)
def test_what_other_units_cannot_be_joined_to_is_refused(kind, facts):
    model = kind(USERS)
    units = read(model, "effect")
    with refused(UnsupportedModelError, facts):
        kept_units(units, units.levels)


# -- units of single rows, and equal ones ----------------------------------------------------------


def units_of_rows(n: int, part: int) -> pm.Model:
    """Return counts with an effect each: levels are rows, and have no index."""
    counts = np.random.default_rng(part).poisson(
        np.exp(1 + np.random.default_rng(9).normal(size=n))
    )
    with pm.Model(coords={"row": [f"{part} {i}" for i in range(n)]}) as model:
        seen = pm.Data("seen", counts, dims="row")
        effect = pm.Normal("effect", 0.0, pm.HalfNormal("s"), dims="row")
        pm.Poisson("y", pm.math.exp(pm.Normal("a") + effect), observed=seen, dims="row")
    return model


def test_units_of_single_rows_are_joined_by_the_labels_of_rows():
    models = [units_of_rows(8, part) for part in (1, 2)]
    units = [read(model, "effect") for model in models]
    parts = [kept_units(units[0], np.array([2, 5])), kept_units(units[1], np.arange(8))]
    filled = model_of_units(models[0], parts)
    assert list(filled.coords["row"])[:3] == ["1 2", "1 5", "2 0"]
    found = filled["seen"].get_value()
    known = [model["seen"].get_value() for model in models]
    np.testing.assert_array_equal(found, np.r_[known[0][[2, 5]], known[1]])
    np.testing.assert_array_equal(models[0]["seen"].get_value(), known[0])  # left as it was


def test_equal_units_are_merged_with_all_that_they_represent():
    model = unlabelled({"of": np.array([0, 1, 1, 2]), "seen": np.array([4, 1, 2, 4]), "w": [0] * 3})
    units = replace(read(model, "effect"), case_weights=np.array([5.0, 2.0, 3.0]))
    loglik = LogLikelihood(nodes_at(units, 3), collapse=True)
    np.testing.assert_array_equal(loglik.in_memory.all.case_weights, [8.0, 2.0])
    np.testing.assert_array_equal(loglik.collapsed(collapse=False).total_weight, 10.0)
