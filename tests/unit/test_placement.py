"""Where nodes of units lie: modes by Newton's method, for any units, draws and modes of Numba."""

from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph import graph_inputs, vectorize_graph
from scipy.special import lambertw

from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.placement import Surface, with_loops
from pymc_coresets.reading.units.ragged import collect, spread
from tests.modes import PLAIN_MODE

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
