"""One call of NumPy computes what PyTensor's own evaluation does, to the last bit."""

import numpy as np
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_array_equal

from pymc_coresets.compat.pytensor_api import Split
from pymc_coresets.loops.direct_calls import direct_call

pytestmark = pytest.mark.compiled

RNG = np.random.default_rng(28)
MATRIX, OTHER, ROW = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 3)), RNG.normal(size=(1, 3))
NUMBERS, PLACES = RNG.normal(size=7), np.array([2, 0, -1, 1, 1, 0, 2])
BYTES = np.arange(21, dtype=np.int8).reshape(7, 3)
CUBE, MANY = RNG.normal(size=(3, 4, 2)), RNG.integers(-3, 3, size=900)

x, y, row, v = pt.dmatrix("x"), pt.dmatrix("y"), pt.drow("row"), pt.dvector("v")
k, cube = pt.lvector("k"), pt.dtensor3("cube")
m = pt.bmatrix("m")
a, b, c = (pt.scalar_from_tensor(pt.dscalar(n)) for n in "abc")

# name: (output, input and its value, ...)
CALLS = {
    "transposed": (x.T, (x, MATRIX)),
    "new axes": (v.dimshuffle("x", 0, "x"), (v, NUMBERS)),
    "moved and new": (cube.dimshuffle(2, "x", 0, 1), (cube, CUBE)),
    "dropped": (row.dimshuffle(1), (row, ROW)),
    "dropped in the middle": (pt.tensor3(shape=(3, 1, 2)).dimshuffle(2, 0), (None, CUBE[:, :1])),
    "reshaped": (x.reshape((3, 7)), (x, MATRIX), (None, np.array([3, 7]))),
    "filled": (pt.alloc(pt.dscalar(), 2, 3), (None, np.array(1.5)), (None, 2), (None, 3)),
    "filled with one": (pt.alloc(pt.tensor(shape=(1, 1)), 2, 3), (None, ROW[:, :1]),
                        (None, 2), (None, 3)),
    "a number": (pt.scalar_from_tensor(pt.dscalar()), (None, np.array(2.5))),
    "sliced": (x[1:5:2, ::-1], (x, MATRIX)),
    "one entry": (x[-1, 2], (x, MATRIX)),
    "set": (pt.set_subtensor(x[1:], y[1:]), (x, MATRIX), (None, OTHER[1:])),
    "increased": (pt.inc_subtensor(x[2], v[:3]), (x, MATRIX), (None, NUMBERS[:3])),
    "looked up": (x[k], (x, MATRIX), (k, PLACES)),
    "looked up in two": (x[k, k], (x, MATRIX), (k, PLACES), (k, PLACES)),
    "looked up along rows": (x[:, k], (x, MATRIX), (k, PLACES)),
    "looked up along the last of three": (cube[:, :, k], (cube, CUBE), (k, PLACES % 2)),
    "added by row": (pt.inc_subtensor(x[k], y), (x, MATRIX), (y, OTHER), (k, PLACES)),
    "added by column": (pt.inc_subtensor(x[k, k], v), (x, MATRIX), (v, NUMBERS), (k, PLACES),
                        (k, PLACES)),
    "added to all": (pt.inc_subtensor(x[k], pt.dscalar()), (x, MATRIX), (None, np.array(0.3)),
                     (k, PLACES)),
    "many added by row": (pt.inc_subtensor(x[k], y), (x, MATRIX), (y, RNG.normal(size=(900, 3))),
                          (k, MANY)),
    "many added in two": (pt.inc_subtensor(cube[k, k], y), (cube, CUBE),
                          (y, RNG.normal(size=(900, 2))), (k, MANY), (k, MANY)),
    "many added in one": (pt.inc_subtensor(x[k, 1], v), (x, MATRIX), (v, RNG.normal(size=900)),
                          (k, MANY), (None, np.array(1))),
    "a product": (pt.dot(x, y.T), (x, MATRIX), (None, OTHER.T)),
    "a sum": (x.sum(axis=0), (x, MATRIX)),
    "a sum of all": (x.sum(), (x, MATRIX)),
    "a maximum": (x.max(axis=1), (x, MATRIX)),
    "repeated like another": (pt.second(x, row), (x, MATRIX), (row, ROW)),
    "a copy": (pt.tensor_copy(x), (x, MATRIX)),
    "in another type": (pt.cast(x, "float32"), (x, MATRIX)),
    "whole numbers": (pt.cast(x, "int64"), (x, 9 * MATRIX)),
    "a difference": (x - y, (x, MATRIX), (y, OTHER)),
    "a difference of a row": (x - row, (x, MATRIX), (row, ROW)),
    "a sum of three": (pt.add(x, row, y), (x, MATRIX), (row, ROW), (y, OTHER)),
    "a product of four": (pt.mul(x, y, x, row), (x, MATRIX), (y, OTHER), (x, OTHER), (row, ROW)),
    "a comparison": (x > y, (x, MATRIX), (y, OTHER)),
    "a function": (pt.exp(x), (x, MATRIX.T)),
    "a sum with bytes": (x + m, (x, MATRIX), (m, BYTES)),
}  # fmt: skip


def performed(node, values):
    storage = [[None]]
    prepare = getattr(node.op, "prepare_node", None)
    if prepare:
        prepare(node, None, None, "py")
    node.op.perform(node, values, storage)
    return storage[0][0]


@pytest.mark.parametrize("name", CALLS)
def test_values_are_those_of_the_operation(name):
    output, *inputs = CALLS[name]
    node = output.owner
    assert direct_call(node.op, node) is not None
    values = [np.asarray(value) for _, value in inputs]
    values += [i.data for i in node.inputs[len(values) :]]
    before = [value.copy() for value in values]
    found, expected = direct_call(node.op, node)(*values), performed(node, values)
    assert_array_equal(found, expected, strict=True)
    for value, old in zip(values, before, strict=True):
        assert_array_equal(value, old)


MISFITS = {
    "a difference": (x - y, MATRIX, OTHER[:1]),
    "a sum of three": (pt.add(x, row, y), MATRIX, ROW, OTHER[:1]),
    "added by row": (pt.inc_subtensor(x[k], y), MATRIX, OTHER[:1], PLACES),
    "dropped": (row.dimshuffle(1), MATRIX),
    "out of bounds": (pt.inc_subtensor(x[k], y), MATRIX, np.ones((900, 3)), np.full(900, 7)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_lengths_that_do_not_fit_are_refused(name):
    output, *values = MISFITS[name]
    node = output.owner
    with pytest.raises((ValueError, IndexError), match=r"fit|cannot add|length"):
        direct_call(node.op, node)(*values)


OTHERS = {
    "an index that is computed": x[pt.lscalar() :],
    "part of a row beside an index": x[1:, k],
    "set at places": pt.set_subtensor(x[k], y),
    "a mask": x[pt.gt(v, 0)],
    "rows in two": pt.alloc(v, 2, 3),
    "a sum of integers": pt.bmatrix().sum(axis=0),
    "a choice": pt.switch(pt.gt(x, 0), x, y),
    "a split at numbers that are computed": Split(2, axis=0)(x, k)[0],
    "integers made real": pt.exp(pt.lmatrix()),
    "a join": pt.join(0, x, y),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_is_left_to_the_operation(name):
    node = OTHERS[name].owner
    assert direct_call(node.op, node) is None


def test_what_is_looked_up_lies_row_by_row():
    node = x[:, k].owner
    found = direct_call(node.op, node)(MATRIX, PLACES % 3)
    assert found.flags.c_contiguous
    assert not MATRIX[:, PLACES % 3].flags.c_contiguous


def test_parts_are_those_of_the_operation():
    node = Split(3, axis=0)(x, [2, 0, 5])[0].owner
    storage = [[None] for _ in range(3)]
    node.op.perform(node, [MATRIX, node.inputs[1].data], storage)
    found = direct_call(node.op, node)(MATRIX, node.inputs[1].data)
    for part, [expected] in zip(found, storage, strict=True):
        assert_array_equal(part, expected, strict=True)
    with pytest.raises(ValueError, match="does not have 7 entries, in a split"):
        direct_call(node.op, node)(MATRIX[:3], node.inputs[1].data)


def test_few_places_are_as_good_as_many(limits):
    node = pt.inc_subtensor(x[k], y).owner
    few = direct_call(node.op, node)(MATRIX, OTHER, PLACES)
    limits(few_places=0)
    assert_array_equal(direct_call(node.op, node)(MATRIX, OTHER, PLACES), few)
