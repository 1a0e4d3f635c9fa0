"""Minimum cut: the fewest numbers through which free variables enter a row's density."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable, ancestors, clone_replace, graph_inputs
from pytensor.tensor import TensorVariable
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.affine import affine_map
from pymc_coresets.glm.predictor.row_graph import (
    RowGraph,
    is_single,
    n_predictors,
)
from pymc_coresets.reading.observations import Observations

_ANY = 10**6  #: Cost of a variable that must not be part of a cut.


class Costs(NamedTuple):
    """Costs of the numbers of a row, about a thousand each, and limits of a cut.

    Attributes
    ----------
    predictor : int
        A predictor that is not computed from observed values.
    with_response : int
        A predictor that is computed from observed values.
    free : int
        A number of a free variable that enters all rows.
    common : int
        A single number that is computed from free variables and enters all rows.
    several : int
        Each number of predictors that are one matrix, such as those of alternatives.
    repeated : int
        Extra cost of a predictor that differs from another one only in shape or sign.
    only_affine : bool
        Whether predictors must be affine in the coefficient nodes.
    most : int
        Largest number of numbers per row.
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
        With one number per row, or several in a matrix, affine in the coefficient nodes.
    shared : tuple of Variable
        Other free variables of few entries, such as a scale, that enter all rows.
    highest : tuple of Variable
        Predictors and shared variables of the cut of the same cost that is nearest to the
        log-likelihood: these predictors include terms added to them and factors.
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

    By maximum flow: the nodes reachable from the free variables through unsaturated edges are
    bounded by the minimum cut nearest to these, and the nodes that reach the log-likelihood by the
    one nearest to it.  Predictors without observed values come before those with them, and these
    before shared variables.

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
        If each row depends on more than four numbers, or on some that are not affine.

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
    order = [*graph.parameters]
    for node in io_toposort(graph.parameters, [loglik]):
        order += [v for v in node.outputs if graph.depends(v)]
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
    if through.flow_value >= min(1_000 * (costs.most + 1), _ANY):
        raise UnsupportedModelError(
            f"Each row depends on more than {costs.most} functions of the free variables, or on "
            "some that are not affine in them.",
            topic="regressions",
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
                found[v] = min(_ANY, costs.free * max(1, math.prod(v.type.shape)))
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
    """Whether a predictor equals another one of finite cost up to shape, type or sign."""
    inner = [i for i in v.owner.inputs if graph.depends(i)]
    others = [i for i in v.owner.inputs if i not in inner]
    if len(inner) != 1 or costs[inner[0]] >= _ANY:
        return False
    match v.owner.op:
        case op if isinstance(op, ops.MOVES):
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
    """Whether a factor is a sign, or the square root of two (from the error function)."""
    scales = np.array([1.0, np.sqrt(2.0), np.sqrt(0.5)])
    return bool(np.isclose(np.abs(factor).ravel(), scales[:, None]).any(axis=0).all())


def _is_affine(variable: Variable, graph: RowGraph) -> bool:
    try:
        affine_map(variable, graph)
    except UnsupportedModelError:
        return False
    return True


# -- scales of the cut variables -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Coordinate:
    """A free variable on its unconstrained scale, or on its own.

    Attributes
    ----------
    variable : Variable
        The input that represents it.
    forward : TensorVariable
        Its value on that scale: a graph of `variable`.
    value : TensorVariable
        An input on that scale.
    backward : Variable
        The variable again: a graph of `value`.
    name : str
        Of the scale, such as ``sigma_log__``.
    """

    variable: Variable
    forward: TensorVariable
    value: TensorVariable
    backward: Variable
    name: str

    @classmethod
    def of(
        cls, variable: Variable, observations: Observations, *, apart: bool = False
    ) -> "Coordinate":
        """Return a coordinate, on its own scale if the unconstrained one needs another variable.

        Also if it has no number per entry, and entries are wanted `apart`; but not if there are
        fewer numbers, as for shares, none of which can change alone.
        """
        together = not [*cls.unconstrained(variable, observations, apart=apart)]
        for found in cls.unconstrained(variable, observations, apart=False):
            if not (together and found.value.type.shape == variable.type.shape):
                return found
        [name] = [n for n, v in observations.parameters.items() if v is variable]
        return cls.on_its_own(variable, name)

    @classmethod
    def on_its_own(cls, variable: Variable, name: str = "") -> "Coordinate":
        """Return a variable on its own scale."""
        value = pt.tensor(dtype=variable.type.dtype, shape=variable.type.shape)
        return cls(variable, ops.checked_tensor(variable), value, value, name)

    @classmethod
    def unconstrained(
        cls, variable: Variable, observations: Observations, *, apart: bool
    ) -> "Iterator[Coordinate]":
        """Yield the unconstrained scale of a free variable, if it has one of its own."""
        model: pm.Model = observations.model
        for rv in [model[name] for name, v in observations.parameters.items() if v is variable]:
            transform = model.rvs_to_transforms[rv]
            if transform is None or (apart and transform.ndim_supp):
                return
            inputs, stands = rv.owner.inputs, model.rvs_to_values[rv]
            forward = ops.checked_tensor(transform.forward(variable, *inputs))
            value = pt.tensor(dtype=forward.type.dtype, shape=stands.type.shape)
            backward = transform.backward(value, *inputs)
            others = {v for v in graph_inputs([forward, backward]) if not isinstance(v, Constant)}
            if others <= {variable, value} and None not in value.type.shape:
                yield cls(variable, forward, value, backward, str(stands.name))

    @property
    def size(self) -> int:
        """Number of its entries."""
        return math.prod(cast(tuple[int, ...], self.value.type.shape))

    @property
    def names(self) -> tuple[str, ...]:
        """A label for each entry."""
        if not self.value.type.ndim:
            return (self.name,)
        return tuple(f"{self.name}[{k}]" for k in range(self.size))

    @property
    def has_single_bounds(self) -> bool:
        """Whether all entries have the same scale: no limit is an array."""
        inputs = graph_inputs([self.forward, self.backward])
        return all(is_single(v) for v in inputs if isinstance(v, Constant))


#: A coefficient node, such as ``log_sd`` or a positive variable's logarithm, and the elementwise
#: function of it, for values of any shape, that gives a predictor.
type Link = tuple[Variable, Callable[[TensorVariable], TensorVariable]]


def links_below(node: Variable, graph: RowGraph, observations: Observations) -> Iterator[Link]:
    """Find the link of a predictor that consists of entries of one coefficient node.

    Quadratics are good approximations on the unconstrained scale: posteriors are closer to normal
    there, and no nearby value is impossible, such as degrees of freedom below zero.

    Parameters
    ----------
    node : Variable
        A predictor.
    graph : RowGraph
    observations : Observations

    Yields
    ------
    Link
        Unless it is on that scale already, or is more than entries of one node.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.glm.predictor.finding import find_predictors
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     sd = pm.math.exp(pm.Normal("log_sd", shape=2))
    ...     y = pm.Normal("y", 0.0, sd[np.array([0, 1, 1])], observed=np.zeros(3))
    >>> find_predictors(find_observations(model)).names
    ('log_sd[0]', 'log_sd[1]')
    """
    while not graph.is_coefficient(node):
        if not isinstance(ops.op_of(node), ops.MOVES):
            return
        node = node.owner.inputs[0]
        if not graph.depends(node):
            return
    *_, below = node, *_arguments(node, graph)
    scales = [
        own
        for own in Coordinate.unconstrained(below, observations, apart=True)
        if own.has_single_bounds
    ]
    if not scales and below is node:
        return
    [own, *_] = *scales, Coordinate.on_its_own(below)

    def of(eta: TensorVariable) -> TensorVariable:
        swaps: dict[Variable, Variable] = {own.value: eta}
        [inside] = clone_replace([own.backward], swaps, rebuild_strict=False)
        [outside] = clone_replace([node], {below: inside}, rebuild_strict=False)
        return ops.checked_tensor(outside)

    yield own.forward, of


def _arguments(node: Variable, graph: RowGraph) -> Iterator[Variable]:
    """Yield the only argument of an elementwise node, of its shape; then that of the argument."""
    if isinstance(ops.op_of(node), ops.Elemwise):
        inner: list[Variable] = [i for i in node.owner.inputs if graph.depends(i)]
        single = all(i in inner or is_single(i) for i in node.owner.inputs)
        if len(inner) == 1 and single and graph.shape(inner[0]) == graph.shape(node):
            yield inner[0]
            yield from _arguments(inner[0], graph)
