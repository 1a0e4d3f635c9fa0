"""Equal log-densities with fewer functions of each row."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph import ancestors

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.fewer_functions import with_fewer_functions
from pymc_coresets.reading.units.ragged import Spread, collect, spread

SIZES = pt.lvector("sizes")
X = pt.vector("x")  # of rows
Z, U = pt.vector("z"), pt.vector("u")  # of units
K = pt.vector("k", shape=(1,))  # of all
OF_ROWS, ROWS_OF_U = spread(Z, SIZES), spread(U, SIZES)
INPUTS = [X, Z, U, K, SIZES]
GIVEN = [
    np.array([0.3, -1.2, 2.0, 0.5, -0.1, 7.0]),
    np.array([0.7, -2.0, 1.1, 0.0]),
    np.array([-0.3, 0.4, 2.0, -1.0]),
    np.array([1.7]),
    np.array([2, 0, 3, 1]),
]

# By name: what is written otherwise, a scalar operation, and how often it is there at the end.
CASES = {
    "a power of a scale": (pt.exp(OF_ROWS) ** -2.0, "pow", 0),
    "a power of a product": ((pt.sqr(X) * pt.exp(OF_ROWS) / pt.exp(X)) ** K, "pow", 1),
    "a power of a quotient": ((pt.sqr(X) / (pt.exp(X) * spread(pt.exp(Z), SIZES))) ** K, "pow", 1),
    "one over exponentials": ((1.0 / pt.sqr(X) / pt.exp(OF_ROWS)) ** K, "pow", 1),
    "a power by row": (pt.exp(OF_ROWS) ** X, "pow", 1),
    "a logarithm": (pt.log(pt.sqr(X) * pt.exp(OF_ROWS) / spread(pt.exp(U), SIZES)), "log", 1),
    "a logarithm of exponentials": (pt.log(pt.exp(OF_ROWS) / pt.exp(X)), "log", 0),
    "no exponential": (pt.log(pt.sqr(X) * pt.sqr(OF_ROWS)), "log", 1),
}


def _count(graph, name):
    found = [ops.scalar_op_of(v) for v in ancestors([graph])]
    return sum(type(op).__name__.lower() == name for op in found)


def _values_and_gradients(graph):
    gradients = pt.grad(pt.sum(graph * pt.cos(X)), [X, Z, U, K], disconnected_inputs="ignore")
    function = numpy_function(INPUTS, [graph, *gradients])
    with np.errstate(all="ignore"):
        return function(*GIVEN)


@pytest.mark.parametrize(("graph", "name", "number"), CASES.values(), ids=CASES)
def test_values_and_gradients_remain_with_fewer_functions(graph, name, number):
    [found] = with_fewer_functions([graph])
    assert _count(found, name) == number
    for before, after in zip(*map(_values_and_gradients, (graph, found)), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-14)


def _spread_last(graph):
    """Return the operations on values that have been given to rows."""
    found = [v.owner for v in ancestors([graph]) if v.owner is not None]
    return [
        type(node.op.scalar_op).__name__
        for node in found
        if isinstance(node.op, ops.Elemwise)
        and any(isinstance(ops.op_of(v), Spread) for v in node.inputs)
    ]


@pytest.mark.parametrize(
    ("graph", "of_rows"),
    [
        (pt.sin(OF_ROWS), []),
        (pt.sin(K * OF_ROWS) + ROWS_OF_U, []),
        (pt.mul(X, OF_ROWS, pt.cos(ROWS_OF_U)), ["Mul"]),
        (X / pt.sqrt(1 + pt.sqr(OF_ROWS)), ["TrueDiv"]),
        (X - OF_ROWS, ["Sub"]),
        (spread(Z, SIZES) + spread(U, SIZES * 1), ["Add"]),  # other units, for all that is known
    ],
)
def test_what_a_unit_has_is_computed_before_its_rows(graph, of_rows):
    [found] = with_fewer_functions([graph])
    assert _spread_last(found) == of_rows
    for before, after in zip(*map(_values_and_gradients, (graph, found)), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-14)


def test_values_of_units_with_other_axes_come_before_rows():
    matrix = pt.matrix("m")
    whole = pt.exp(spread(matrix, SIZES)) * spread(matrix, SIZES)
    [found] = with_fewer_functions([collect(whole, SIZES).sum(axis=1)])
    assert _spread_last(found) == []
    m = np.arange(8.0).reshape(4, 2)
    expected = (GIVEN[-1][:, None] * m * np.exp(m)).sum(axis=1)
    np.testing.assert_allclose(numpy_function([matrix, SIZES], [found])(m, GIVEN[-1])[0], expected)


def test_powers_do_not_overflow_where_a_factor_would():
    graph = (pt.exp(OF_ROWS) * pt.exp(-ROWS_OF_U)) ** K
    [found] = with_fewer_functions([graph])
    function = numpy_function([Z, U, K, SIZES], [found])
    far = np.array([-800.0, 0.0, 0.0, 0.0])
    [value] = function(far, np.zeros(4), np.array([0.25]), GIVEN[-1])
    np.testing.assert_allclose(value[:2], np.exp(-200.0))
