"""Parts of graphs that are known without the parameters, and their reconstruction.

PyMC guards a log-density with one check over all observations: a single bad row sends the whole
vector to minus infinity.  For a few rows the check has to be about these rows alone:
``f_n = -inf`` exactly where a condition fails for row n.  The sum over all rows is unchanged.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Variable, ancestors, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.reading.folding import values_of


class KnownValues:
    """Known values and shapes in graphs whose only free inputs are some parameters.

    Parameters
    ----------
    parameters : iterable of Variable
        The free inputs of the graphs.  All their other inputs are data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> b, x = pt.scalar("b"), pt.constant([1.0, 2.0])
    >>> known = KnownValues([b])
    >>> known.depends(b * x), known.depends(2 * x), known.value(2 * x)
    (True, False, array([2., 4.]))
    """

    def __init__(self, parameters: Iterable[Variable]) -> None:
        self.parameters = frozenset(parameters)
        self._dependent: dict[Variable, bool] = {}
        self._values: dict[Variable, np.ndarray] = {}

    def depends(self, variable: Variable) -> bool:
        """Whether `variable` is computed from any parameter."""
        if variable not in self._dependent:
            self._dependent[variable] = variable in self.parameters
            for node in ops.io_toposort([], [variable]):
                known = any(
                    self._dependent.setdefault(i, i in self.parameters) for i in node.inputs
                )
                self._dependent |= dict.fromkeys(node.outputs, known)
        return self._dependent[variable]

    def value(self, variable: Variable) -> np.ndarray:
        """Evaluate a variable that depends on no parameter, once."""
        if variable not in self._values:
            try:
                [self._values[variable]] = values_of([variable])
            except AssertionError as error:  # of a shape, by which PyTensor says it
                raise InvalidDataError(
                    f"The lengths of the data do not fit together: {error} Give all of them the "
                    "same number of observations, and let no shape be a number of rows."
                ) from error
        return self._values[variable]

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Return the shape of a variable, if the values of parameters do not determine it."""
        shape = tuple(getattr(variable.type, "shape", ()))
        if None not in shape:
            return shape
        zeros: dict[Variable, Variable] = {
            v: pt.zeros(v.type.shape, dtype=v.type.dtype)
            for v in self.parameters
            if None not in v.type.shape
        }
        [found] = values_of(clone_replace([pt.shape(variable)], zeros, rebuild_strict=False))
        return tuple(int(n) for n in found)

    def broadcasts(self, variable: Variable, axis: int) -> bool:
        """Whether a variable has length 1 along an axis, even if its type does not show it."""
        length = variable.type.shape[axis]
        if length is not None or self.depends(variable):
            return bool(length == 1)
        return bool(self.value(variable).shape[axis] == 1)


def reached[K: Hashable](starts: Iterable[K], below: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """List all places that are below some places, and these themselves, each once.

    Examples
    --------
    >>> list(reached([6], lambda n: [n // 2, n - 1] if n > 3 else []))
    [6, 5, 4, 3, 2]
    """
    stack, seen = list(starts), set[K]()
    while stack:
        place = stack.pop()
        if place not in seen:
            seen.add(place)
            yield place
            stack.extend(below(place))


class Step[K](NamedTuple):
    """How a part of a graph is made that a key stands for: first its `needs`, then `build`."""

    needs: tuple[K, ...]
    build: Callable[[list[TensorVariable]], TensorVariable]


class Plan[K: Hashable]:
    """Parts of a graph, each of which is made after all that it needs, however deep that goes.

    Parameters
    ----------
    plan : callable
        Returns the step of a key; called once for each.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> def plan(n):
    ...     needs = (n - 1,) if n else ()
    ...     return Step(needs, lambda parts: parts[0] + 1 if parts else pt.constant(5.0))
    >>> numbers = Plan(plan)
    >>> float(numbers.part(3).eval()), list(numbers.below(2))
    (8.0, [2, 1, 0])
    """

    def __init__(self, plan: Callable[[K], Step[K]]) -> None:
        self._plan = plan
        self._steps: dict[K, Step[K]] = {}
        self._parts: dict[K, TensorVariable] = {}

    def part(self, wanted: K) -> TensorVariable:
        """Return the part of a key."""
        stack = [wanted]
        while stack:
            step = self._step(stack[-1])
            missing = [need for need in step.needs if need not in self._parts]
            if missing:
                stack.extend(missing)
            elif (key := stack.pop()) not in self._parts:
                self._parts[key] = step.build([self._parts[need] for need in step.needs])
        return self._parts[wanted]

    def below(self, wanted: K) -> Iterator[K]:
        """List the keys of all that a part is made of, its own first; nothing is made."""
        return reached([wanted], lambda key: self._step(key).needs)

    def _step(self, key: K) -> Step[K]:
        if key not in self._steps:
            self._steps[key] = self._plan(key)
        return self._steps[key]


#: For some comparisons: functions whose values, and those of a softmax, always pass them with the
#: constants that are named.  A positive function that underflows to zero is no reason to reject a
#: draw.
_BOUNDS: dict[type, tuple[tuple[type, ...], Callable[[np.ndarray], np.ndarray]]] = {
    ps.GE: ((ps.Sigmoid, ps.Exp, ps.Softplus, ps.Sqr, ps.Abs), lambda bound: bound <= 0),
    ps.GT: ((ps.Exp, ps.Softplus), lambda bound: bound <= 0),
    ps.LE: ((ps.Sigmoid,), lambda bound: bound >= 1),
}


def conditions(node: Apply, known: KnownValues) -> list[Variable]:
    """List the elementwise conditions of a check that may fail.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc.logprob.utils import CheckParameterValue
    >>> mu, sigma = pt.vector("mu"), pt.vector("sigma")
    >>> checked = CheckParameterValue()(mu, pt.all(sigma > 0), pt.all(pt.exp(mu) >= 0))
    >>> [str(condition) for condition in conditions(checked.owner, KnownValues([mu, sigma]))]
    ['Gt.0']
    """
    parts = reached(node.inputs[1:], _conjuncts)
    found = [_with_known_sums(c) for c in parts if not _conjuncts(c) and not _always_true(c)]
    return [c for c in found if known.depends(c) or not np.all(known.value(c))]


def conditions_by_row[K](
    node: Apply,
    known: KnownValues,
    guarded: K,
    parts: Callable[[Variable], Iterable[K]],
    below: Callable[[K], Set[Variable]],
) -> tuple[list[K], list[Variable]]:
    """Tell conditions of single rows from those that concern all rows.

    A condition that is as long as the rows may concern a parameter that all of them share, such as
    the probabilities of as many categories: then a selection reaches it that reaches the guarded
    log-density nowhere.

    Parameters
    ----------
    node : Apply
        Of the check.
    known : KnownValues
    guarded : hashable
        The rows of the log-density.
    parts : callable
        Returns what stands for rows of a condition, if it has any.
    below : callable
        Returns where a selection of rows ends.
    """
    own, of_rows, whole = below(guarded), list[K](), list[Variable]()
    for condition in conditions(node, known):
        found = [part for part in parts(condition) if not below(part) - own]
        of_rows += found
        whole += [] if found else [condition]
    return of_rows, whole


def axis_of_condition(condition: Variable, x: Variable, axis: int, length: int) -> list[int]:
    """Find the axis of `condition`, if any, that runs along `axis` of `x`, which has `length` rows.

    Parameters of a distribution broadcast against its value from the right; the event dimensions
    of a multivariate one come last.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> logp, positive = pt.vector(shape=(5,)), pt.matrix(shape=(5, 3)) > 0
    >>> axis_of_condition(positive, logp, 0, 5)
    [0]
    """
    surplus = condition.type.ndim - x.type.ndim
    axes = (axis, axis + surplus) if surplus > 0 else (axis + surplus,)
    return [i for i in axes if i >= 0 and condition.type.shape[i] == length][:1]


def guard(
    x: TensorVariable,
    axis: int,
    by_row: Sequence[tuple[Variable, int]],
    of_all: Iterable[Variable] = (),
) -> TensorVariable:
    """Set `x` to minus infinity in the rows where any of the conditions fails.

    Parameters
    ----------
    x : TensorVariable
        The guarded log-density, with the rows along `axis`.
    axis : int
    by_row : sequence of (Variable, int)
        Each condition on a row, and its axis that has the rows.
    of_all : iterable of Variable
        Conditions that concern all rows.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> condition = pt.as_tensor([True, False, True])
    >>> guard(pt.zeros(3), 0, [(condition, 0)]).eval()
    array([  0., -inf,   0.])
    """
    holding = []
    for condition, own in by_row:
        others = [i for i in range(condition.type.ndim) if i != own]
        holds = pt.all(condition, axis=others) if others else pt.as_tensor(condition)
        holding.append(holds.dimshuffle(["x"] * axis + [0] + ["x"] * (x.type.ndim - axis - 1)))
    holding += [pt.all(c) if c.type.ndim else pt.as_tensor(c) for c in of_all]
    for holds in holding:
        x = pt.switch(holds, x, np.array(-np.inf, dtype=x.type.dtype))
    return x


def _conjuncts(condition: Variable) -> list[Variable]:
    """List the conditions that one is made of: it holds where all of them do."""
    op = ops.op_of(condition)
    # Nested `all` reductions are one; any other reduction is a condition in itself.
    is_all = isinstance(op, ops.CAReduce) and isinstance(op.scalar_op, ps.AND)
    if isinstance(op, ops.ScalarFromTensor | ops.TensorFromScalar | ops.MakeVector) or (
        is_all and condition.type.ndim == 0
    ):
        return list(condition.owner.inputs)
    return []


def _always_true(condition: Variable) -> bool:
    if isinstance(condition, Constant):
        return bool(np.all(condition.data))
    kind = type(ops.scalar_op_of(condition))
    if kind not in _BOUNDS:
        return False
    functions, passes = _BOUNDS[kind]
    left, right = (without_views(i) for i in condition.owner.inputs)
    always = isinstance(right, Constant) and bool(np.all(passes(right.data)))
    return always and _computed_by(left, functions)


def _with_known_sums(condition: Variable) -> Variable:
    """Replace the sum of a softmax by one: it needs no check that it adds up."""
    known: dict[Variable, Variable] = {
        v: pt.ones(v.type.shape)
        for v in ancestors([condition])
        if _is_sum_of_softmax(v) and None not in v.type.shape
    }
    if not known:
        return condition
    [simplified] = clone_replace([condition], known, rebuild_strict=False)
    return simplified


def _is_sum_of_softmax(variable: Variable) -> bool:
    outer = ops.op_of(variable)
    if not isinstance(outer, ops.Sum):
        return False
    inner = ops.op_of(variable.owner.inputs[0])
    return isinstance(inner, ops.Softmax) and inner.axis == outer.axis


def _computed_by(variable: Variable, functions: tuple[type, ...]) -> bool:
    is_softmax = isinstance(ops.op_of(variable), ops.Softmax)
    return is_softmax or isinstance(ops.scalar_op_of(variable), functions)


def without_views(variable: Variable) -> Variable:
    """Return a variable without the views that rearrange its axes."""
    while isinstance(ops.op_of(variable), ops.DimShuffle):
        variable = variable.owner.inputs[0]
    return variable
