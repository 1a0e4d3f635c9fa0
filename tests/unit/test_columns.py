"""Graphs of arrays side by side, written as graphs of each of them."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.units.columns import by_columns
from pymc_coresets.reading.units.ragged import collect, spread

X, W, SIZES = pt.matrix("x", shape=(None, 3)), pt.matrix("w", shape=(None, 3)), pt.lvector("sizes")
VALUES = np.random.default_rng(1).normal(size=(4, 3))
WEIGHTS, N_ROWS = np.random.default_rng(2).normal(size=(6, 3)), np.array([1, 0, 3, 2])
SHIFTS = pt.constant([0.0, 1.0])
FIXED = pt.constant([0.5, -1.0, 2.0])

GRAPHS = {
    "a column": X[:, -2],
    "differences": pt.sum((X[:, 1:] - X[:, :-1]) ** 2, axis=1),
    "a sum of joined arrays": pt.join(1, X[:, :1] / 2, X[:, 1:] - X[:, :-1]).sum(axis=1),
    "a maximum": (X * FIXED).max(axis=1),
    "all of them": pt.all(X > -1.0, axis=1) + 0.0,
    "a sum of exponentials": pt.logsumexp(X[None] * 2, axis=2)[0],
    "a mixture": pt.logsumexp(pt.stack([X[:, 0], -pt.exp(X[:, 1])], axis=1) + SHIFTS, axis=1),
    "rows": collect((spread(X, SIZES) * W).sum(axis=1), SIZES),
    "an axis that is moved": pt.expand_dims(X, 1).sum(axis=2)[:, 0],
}
#: These need the whole array.
WHOLE = {
    "a product of matrices": X @ W[:3].T,
    "a running sum": X.cumsum(axis=1).sum(axis=1),
    "a sum over units": X.sum(axis=0),
}


def both(graph: pt.TensorVariable) -> tuple[pt.TensorVariable, list[np.ndarray]]:
    """Return what is written by columns, and its values and gradients after those of the graph."""
    columns = [pt.vector() for _ in range(3)]
    [apart] = by_columns([graph], X, columns)
    slopes = pt.grad(apart.sum(), columns, disconnected_inputs="ignore")
    one = pytensor.function(
        [*columns, W, SIZES], [apart, pt.stack(slopes, axis=1)], mode=PLAIN_MODE,
        on_unused_input="ignore",
    )  # fmt: skip
    other = pytensor.function(
        [X, W, SIZES], [graph, pt.grad(graph.sum(), X)], mode=PLAIN_MODE, on_unused_input="ignore"
    )
    return apart, [*other(VALUES, WEIGHTS, N_ROWS), *one(*VALUES.T, WEIGHTS, N_ROWS)]


@pytest.mark.parametrize("name", GRAPHS | WHOLE)
def test_values_and_gradients_are_the_same(name):
    _, [values, slopes, own, of_columns] = both((GRAPHS | WHOLE)[name])
    np.testing.assert_allclose(own, values, rtol=1e-12)
    np.testing.assert_allclose(of_columns, slopes, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_is_joined(name):
    apart, _ = both(GRAPHS[name])
    assert not any(isinstance(n.op, ops.Join | ops.Split) for n in ops.io_toposort([], [apart]))


def test_a_component_without_a_density_has_no_share():
    columns = [pt.vector() for _ in range(3)]
    [graph] = by_columns([pt.logsumexp(X, axis=1)], X, columns)
    none = np.array([-np.inf, -np.inf])
    found = pytensor.function(columns, graph, mode=PLAIN_MODE)(none, none, [0.5, -np.inf])
    np.testing.assert_array_equal(found, [0.5, -np.inf])
