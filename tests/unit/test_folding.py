"""Graphs that NumPy evaluates: stable, and never one number at a time."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.maker import FunctionMaker

from pymc_coresets.compat import pytensor_api
from pymc_coresets.compat.pytensor_api import Elemwise
from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.folding import (
    numpy_function,
    numpy_mode,
    values_of,
    widened,
    with_joined_scalars,
)
from tests.modes import PLAIN_MODE

X = np.array([-800.0, -40.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 40.0, 800.0])
FUNCTIONS = {
    "log of a probability": (lambda x: pt.log(pt.sigmoid(x)), -np.logaddexp(0, -X)),
    "log of its complement": (lambda x: pt.log1p(-pt.sigmoid(x)), -np.logaddexp(0, X)),
    "softplus": (pt.softplus, np.logaddexp(0, X)),
    "log1mexp": (
        lambda x: pt.log1mexp(-pt.abs(x) - 1e-9),
        np.log(-np.expm1(-np.abs(X) - 1e-9)),
    ),
    "an integer power": (lambda x: x**6 - x**4, X**6 - X**4),
    "limits": (lambda x: pt.clip(x, -2, 3), np.clip(X, -2, 3)),
    "limits in the wrong order": (
        lambda x: pt.clip(x, 3, -2),
        np.where(X < 3, 3.0, np.minimum(X, -2)),  # as PyTensor's own
    ),
}


def test_values_of_data_are_stable_and_make_no_function(fails):
    fails(FunctionMaker, "__init__")
    x, length = pt.dvector("x"), pytensor.shared(np.int64(4))
    for function, expected in FUNCTIONS.values():
        of_data, of_input = values_of([function(pt.constant(X)), function(x)], {x: X})
        np.testing.assert_allclose(of_data, expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(of_input, expected, rtol=1e-12, atol=1e-15)
    chosen, positions = values_of([pt.constant(X)[length:], 2 * pt.arange(length)])
    np.testing.assert_array_equal(chosen, X[4:])
    np.testing.assert_array_equal(positions, [0, 2, 4, 6])


def test_labelled_outcomes_and_long_sums_are_evaluated_without_a_function():
    codes = pmd.as_xtensor(np.array([True, False]), dims="obs").astype("int64")
    numbers = [pt.constant(i, dtype="int64") for i in range(40)]
    [values, total] = values_of([(2 * codes).values, pt.add(*numbers)])
    np.testing.assert_array_equal(values, [2, 0])
    assert total == sum(range(40))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_stable_and_come_from_ufuncs(name):
    function, expected = FUNCTIONS[name]
    x = pt.dvector("x")
    [found] = numpy_function([x], [function(x)])(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    compiled = pytensor.function([x], function(x), mode=PLAIN_MODE)
    for node in compiled.maker.fgraph.apply_nodes:
        if isinstance(node.op, Elemwise):
            assert node.op.nfunc_spec is not None or node.op.scalar_op.nfunc_spec, node


@pytest.mark.parametrize("function", [pt.add, pt.mul], ids=["sum", "product"])
@pytest.mark.parametrize(
    ("mode", "n_arrays"), [(PLAIN_MODE, 1_000), (numpy_mode("None"), 1_000), (loop_mode(), 40)]
)
def test_more_arrays_than_numpy_takes_at_once(function, mode, n_arrays):
    arrays = np.random.default_rng(1).normal(size=(n_arrays, 3))
    inputs = pt.dvectors(len(arrays))
    compiled = pytensor.function(inputs, function(*inputs), mode=mode)
    expected = arrays.sum(axis=0) if function is pt.add else arrays.prod(axis=0)
    np.testing.assert_allclose(compiled(*arrays), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [lambda x: pt.specify_shape(x, (None, 2)), pm.Normal.dist, lambda x: x[1:, None]],
    ids=["a shape that is partly known", "a random draw", "slices"],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_without_a_type_of_numbers_stay_as_they_are(function, dtype):
    x = pt.matrix("x", dtype=dtype)
    [found] = widened([function(x)], {x: pt.matrix("wide", dtype="float64")})
    assert found.type.dtype == "float64"


def test_vectors_of_scalars_are_joined_within_each_other():
    a, b, c = pt.dscalars("a", "b", "c")
    inner = pt.stack([a, b, b])
    found = with_joined_scalars([pt.stack([inner.sum(), c, inner.sum()]), inner, a])
    assert "MakeVector" not in pytensor.dprint(found, file="str")
    values = numpy_function([a, b, c], found)(1.0, 2.0, 4.0)
    for value, expected in zip(values, ([5.0, 4.0, 5.0], [1.0, 2.0, 2.0], 1.0), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_loops_that_are_evaluated_a_few_times_are_not_compiled_by_c():
    x = pt.vector("x")
    steps = pytensor_api.scan(
        lambda state: pt.sin(2 * state) + 1, outputs_info=x, n_steps=3, return_updates=False
    )
    values = np.array([0.1, 0.2])
    function = pytensor.function([x], steps[-1], mode=PLAIN_MODE)
    expected = values
    for _ in range(3):
        expected = np.sin(2 * expected) + 1
    np.testing.assert_allclose(function(values), expected, rtol=1e-12)
    nodes = function.maker.fgraph.toposort()
    [loop] = [node.op for node in nodes if isinstance(node.op, pytensor_api.Scan)]
    assert not any(hasattr(thunk, "cthunk") for thunk in loop.fn.vm.thunks)
