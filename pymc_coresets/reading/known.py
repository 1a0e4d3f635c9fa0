"""What is known of graphs without their parameters, and how parts of them are made anew."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable, ancestors, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.reading.folding import evaluate


class Known:
    """What is known of graphs whose only free inputs are some parameters.

    Parameters
    ----------
    parameters : iterable of Variable
        The free inputs of the graphs.  All their other inputs are data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> b, x = pt.scalar("b"), pt.constant([1.0, 2.0])
    >>> known = Known([b])
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
            if variable.owner is None:
                self._dependent[variable] = variable in self.parameters
            for node in io_toposort([], [variable]):
                known = any(
                    self._dependent.setdefault(i, i in self.parameters) for i in node.inputs
                )
                self._dependent |= dict.fromkeys(node.outputs, known)
        return self._dependent[variable]

    def value(self, variable: Variable) -> np.ndarray:
        """Evaluate a variable that depends on no parameter, once."""
        if variable not in self._values:
            [self._values[variable]] = evaluate([variable])
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
        [found] = evaluate(clone_replace([pt.shape(variable)], zeros, rebuild_strict=False))
        return tuple(int(n) for n in found)

    def broadcasts(self, variable: Variable, axis: int) -> bool:
        """Whether a variable has length 1 along an axis, even if its type does not say so."""
        length = variable.type.shape[axis]
        if length is not None or self.depends(variable):
            return bool(length == 1)
        return bool(self.value(variable).shape[axis] == 1)


def describe(variable: Variable) -> str:
    """Name the operation that computes a variable, and the nearest variable with a name.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> mu = 2 * pt.vector("x")
    >>> mu.name = "mu"
    >>> describe(mu.exp())
    "Exp (in 'mu')"
    """
    named = (v.name for v in ancestors([variable]) if v.name and v.owner is not None)
    operation = variable.owner.op if variable.owner else "data"
    return f"{operation} (in {variable.name or next(named, 'the log-likelihood')!r})"


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


class Planned[K: Hashable]:
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
    >>> numbers = Planned(plan)
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
