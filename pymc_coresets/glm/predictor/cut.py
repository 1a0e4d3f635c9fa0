"""The fewest numbers through which the free variables enter the log-likelihood of a row."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph import Variable, ancestors
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.affine import affine_map
from pymc_coresets.glm.predictor.row_graph import MOVES, RowGraph, is_single, n_predictors

_ANY = 10**6  # costs as much as no cut at all
_ABOUT = 1_000
_LINK_SCALES = np.array([1.0, np.sqrt(2.0), 1 / np.sqrt(2.0)])


class Costs(NamedTuple):
    """What each number of a row costs, about a thousand, and what is allowed.

    Attributes
    ----------
    predictor : int
        A predictor that is not computed from observed values.
    with_response : int
        Another one.
    free : int
        A number of a free variable that all rows see.
    common : int
        A single number that is computed from free variables, and that all rows see.
    several : int
        Each number of predictors that are one matrix, such as those of alternatives.
    repeated : int
        What a predictor costs more that is another one but for its shape or its sign.
    only_affine : bool
        Whether predictors must be affine in what rows share.
    most : int
        Most numbers of a row.
    """

    predictor: int = 1_000
    with_response: int = 1_001
    free: int = 1_002
    common: int = _ANY
    several: int = _ANY
    repeated: int = 0
    only_affine: bool = True
    most: int = 4


FEWEST = Costs()


@dataclass(frozen=True, eq=False)
class Cut:
    """Variables that lie, together, on every path from the free variables to the log-likelihood.

    Attributes
    ----------
    predictors : tuple of Variable
        With one number for each row, or several in a matrix, affine in what rows share.
    shared : tuple of Variable
        Free variables of few entries, such as a scale, that rows see besides.
    highest : tuple of Variable
        Predictors and shared variables of the cut of the same cost that lies nearest to the
        log-likelihood: there, what is added to a predictor or scales it is part of it.
    """

    predictors: tuple[Variable, ...]
    shared: tuple[Variable, ...]
    highest: tuple[Variable, ...]


def smallest_cut(
    loglik: Variable,
    graph: RowGraph,
    observed: Collection[Variable],
    costs: Costs = FEWEST,
) -> Cut:
    """Find the fewest affine predictors and shared numbers that separate the free variables.

    By a maximum flow: what can be reached from the free variables through edges that are not full
    ends at the smallest cut next to them, and what reaches the log-likelihood at the one next to
    that.  Predictors without observed values come before those with them, and these before what is
    shared.

    Parameters
    ----------
    loglik : Variable
        The pointwise log-likelihood.
    graph : RowGraph
        Of a few rows: predictors are tried on all of them.
    observed : collection of Variable
        Placeholders of arrays that are computed from the observed values.
    costs : Costs, optional

    Raises
    ------
    UnsupportedModelError
        If each row sees more than four numbers, or some that are not affine.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> y, x = pt.tensor("y", shape=(None,)), pt.tensor("x", shape=(None,))
    >>> b, sigma = pt.scalar("b"), pt.scalar("sigma")
    >>> graph = RowGraph([b, sigma], {y: np.zeros(2), x: np.ones(2)})
    >>> found = smallest_cut(((y - b * x) / sigma) ** 2 - pt.log(sigma), graph, [y])
    >>> [str(v.owner.op) for v in found.predictors], found.shared
    (['Mul'], (sigma,))
    """
    order = [*graph.parameters, *_above(loglik, graph)]
    capacity = _capacities(order, graph, observed, costs)
    number = {v: i for i, v in enumerate(order)}
    # Each variable is an edge from 2 i to 2 i + 1, whose capacity is its cost.
    source, sink = 2 * len(order), 2 * number[loglik] + 1
    edges = {(2 * i, 2 * i + 1): capacity[v] for v, i in number.items()}
    edges |= {(source, 2 * number[p]): _ANY for p in graph.parameters}
    for v in order[len(graph.parameters) :]:
        below = [i for i in v.owner.inputs if i in number]
        edges |= {(2 * number[i] + 1, 2 * number[v]): _ANY for i in below}
    flow = _matrix(edges, source + 1)
    through = maximum_flow(flow, source, sink)
    if through.flow_value >= min(_ABOUT * (costs.most + 1), _ANY):
        raise UnsupportedModelError(
            f"Each row sees more than {costs.most} numbers of the free variables, or some that "
            "are not affine in them."
        )
    left = sparse.csr_array(flow - through.flow)
    left.eliminate_zeros()
    ahead = _reached(left, source)
    cut = [v for v, i in number.items() if 2 * i in ahead and 2 * i + 1 not in ahead]
    behind = _reached(sparse.csr_array(left.T), sink)
    return Cut(
        predictors=tuple(v for v in cut if graph.by_row(v)),
        shared=tuple(v for v in cut if not graph.by_row(v)),
        highest=tuple(v for v, i in number.items() if 2 * i + 1 in behind and 2 * i not in behind),
    )


def _reached(edges: sparse.csr_array, start: int) -> set[int]:
    return set(breadth_first_order(edges, start, return_predecessors=False).tolist())


def contains(variable: Variable, data: Collection[Variable]) -> bool:
    """Whether a variable is computed from any of the data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, y = pt.vectors("xy")
    >>> contains(2 * x, [x]), contains(2 * x, [y])
    (True, False)
    """
    return any(v in data for v in ancestors([variable]))


def _above(loglik: Variable, graph: RowGraph) -> Iterator[Variable]:
    for node in io_toposort(graph.parameters, [loglik]):
        yield from (v for v in node.outputs if graph.depends(v))


def _matrix(edges: Mapping[tuple[int, int], int], size: int) -> sparse.csr_array:
    pairs = np.array(list(edges), dtype=np.int32)  # SciPy 1.13 takes no others
    values = np.array(list(edges.values()), dtype=np.int32)
    return sparse.csr_array((values, (pairs[:, 0], pairs[:, 1])), shape=(size, size))


def _capacities(
    order: Sequence[Variable], graph: RowGraph, observed: Collection[Variable], costs: Costs
) -> dict[Variable, int]:
    found = dict.fromkeys(order, _ANY)
    affine = {v: not graph.by_row(v) for v in order}
    for v in order:
        if v in graph.parameters:
            if np.dtype(v.type.dtype).kind == "f" and None not in v.type.shape:
                found[v] = min(_ANY, costs.free * max(1, prod(v.type.shape)))
        elif affine[v]:
            found[v] = costs.common if is_single(v) else _ANY
        elif all(affine[i] for i in v.owner.inputs if i in affine):
            affine[v] = not costs.only_affine or _is_affine(v, graph)
            if affine[v]:
                found[v] = _of_predictors(v, observed, costs)
                if costs.repeated and found[v] < _ANY and _repeats(v, graph, found):
                    found[v] += costs.repeated
    return found


def _of_predictors(v: Variable, observed: Collection[Variable], costs: Costs) -> int:
    numbers = [n for n in v.type.shape if n != 1]
    if len(numbers) == 1:
        return costs.with_response if contains(v, observed) else costs.predictor
    if len(numbers) != 2 or numbers.count(None) != 1:
        return _ANY
    return min(_ANY, costs.several * n_predictors(v))


def _repeats(v: Variable, graph: RowGraph, costs: Mapping[Variable, int]) -> bool:
    """Whether a predictor is another one, of finite cost, but for its shape, type or sign."""
    inner = [i for i in v.owner.inputs if graph.depends(i)]
    others = [i for i in v.owner.inputs if i not in inner]
    if len(inner) != 1 or costs[inner[0]] >= _ANY:
        return False
    match v.owner.op:
        case op if isinstance(op, MOVES):
            return True
        case ops.Elemwise(scalar_op=ps.Neg() | ps.Identity() | ps.Cast() | ps.Second()):
            return True
        case ops.Elemwise(scalar_op=ps.Mul() | ps.TrueDiv()):
            of_all = not any(graph.by_row(i) for i in others)
            return of_all and all(_is_of_links(graph.values(i)) for i in others)
        case ops.Elemwise(scalar_op=ps.Sub()):  # from a number
            return v.owner.inputs[1] in inner and not any(graph.by_row(i) for i in others)
    return False


def _is_of_links(factor: np.ndarray) -> bool:
    """Whether a factor is a sign, or the root of two of the error function."""
    return bool(np.isclose(np.abs(factor).ravel(), _LINK_SCALES[:, None]).any(axis=0).all())


def _is_affine(variable: Variable, graph: RowGraph) -> bool:
    try:
        affine_map(variable, graph)
    except UnsupportedModelError:
        return False
    return True
