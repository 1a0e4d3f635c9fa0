"""Operations on each array of a batch by one call, against NumPy's own indexing."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph import vectorize_graph

from pymc_coresets.compat import pytensor_api
from pymc_coresets.loops import fused_loops
from pymc_coresets.loops.fused_loops import loop_mode

pytestmark = pytest.mark.compiled

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def nothing_is_compiled_by_pytensor(fails):
    fails(fused_loops, "compiled_loop")


def batched(graph, *inputs):
    """Return a function of inputs with an axis before their own."""
    new = {v: v.type.clone(shape=(None, *v.type.shape))() for v in inputs}
    graphs = vectorize_graph(graph, new)
    kinds = (pytensor_api.Blockwise, pytensor_api.BlockwiseWithCoreShape)
    function = pytensor.function(list(new.values()), graphs, mode=loop_mode())
    assert any(isinstance(node.op, kinds) for node in function.maker.fgraph.toposort())
    return function


@pytest.fixture(params=[0, 2**22], ids=["compiled", "numpy"])
def many(request, limits):
    limits(many_lookups=request.param)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_entries_are_looked_up_in_each_array(dtype, shape):
    x, k = pt.tensor("x", shape=(None,) * (len(shape) - 1)), pt.vector("k", dtype=dtype)
    values = RNG.normal(size=shape)
    places = RNG.integers(0 if dtype == "uint8" else -4, 4, size=(5, 7)).astype(dtype)
    found = batched(x[k], x, k)(values, places)
    expected = [one[own.astype(int)] for one, own in zip(values, places, strict=True)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("n", [(1, 5), (5, 1)])
def test_one_array_or_one_set_of_places_is_that_of_all(n):
    x, k = pt.vector("x"), pt.lvector("k")
    axes = [1 if length == 1 else None for length in n]
    arrays = pt.tensor("arrays", shape=(axes[0], None))
    places = pt.tensor("places", shape=(axes[1], None), dtype="int64")
    graph = vectorize_graph(x[k], {x: arrays, k: places})
    values, own = RNG.normal(size=(n[0], 4)), RNG.integers(-4, 4, size=(n[1], 7))
    found = pytensor.function([arrays, places], graph, mode=loop_mode())(values, own)
    expected = np.take_along_axis(
        np.broadcast_to(values, (5, 4)), np.broadcast_to(own % 4, (5, 7)), 1
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("many")
def test_entries_of_two_axes_are_looked_up_at_places_that_are_broadcast():
    x, i, j = pt.matrix("x"), pt.lvector("i"), pt.lmatrix("j")
    values, rows = RNG.normal(size=(5, 3, 4)), RNG.integers(-3, 3, size=(5, 7))
    columns = RNG.integers(-4, 4, size=(5, 2, 7))
    found = batched(x[i, j], x, i, j)(values, rows, columns)
    expected = [one[own, other] for one, own, other in zip(values, rows, columns, strict=True)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("place", [-5, 4])
def test_places_that_do_not_exist_are_refused(place):
    x, k = pt.vector("x"), pt.lvector("k")
    with pytest.raises(IndexError):
        batched(x[k], x, k)(np.ones((2, 4)), np.array([[0, 1], [2, place]]))


def test_a_batch_of_one_is_not_that_of_the_others():
    """NumPy would repeat it."""
    x, k = pt.vector("x"), pt.lvector("k")
    with pytest.raises(ValueError, match="lengths"):
        batched(x[k], x, k)(np.ones((1, 4)), np.zeros((3, 2), dtype=int))


def test_arrays_are_cut_into_parts_of_known_lengths():
    x, values = pt.matrix("x"), RNG.normal(size=(5, 6))
    cut = pytensor_api.Split(3, axis=0)
    each = pytensor_api.Blockwise(cut, signature="(m),(k)->(a),(b),(c)")(x, [[1, 2, 3]])
    parts = pytensor.function([x], each, mode=loop_mode())(values)
    for part, expected in zip(parts, np.split(values, [1, 3], axis=1), strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("n_arrays", [5, 1])
def test_lengths_may_be_repeated_for_a_batch(n_arrays):
    x, n = pt.matrix("x", shape=(None if n_arrays > 1 else 1, 3)), pt.lscalar("n")
    cut = pytensor_api.Blockwise(pytensor_api.Split(2, axis=0), signature="(m),(k)->(a),(b)")
    each = cut(x, pt.alloc(np.array([[1, 2]]), n, 2))
    values = RNG.normal(size=(n_arrays, 3))
    first, others = pytensor.function([x, n], each, mode=loop_mode())(values, 5)
    np.testing.assert_array_equal(first, np.tile(values[:, :1], (5 // n_arrays, 1)))
    np.testing.assert_array_equal(others, np.tile(values[:, 1:], (5 // n_arrays, 1)))


def test_arrays_of_a_batch_are_joined_along_an_axis_of_their_own():
    join = pytensor_api.Join(0)
    each = pytensor_api.Blockwise(join, signature="(m,k),(n,k)->(o,k)")
    x, y = pt.tensor3("x"), pt.tensor("y", shape=(1, None, None))
    a, b = RNG.normal(size=(5, 1, 3)), RNG.normal(size=(1, 2, 3))
    found = pytensor.function([x, y], each(x, y), mode=loop_mode())(a, b)
    np.testing.assert_array_equal(found, [np.concatenate([one, b[0]]) for one in a])


def test_a_batch_may_be_empty():
    x, k = pt.vector("x"), pt.lvector("k")
    found = batched(x[k], x, k)(np.ones((0, 4)), np.zeros((0, 3), dtype=int))
    assert found.shape == (0, 3)
