"""Which parts of a graph are known without the parameters, and their values."""

from collections.abc import Iterable

import numpy as np

from pymc_coresets.compat.pytensor_api import Variable, ancestors, io_toposort
from pymc_coresets.reading.folding import evaluate

__all__ = ["Known", "describe"]


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

    def broadcasts(self, variable: Variable, axis: int) -> bool:
        """Whether a variable has length 1 along an axis, even if its type does not say so."""
        length = variable.type.shape[axis]
        if length is not None or self.depends(variable):
            return bool(length == 1)
        return bool(self.value(variable).shape[axis] == 1)

    def holds(self, condition: Variable) -> bool:
        """Whether a condition that depends on no parameter is true everywhere."""
        return bool(np.all(self.value(condition)))


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
