"""What the potential of each row takes of the arrays that all rows share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.graph import Apply, Variable, ancestors
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import AdvancedSubtensor, io_toposort
from pymc_coresets.reading.blocks.dependence import performed
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.known import Known
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.selection_rules import index_of
from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, eq=False)
class Use:
    """A shared array that depends on free variables, and how the rows use it.

    Attributes
    ----------
    table : Variable
        The array.
    lookup : Apply or None
        The node that looks up entries by row; None where every row uses all entries.
    """

    table: Variable
    lookup: Apply | None


@dataclass(frozen=True, eq=False)
class Codes:
    """Values of the index arrays: of rows, or of all patterns that rows may have."""

    values: dict[Variable, NDArray[Any]]
    n_rows: int


class RowUses:
    """The shared arrays in a pointwise log-likelihood, and which of their entries each row uses.

    Parameters
    ----------
    observations : Observations
    known : Known
        Of all inputs of the log-likelihood.

    Attributes
    ----------
    uses : list of Use

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     effect, group = pm.Normal("effect", shape=3), np.array([0, 2, 2, 0])
    ...     y = pm.Normal("y", effect[group], 1.0, observed=np.arange(4.0))
    >>> obs = find_observations(model)
    >>> rows = [obs.n_rows, *(row.placeholder for row in obs.rows)]
    >>> found = RowUses(obs, Known([*obs.parameters.values(), *rows]))
    >>> found.entries(found.uses[0], found.patterns)
    array([[0],
           [2]])
    """

    def __init__(self, observations: Observations, known: Known) -> None:
        self.observations = observations
        self._known = known
        self._functions: dict[tuple[Variable, ...], Callable[..., list[NDArray[Any]]]] = {}
        self._parameters = Known(observations.parameters.values())
        self._by_row = Known([observations.n_rows, *(r.placeholder for r in observations.rows)])
        loglik = observations.loglik
        if not self._by_row.depends(loglik):
            self.uses = [Use(loglik, None)]
            return
        found: dict[tuple[Variable, Apply | None], None] = {}
        for node in io_toposort([], [loglik]):
            if self._by_row.depends(node.outputs[0]):
                shared = [v for v in node.inputs if self._is_shared(v)]
                found |= {(v, node if self._is_lookup(node, v) else None): None for v in shared}
        self.uses = [Use(table, lookup) for table, lookup in found]

    def _is_shared(self, variable: Variable) -> bool:
        return self._parameters.depends(variable) and not self._by_row.depends(variable)

    def _is_lookup(self, node: Apply, table: Variable) -> bool:
        """Whether rows pick entries of the table, each by integers of its own."""
        x, *index = node.inputs
        return (
            isinstance(node.op, AdvancedSubtensor)
            and x is table
            and node.outputs[0].type.shape.count(None) == 1
            and not any(self._parameters.depends(i) for i in index)
            and all(
                i.type.shape.count(None) == 1 and i.type.dtype != "bool"
                for i in index
                if self._by_row.depends(i)
            )
        )

    # -- which entries -------------------------------------------------------------------------

    def codes(self, rows: Rows, lookups: Sequence[Apply]) -> Codes:
        """Return the index arrays of some lookups for given rows, from the rows' own data."""
        wanted = self._indices(lookups)
        given = {
            r.placeholder: np.moveaxis(array, 0, r.axis)
            for r, array in zip(self.observations.rows, rows.arrays, strict=True)
        }
        return Codes(self._evaluated(wanted, given, len(rows)), len(rows))

    @cached_property
    def patterns(self) -> Codes:
        """The different combinations of codes that rows have.

        Where the model holds a template of the rows, every index array that is not computed from
        another one may have any value, whatever those of the others are.  Then this holds enough
        combinations to link all that some rows may link.
        """
        lookups = [use.lookup for use in self.uses if use.lookup is not None]
        if self.observations.template is not None:
            return self._possible(lookups)
        wanted = self._indices(lookups)
        n_obs = self.observations.n_obs
        given = {r.placeholder: r.values for r in self.observations.rows}
        values = self._evaluated(wanted, given, n_obs)
        combined = np.zeros(n_obs, dtype=np.int64)
        for variable, array in values.items():
            columns = np.moveaxis(array, _row_axis(variable), 0).reshape(n_obs, -1)
            for column in columns.T:
                _, codes = np.unique(column, return_inverse=True)
                _, combined = np.unique(combined * (codes.max() + 1) + codes, return_inverse=True)
        _, first = np.unique(combined, return_index=True)
        taken = {v: np.take(a, first, axis=_row_axis(v)) for v, a in values.items()}
        return Codes(taken, len(first))

    def entries(self, use: Use, codes: Codes) -> NDArray[np.int64] | None:
        """Return the positions in the raveled table that each row uses, (n_rows, n_used).

        None where each row uses all of them.
        """
        if use.lookup is None or not codes.values.keys() >= set(self._indices([use.lookup])):
            return None
        shape = self._known.shape(use.table)
        positions = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        index = [
            codes.values[v] if self._by_row.depends(v) else self._known.value(v)
            for v in use.lookup.inputs[1:]
        ]
        [found] = performed(use.lookup, [positions, *index])
        return np.moveaxis(found, _row_axis(use.lookup.outputs[0]), 0).reshape(codes.n_rows, -1)

    def columns(self, lookup: Apply) -> list[str]:
        """Name the arrays of rows that an index is computed from."""
        below = set(ancestors(lookup.inputs[1:]))
        return [r.name for r in self.observations.rows if r.placeholder in below]

    def _indices(self, lookups: Sequence[Apply]) -> list[Variable]:
        found = (v for node in lookups for v in node.inputs[1:] if self._by_row.depends(v))
        return list(dict.fromkeys(found))

    def _evaluated(
        self,
        wanted: Sequence[Variable],
        given: Mapping[TensorVariable, NDArray[Any]],
        n_rows: int,
    ) -> dict[Variable, NDArray[Any]]:
        values: dict[Variable, NDArray[Any]] = {v: a for v, a in given.items() if v in wanted}
        computed = tuple(v for v in wanted if v not in given)
        if computed:
            if computed not in self._functions:
                self._functions[computed] = numpy_function(
                    [self.observations.n_rows, *given], computed
                )
            results = self._functions[computed](np.asarray(n_rows), *given.values())
            values |= dict(zip(computed, results, strict=True))
        return {v: values[v] for v in wanted}

    def _possible(self, lookups: Sequence[Apply]) -> Codes:
        """Let each index have every value, the others being 0, and compute those that follow."""
        wanted = self._indices(lookups)
        bases = [
            v
            for v in wanted
            if v.type.ndim == 1 and {v} == set(wanted).intersection(ancestors([v]))
        ]
        lengths = [self._shortest(v, lookups) for v in bases]
        starts = np.cumsum([0, *lengths])
        given: dict[Variable, NDArray[Any]] = {}
        for base, start, length in zip(bases, starts, lengths, strict=False):
            given[base] = np.zeros(starts[-1], dtype=base.type.dtype)
            given[base][start : start + length] = np.arange(length)
        columns = {r.placeholder for r in self.observations.rows}.difference(bases)
        derived = [
            v
            for v in wanted
            if v not in given and columns.isdisjoint(ancestors([v], blockers=bases))
        ]
        try:
            values = numpy_function(bases, derived)(*given.values()) if derived else []
        except IndexError:  # a table of data is shorter than that of parameters: rows use all
            values = []
        given |= dict(zip(derived, values, strict=False))
        return Codes(given, max(1, int(starts[-1])))

    def _shortest(self, index: Variable, lookups: Sequence[Apply]) -> int:
        """Return the smallest number of entries that an index looks up among."""
        return min(
            self._known.shape(node.inputs[0])[axis]
            for node in lookups
            for axis, entry in enumerate(index_of(node)[0])
            if entry is index
        )


def _row_axis(variable: Variable) -> int:
    axis: int = variable.type.shape.index(None)
    return axis
