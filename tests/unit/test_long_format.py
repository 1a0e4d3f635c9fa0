"""Graphs in long format have the cells of the graphs that they were written from."""

import numpy as np
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.long_format import LongFormat
from pymc_coresets.reading.other_forms import Cells, without_length_one

A, B, C = 4, 5, 3
_rng = np.random.default_rng(5)


def data(*shape):
    """Return a constant with random entries."""
    return pt.constant(_rng.normal(size=shape))


a, b, ab = pt.vector("a", shape=(A,)), pt.vector("b", shape=(B,)), pt.matrix("ab", shape=(A, B))
ac, cb = pt.matrix("ac", shape=(A, C)), pt.matrix("cb", shape=(C, B))
abc = pt.tensor3("abc", shape=(A, B, C))
c, s = pt.vector("c", shape=(C,)), pt.scalar("s")
PARAMETERS = [a, b, c, s, ab, ac, cb, abc]
VALUES = [_rng.normal(size=v.type.shape) for v in PARAMETERS]
GROUP, COLUMN = np.array([0, 2, 2, 1]), np.array([0, 0, 1, 1, 2])
ENTRY = _rng.integers(C, size=(A, B))

#: A name, a graph with the axes of the cells in front, and whether all cells must be computed.
GRAPHS = {
    "outer": (lambda: a[:, None] * b, False),
    "one axis": (lambda: pt.exp(a)[:, None] + data(A, B), False),
    "neither axis": (lambda: pt.full((A, B), s), False),
    "matrix": (lambda: pt.exp(ab) + ab[:, :1], False),
    "transposed": (lambda: (data(B, A) * b[:, None]).T, False),
    "product with a vector": (lambda: data(A, B, C) @ c, False),
    "product with a matrix": (lambda: data(A, B, C) @ cb, False),
    "product of matrices": (lambda: ac @ cb, False),
    "product with a table": (lambda: ac @ data(C, B), False),
    "product from the left": (lambda: data(A, A) @ ab, False),
    "sum over another axis": (lambda: (data(A, B, C) * ac[:, None]).sum(axis=-1), False),
    "centred": (lambda: ab - ab.mean(axis=0), False),
    "softmax over another axis": (lambda: pt.special.softmax(abc, axis=-1)[..., 1], False),
    "logsumexp over another axis": (lambda: pt.logsumexp(abc, axis=-1), False),
    "cumulative along an axis": (lambda: pt.cumsum(ab, axis=1), True),
    "cumulative table": (lambda: pt.cumsum(b) + a[:, None], False),
    "concatenated behind": (lambda: pt.concatenate([abc, data(A, B, 1)], axis=-1), False),
    "stacked": (lambda: pt.stack([ab, a[:, None] + b], axis=-1), False),
    "looked up": (lambda: c[GROUP][:, None] + c[COLUMN], False),
    "looked up in two": (lambda: ac[:, COLUMN], False),
    "looked up by two": (lambda: cb[GROUP[:, None], COLUMN], False),
    "looked up by cell": (lambda: c[ENTRY], False),
    "one entry for each cell": (
        lambda: abc[np.arange(A)[:, None], np.arange(B), ENTRY],
        False,
    ),
    "one entry for each cell, of a table": (lambda: ac[np.arange(A)[:, None], ENTRY], False),
    "looked up in the middle": (
        lambda: (
            data(2, A, B, C)[:, np.arange(A)[:, None], np.arange(B)[::-1]].sum(axis=(0, -1)) * ab
        ),
        False,
    ),
    "looked up in the middle by cell": (
        lambda: pt.stack([abc, 2 * abc])[:, np.arange(A)[:, None], np.arange(B), ENTRY].sum(axis=0),
        False,
    ),
    "looked up on both sides by cell": (
        lambda: pt.stack([abc, 2 * abc], axis=1)[np.arange(A)[:, None], :, np.arange(B)][..., 0],
        True,
    ),
    "looked up on both sides of the last but one": (
        lambda: (
            pt.stack([abc, 2 * abc])
            .dimshuffle(0, 1, 3, 2)[:, np.arange(A)[:, None], :, np.arange(B)]
            .sum(axis=(-2, -1))
        ),
        True,
    ),
    "allocated": (lambda: pt.alloc(a[:, None], A, B), False),
    "reshaped behind": (lambda: abc.reshape((A, B, C, 1)) * c[:, None], False),
    "data alone": (lambda: data(A, B), False),
    "masked and filled again": (
        lambda: pt.set_subtensor(pt.zeros((A, B, C))[..., 0], ab),
        False,
    ),
    "shape specified": (lambda: pt.specify_shape(ab, (A, B)), False),
    "events behind": (lambda: abc * c, False),
}


@pytest.mark.parametrize(("build", "whole"), GRAPHS.values(), ids=GRAPHS.keys())
def test_cells_of_a_graph(build, whole):
    graph = build()
    long_format = LongFormat(PARAMETERS)
    cells = Cells.all_of((A, B))
    [long] = without_length_one([long_format.of(graph, (0, 1), cells)])
    found, expected = numpy_function(PARAMETERS, [long, graph])(*VALUES)
    assert_allclose(found, expected.reshape(-1, *expected.shape[2:]), rtol=1e-12)
    assert bool(long_format.unselected) == whole


@pytest.mark.parametrize("name", ["outer", "product of matrices", "one entry for each cell"])
def test_some_cells_in_another_order(name):
    graph = GRAPHS[name][0]()
    positions = np.array([19, 3, 3, 7])
    cells = Cells.at(positions, (B, A))
    long = LongFormat(PARAMETERS).of(graph, (1, 0), cells)
    found, expected = numpy_function(PARAMETERS, [long, graph])(*VALUES)
    assert_allclose(found, expected.T.ravel()[positions], rtol=1e-12)


def test_which_parameters_are_local():
    long_format = LongFormat(PARAMETERS)
    long_format.of(a[:, None] * b + ab + abc[..., 0] + ac @ cb, (0, 1), Cells.all_of((A, B)))
    assert long_format.local == {ab, abc}


@pytest.mark.parametrize("positions", [None, [5, 0, 0, 3]], ids=["all", "some, in another order"])
def test_what_is_left_of_a_matrix_by_a_mask(positions):
    mask = np.arange(A * B).reshape(A, B) % 3 > 0
    graph = (a[:, None] * b)[mask]
    order = np.arange(mask.sum()) if positions is None else np.array(positions)
    long_format = LongFormat(PARAMETERS)
    long = long_format.of(graph, (0,), Cells.at(order, (int(mask.sum()),)))
    found, expected = numpy_function(PARAMETERS, [long, graph])(*VALUES)
    assert_allclose(found, expected[order])
    assert not long_format.unselected
    assert not long_format.local
