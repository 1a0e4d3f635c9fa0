"""The fewest numbers through which the free variables enter the log-likelihood of a row."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from pymc_coresets.compat.pytensor_api import Variable, ancestors, io_toposort
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.affine_rules import affine_map
from pymc_coresets.glm.predictor.node import is_one_per_row
from pymc_coresets.glm.predictor.row_graph import RowGraph

__all__ = ["Cut", "smallest_cut"]

MOST_NUMBERS = 4  # of a row
_ANY = 10**6
_PREDICTOR, _WITH_RESPONSE, _SHARED = 1_000, 1_001, 1_002  # what each number costs


@dataclass(frozen=True, eq=False)
class Cut:
    """Variables that lie, together, on every path from the free variables to the log-likelihood.

    Attributes
    ----------
    predictors : tuple of Variable
        With one number for each row, affine in what rows share.
    shared : tuple of Variable
        Free variables of few entries, such as a scale, that rows see besides.
    """

    predictors: tuple[Variable, ...]
    shared: tuple[Variable, ...]


def smallest_cut(loglik: Variable, graph: RowGraph, observed: Collection[Variable]) -> Cut:
    """Find the fewest affine predictors and shared numbers that separate the free variables.

    By a maximum flow, whose smallest cut lies as near to the free variables as possible.
    Predictors without observed values come before those with them, and these before what is shared.

    Parameters
    ----------
    loglik : Variable
        The pointwise log-likelihood.
    graph : RowGraph
        Of a few rows: predictors are tried on all of them.
    observed : collection of Variable
        Placeholders of arrays that are computed from the observed values.

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
    costs = _costs(order, graph, observed)
    number = {v: i for i, v in enumerate(order)}
    # Each variable is an edge from 2 i to 2 i + 1, whose capacity is its cost.
    source, sink = 2 * len(order), 2 * number[loglik] + 1
    edges = {(2 * i, 2 * i + 1): costs[v] for v, i in number.items()}
    edges |= {(source, 2 * number[p]): _ANY for p in graph.parameters}
    for v in order[len(graph.parameters) :]:
        below = [i for i in v.owner.inputs if i in number]
        edges |= {(2 * number[i] + 1, 2 * number[v]): _ANY for i in below}
    flow = _matrix(edges, source + 1)
    through = maximum_flow(flow, source, sink)
    if through.flow_value > MOST_NUMBERS * _SHARED:
        raise UnsupportedModelError(
            f"Each row sees more than {MOST_NUMBERS} numbers of the free variables, or some that "
            "are not affine in them."
        )
    left = sparse.csr_array(flow - through.flow)
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, source, return_predecessors=False).tolist())
    cut = [v for v, i in number.items() if 2 * i in reached and 2 * i + 1 not in reached]
    predictors = tuple(v for v in cut if graph.by_row(v))
    return Cut(predictors, tuple(v for v in cut if not graph.by_row(v)))


def _above(loglik: Variable, graph: RowGraph) -> Iterator[Variable]:
    for node in io_toposort(graph.parameters, [loglik]):
        yield from (v for v in node.outputs if graph.depends(v))


def _matrix(edges: Mapping[tuple[int, int], int], size: int) -> sparse.csr_array:
    pairs = np.array(list(edges))
    values = np.array(list(edges.values()), dtype=np.int32)
    return sparse.csr_array((values, (pairs[:, 0], pairs[:, 1])), shape=(size, size))


def _costs(
    order: Sequence[Variable], graph: RowGraph, observed: Collection[Variable]
) -> dict[Variable, int]:
    costs = dict.fromkeys(order, _ANY)
    affine = {v: not graph.by_row(v) for v in order}
    for v in order:
        if v in graph.parameters:
            if np.dtype(v.type.dtype).kind == "f" and None not in v.type.shape:
                costs[v] = min(_ANY, _SHARED * max(1, prod(v.type.shape)))
        elif not affine[v] and all(affine[i] for i in v.owner.inputs if i in affine):
            affine[v] = _is_affine(v, graph)
            if affine[v] and is_one_per_row(v, graph):
                has_response = any(i in observed for i in ancestors([v]))
                costs[v] = _WITH_RESPONSE if has_response else _PREDICTOR
    return costs


def _is_affine(variable: Variable, graph: RowGraph) -> bool:
    try:
        affine_map(variable, graph)
    except UnsupportedModelError:
        return False
    return True
