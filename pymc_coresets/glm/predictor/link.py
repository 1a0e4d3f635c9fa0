"""The log-density of a row as a function of its linear predictor."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_coresets.compat.pytensor_api import (
    TensorVariable,
    Variable,
    clone_replace,
    graph_inputs,
    unwrapped,
    vectorize_graph,
)
from pymc_coresets.potentials.fused_loops import loop_mode
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.row_arrays import RowArray

__all__ = ["Link"]

type _Function = Callable[..., Sequence[np.ndarray]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Link:
    """phi_n(eta) = log p(y_n | eta), in nats, for any rows.

    Attributes
    ----------
    graph : TensorVariable
        phi for the rows in the placeholders, of shape (n_rows,).
    eta : TensorVariable
        Input of `graph`: the predictor of each row, of shape (n_rows,).
    n_rows : TensorVariable
        Input of `graph`: the number of rows.
    rows : tuple of RowArray
        The arrays that `graph` depends on besides.
    """

    graph: TensorVariable
    eta: TensorVariable
    n_rows: TensorVariable
    rows: tuple[RowArray, ...]
    _functions: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def above(cls, node: Variable, observations: Observations, *, shared: bool) -> "Link":
        """Cut the graph of the log-likelihood at the node through which all free variables enter.

        Parameters
        ----------
        node : Variable
            It has one number for each row, or is a single number.
        observations : Observations
        shared : bool
            Whether it is a single number, which all rows share.

        Examples
        --------
        >>> import pymc as pm
        >>> from pymc_coresets.reading.observations import find_observations
        >>> with pm.Model() as model:
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(2.0))
        >>> observations = find_observations(model)
        >>> link = Link.above(observations.parameters["mu"], observations, shared=True)
        >>> link.evaluate(np.array([[0.0]]), slice(0, 2), 2).round(3)
        array([[-0.919, -1.419]])
        """
        eta = pt.vector("eta", dtype=node.type.dtype)
        graph = (_of_single_rows if shared else _of_rows)(node, eta, observations)
        inputs = set(graph_inputs([graph]))
        rows = tuple(r for r in observations.rows if r.placeholder in inputs)
        return cls(graph=graph, eta=eta, n_rows=observations.n_rows, rows=rows)

    def evaluate(
        self, eta: np.ndarray, rows: np.ndarray | slice, n_rows: int, *, compiled: bool = True
    ) -> np.ndarray:
        """Evaluate at `eta`, of shape (K, n_rows) or (K, 1); the result is (K, n_rows)."""
        shape = (len(eta), n_rows)
        grid = np.ascontiguousarray(np.broadcast_to(eta, shape), dtype=self.eta.type.dtype)
        arrays = [np.ascontiguousarray(r.take(rows)) for r in self.rows]
        with np.errstate(all="ignore"):  # outside a link's domain
            function = self.compiled(compiled, lambda: self._function(compiled=compiled))
            [values] = function(grid, np.asarray(n_rows), *arrays)
        return np.broadcast_to(values, shape)

    def of_rows(self, arrays: Sequence[np.ndarray]) -> "Link":
        """Return phi of other rows, with the same compiled functions.

        Parameters
        ----------
        arrays : sequence of ndarray
            What takes the place of the values of each of `rows`.
        """
        rows = tuple(replace(r, values=v) for r, v in zip(self.rows, arrays, strict=True))
        return replace(self, rows=rows)

    def compiled[T](self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is compiled of phi, once for this link and those of other rows."""
        if key not in self._functions:
            self._functions[key] = make()
        found: T = self._functions[key]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_functions": {}}  # nothing compiled

    def _function(self, *, compiled: bool) -> _Function:
        grid = pt.matrix("eta", dtype=self.eta.type.dtype)
        graph = vectorize_graph(self.graph, {self.eta: grid})
        inputs: list[Variable] = [grid, self.n_rows, *(r.placeholder for r in self.rows)]
        return _function_of(inputs, graph, compiled=compiled)


def _function_of(inputs: list[Variable], graph: Variable, *, compiled: bool) -> _Function:
    mode = loop_mode() if compiled else PLAIN_MODE
    function: _Function = pytensor.function(
        inputs, [graph], mode=mode, on_unused_input="ignore", trust_input=compiled
    )
    return unwrapped(function) if compiled else function


def _of_rows(node: Variable, eta: TensorVariable, observations: Observations) -> TensorVariable:
    order = ["x" if n == 1 else 0 for n in node.type.shape]
    cut: dict[Variable, Variable] = {node: eta.dimshuffle(order)}
    [graph] = clone_replace([observations.loglik], cut, rebuild_strict=False)
    return cast(TensorVariable, graph)


def _of_single_rows(
    node: Variable, eta: TensorVariable, observations: Observations
) -> TensorVariable:
    """Evaluate the graph for one row at a time, each with its own value of the node."""
    one: dict[Variable, Variable] = {
        observations.n_rows: pt.constant(1, dtype=observations.n_rows.type.dtype)
    }
    [graph, single] = clone_replace([observations.loglik, node], one, rebuild_strict=False)
    batched: dict[Variable, Variable] = {single: eta.dimshuffle(0, *["x"] * node.type.ndim)}
    inputs = set(graph_inputs([graph]))
    for row in observations.rows:
        if row.placeholder in inputs:
            axes = range(row.values.ndim)
            order = [row.axis, *("x" if i == row.axis else i for i in axes)]
            batched[row.placeholder] = row.placeholder.dimshuffle(order)
    by_row = cast(TensorVariable, vectorize_graph(graph, batched))
    return cast(TensorVariable, by_row[:, 0])
