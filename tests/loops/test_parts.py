"""Fused loops that NumPy evaluates operation by operation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph import Variable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.loops import fused_loops
from pymc_coresets.loops.compilation import compiled_loop
from pymc_coresets.loops.fused_loops import Kernel, Program, loop_mode
from pymc_coresets.loops.taken_apart import is_large, parts_of

pytestmark = pytest.mark.compiled

FEW = pt.tensor("few", dtype="float64", shape=(None, 3))


def _graphs() -> dict[str, Variable]:
    return {
        "functions": pt.softplus(FEW) + pt.log1p(pt.exp(-FEW)) * pt.sigmoid(FEW),
        "sum": pt.exp(FEW - 1.0).sum(axis=1),
        "maximum": (2 * FEW + 1).max(axis=1),
        "all": pt.all(pt.isnan(FEW) | (FEW > 0), axis=1),
        "cases": pt.switch(FEW > 0, FEW**3, pt.clip(FEW, -1, 1) / 3),
        "two": pt.logsumexp(FEW, axis=1) + pt.gammaln(abs(FEW[:, 0]) + 1),
    }


@pytest.mark.parametrize("name", _graphs())
def test_parts_have_the_values_of_the_loop(name: str) -> None:
    graph = _graphs()[name]
    x = np.random.default_rng(1).normal(size=(7, 3))
    function = pytensor.function([FEW], graph, mode=loop_mode())
    loops = [n for n in function.maker.fgraph.apply_nodes if parts_of(n) is not None]
    assert loops
    for node in loops:
        parts = parts_of(node)
        assert parts is not None
        values = [_some(v, x) for v in node.inputs]
        found = Program(parts, parts.toposort(), 0)(*values)
        expected = compiled_loop(node)(*values)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)
            assert one.dtype == other.dtype


def _some(variable: Variable, x: np.ndarray) -> np.ndarray:
    """Return values that fit in an input of a loop."""
    if isinstance(variable, pt.TensorConstant):
        return np.asarray(variable.data)
    shape = [n if n is not None else len(x) for n in variable.type.shape]
    return np.resize(x, shape).astype(variable.type.dtype)


def test_what_depends_on_draws_alone_is_not_compiled(calls: Callable[..., list[Any]]) -> None:
    made = calls(fused_loops, "compiled_loop")
    draws, n, y = pt.matrix("draws", shape=(None, 3)), pt.lscalar("n"), pt.vector("y")
    scale = pt.exp(draws - draws.max(axis=1, keepdims=True)).sum(axis=1)
    at_rows = -pt.square((y - draws[:, :1]) / scale[:, None]) - pt.log(scale)[:, None]
    kernel = Kernel([draws], [n, y], [at_rows, pt.exp(at_rows).sum(axis=1)], {0: 0})
    x, rows = np.random.default_rng(2).normal(size=(5, 3)), np.arange(4.0)
    found, sums = kernel.program.given(x)(np.array(4), rows)
    own = np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1)[:, None]
    expected = -np.square((rows - x[:, :1]) / own) - np.log(own)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(sums, np.exp(expected).sum(axis=1), rtol=1e-12)
    compiled = [call.args[0] for call in made]
    assert compiled
    assert all(is_large(node) for node in compiled)
    assert not [node for node in compiled if not _reads(node, y)]


def _reads(node: pytensor.graph.Apply, rows: Variable) -> bool:
    return any(v.name == rows.name for v in ops.ancestors([*node.outputs]))


def test_neither_indices_nor_rows_alone_are_large() -> None:
    index = pt.ltensor3("index")
    assert not is_large(pt.clip(index, 0, 2).owner)
    assert not is_large(pt.exp(pt.row()).owner)
    assert not is_large(pt.exp(pt.tensor(shape=(1, None, None))).owner)
    assert is_large((pt.matrix() > 0).owner)


def test_functions_that_numpy_lacks_stay_loops() -> None:
    many = [pt.vector() for _ in range(40)]
    function = pytensor.function(many, pt.add(*many), mode=loop_mode())
    [node] = [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, ops.Elemwise)]
    assert parts_of(node) is None
