"""What the parts of a graph for selected rows depend on, and the values of its data."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable, clone_replace, graph_inputs

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.known import Known

#: Ops that only rearrange the entries of their first input.
MOVES = (
    ops.AdvancedSubtensor,
    ops.Alloc,
    ops.DimShuffle,
    ops.JoinDims,
    ops.Reshape,
    ops.SpecifyShape,
    ops.SplitDims,
    ops.Subtensor,
    ops.TypeCastingOp,
)


class RowGraph:
    """Tells what each variable of a graph for selected rows depends on, and evaluates its data.

    Parameters
    ----------
    parameters : sequence of Variable
        Inputs of known shape that stand for the free variables.
    rows : mapping of Variable to ndarray
        The other inputs of the graph, and the values of each one for all rows.

    Examples
    --------
    >>> x, b = pt.vector("x"), pt.scalar("b")
    >>> graph = RowGraph([b], {x: np.arange(3.0)})
    >>> graph.depends(x * b), graph.depends(x + 1), graph.by_row(b + 1)
    (True, False, False)
    >>> graph.values(x + 1)
    array([1., 2., 3.])

    Attributes
    ----------
    computed : list of Variable
        What was computed from the rows when its values were asked for.
    """

    def __init__(self, parameters: Sequence[Variable], rows: Mapping[Variable, np.ndarray]) -> None:
        self.parameters = tuple(parameters)
        self.rows = dict(rows)
        self._of_parameters, self._of_rows = Known(parameters), Known(rows)
        self._made: dict[tuple[Variable | int, ...], Variable] = {}
        self.computed: list[Variable] = []

    def of_rows(self, rows: Mapping[Variable, np.ndarray]) -> "RowGraph":
        """Return the same graph for other rows, whose `computed` variables may be given too.

        Examples
        --------
        >>> x, b = pt.vector("x"), pt.scalar("b")
        >>> graph = RowGraph([b], {x: np.arange(3.0)})
        >>> graph.of_rows({x: np.array([7.0])}).values(x + 1)
        array([8.])
        """
        other = copy.copy(self)
        other.rows = dict(rows)
        return other

    def depends(self, variable: Variable) -> bool:
        """Whether a variable is computed from any free variable."""
        return self._of_parameters.depends(variable)

    def by_row(self, variable: Variable) -> bool:
        """Whether a variable is computed from any array of rows."""
        return self._of_rows.depends(variable)

    def values(self, variable: Variable) -> np.ndarray:
        """Return the values, for all rows, of a variable that depends on no free variable."""
        if variable in self.rows:
            return self.rows[variable]
        if isinstance(variable, Constant):
            return cast(np.ndarray, variable.data)
        if not self.by_row(variable):
            return self._of_parameters.value(variable)
        self.computed.append(variable)
        data: dict[Variable, Variable] = {
            v: pt.constant(self.rows[v], dtype=v.type.dtype)
            for v in graph_inputs([variable])
            if v in self.rows
        }
        [values] = evaluate(clone_replace([variable], data, rebuild_strict=False))
        return values

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Return the shape of a variable that depends on no array of rows."""
        return self._of_parameters.shape(variable)

    def is_coefficient(self, variable: Variable) -> bool:
        """Whether all rows share a variable, and it is not just a rearrangement of others."""
        if self.by_row(variable) or not self.depends(variable):
            return False
        node = variable.owner
        if node is None:
            return True
        if isinstance(node.op, ops.SparseDot | ops.StructuredDot):  # of all rows at once
            return self.depends(node.inputs[0])
        if not isinstance(node.op, (*MOVES, ops.Join)):
            return True
        options = [] if isinstance(node.op, ops.Join) else node.inputs[1:]
        return any(self.depends(i) for i in options)

    def product(self, one: Variable, other: Variable) -> Variable:
        """Return the coefficient node `one * other`, always the same; `one` is a single number."""
        return self._made.setdefault((one, other), pt.mul(pt.reshape(one, ()), other))

    def entry(self, variable: Variable, position: int) -> Variable:
        """Return one number of a coefficient node, always the same; itself if it has but one."""
        if math.prod(self.shape(variable)) == 1:
            return variable
        return self._made.setdefault((variable, position), pt.flatten(variable)[position])

    def reciprocal(self, variable: Variable) -> Variable:
        """Return the coefficient node ``1 / variable``, always the same."""
        return self._made.setdefault((variable,), pt.reciprocal(variable))
