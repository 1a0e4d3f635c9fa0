"""Tables indexed by row data, and checks that the indices are in range."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice

import numpy as np
from pytensor.graph import Variable, ancestors
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import AdvancedSubtensor, op_of
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.selection_rules import index_of
from pymc_coresets.rows.passes import BlockPass, RowBlocks
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, eq=False)
class RowCodes:
    """An index that is computed from row data alone.

    Attributes
    ----------
    codes : Variable
        The index, as a graph of the rows' arrays.
    columns : tuple of str
        The containers that it is computed from.
    table : str
        Name of the variable that is indexed.
    length : int
        Number of entries along the indexed axis.
    """

    codes: Variable
    columns: tuple[str, ...]
    table: str
    length: int

    def error(self, source: RowBlocks, code: int, position: int) -> InvalidDataError:
        """Return the error for a row with an index out of range."""
        names = " and ".join(map(repr, self.columns))
        return InvalidDataError(
            f"{source.place(position)}: {names} asks for entry {code} of {self.table!r}, "
            f"which has the entries 0 to {self.length - 1}."
        )


def out_of_range(codes: np.ndarray, length: int) -> np.ndarray:
    """Return the places of indices that a table of some length does not have, (n_places, ndim).

    Examples
    --------
    >>> out_of_range(np.array([0, 2, -1]), 2)
    array([[1],
           [2]])
    """
    return np.argwhere((codes < 0) | (codes >= length))


def codes_of(observations: Observations) -> list[RowCodes]:
    """Find the indices that the log-likelihoods compute from row data alone.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     group, y = pm.Data("group", np.array([0, 1, 1])), pm.Data("y", np.ones(3))
    ...     effect = pm.Normal("effect", shape=4)
    ...     likelihood = pm.Normal("likelihood", effect[group], 1.0, observed=y)
    >>> columns = {"group": np.zeros((), dtype=int), "y": np.zeros(())}
    >>> [found] = codes_of(find_observations(model, columns=columns))
    >>> found.columns, found.table, found.length
    (('group',), 'effect', 4)
    """
    columns: dict[Variable, str] = {row.placeholder: row.name for row in observations.rows}
    return codes_in(
        [observations.loglik],
        columns,
        set(observations.parameters.values()),
        length_of=lambda table, axis: table.type.shape[axis],
    )


def codes_in(
    graphs: Iterable[Variable],
    columns: Mapping[Variable, str],
    parameters: Collection[Variable],
    *,
    length_of: Callable[[TensorVariable, int], int | None],
) -> list[RowCodes]:
    """Find the indices in some graphs that are computed from row data alone.

    Parameters
    ----------
    graphs : iterable of Variable
    columns : mapping of Variable to str
        The variables that hold row data, with the names of their containers.
    parameters : collection of Variable
        The free variables; their ancestors are not searched.
    length_of : callable
        Length of a table along an axis; None if it is unknown, in which case any index is allowed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> group, effect = pt.lvector("group"), pt.tensor("effect", shape=(4,))
    >>> [found] = codes_in(
    ...     [effect[group]], {group: "group"}, {effect}, length_of=lambda table, axis: 4
    ... )
    >>> found.table, found.length
    ('effect', 4)
    """
    found = {v: None for graph in graphs for v in ancestors([graph], blockers=parameters)}
    return [
        lookup
        for variable in found
        if isinstance(op_of(variable), AdvancedSubtensor)
        for lookup in _of_node(variable, columns, set(parameters), length_of)
    ]


def _of_node(
    variable: Variable,
    names: Mapping[Variable, str],
    parameters: set[Variable],
    length_of: Callable[[TensorVariable, int], int | None],
) -> Iterator[RowCodes]:
    node = variable.owner
    x, (_, arrays) = node.inputs[0], index_of(node)
    table = next((v.name for v in ancestors([x]) if v.name and v not in names), "a table")
    for axis, entry in arrays.items():
        below = set(ancestors([entry]))
        codes = tuple(sorted(names[v] for v in below & names.keys()))
        if not codes or not below.isdisjoint(parameters):
            continue
        length = length_of(x, axis)
        if length is not None:
            yield RowCodes(entry, codes, table, length)


class CodeCheck:
    """Check of the indices in the rows of a model, compiled once.

    Parameters
    ----------
    observations : Observations
        Of a model with prototype rows.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets import open_rows
    >>> from pymc_coresets.rowlogp.of_model import likelihood_of_prototypes
    >>> with pm.Model() as model:
    ...     group, y = pm.Data("group", np.array([0, 1])), pm.Data("y", np.zeros(2))
    ...     mu = pm.Normal("mu", shape=2)
    ...     likelihood = pm.Normal("likelihood", mu[group], 1.0, observed=y)
    >>> source = open_rows({"group": np.array([1, 0, 2]), "y": np.zeros(3)})
    >>> loglik = likelihood_of_prototypes(model, source.columns)
    >>> rows = StreamedRows(source, {"group": np.dtype(int), "y": np.dtype(float)})
    >>> CodeCheck(loglik.observations).usable(rows)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidDataError: row 2: 'group' asks for entry 2 of 'mu', which has
    the entries 0 to 1. (docs: troubleshooting#the-data-and-the-model)
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        given = {row.placeholder for row in observations.rows}
        found = codes_of(observations)
        self._of_rows = [lookup for lookup in found if lookup.codes in given]
        self._computed = [lookup for lookup in found if lookup.codes not in given]

    def usable(self, rows: StreamedRows, size: int = 0, *, key: int = 0) -> StreamedRows:
        """Read rows for the first time, and raise if values or codes cannot be used.

        A second reading is needed only if codes are computed from columns: the first reading
        records the ranges of the columns themselves.

        Parameters
        ----------
        rows : StreamedRows
        size, key : int
            Of the sample that is kept, see `StreamedRows.examine`.

        Returns
        -------
        StreamedRows
            The same rows, which later readings are compared with.

        Raises
        ------
        InvalidDataError
            If a value cannot be used, or a code is out of range; the message names the row, the
            code and the table.
        """
        first, initial = rows.examine(size, key=key)
        first.require_usable()
        rows = replace(rows, first=first, initial_sample=initial)
        # A table may itself hold codes: the codes that index such a table are checked first.
        for lookup in self._of_rows:
            low, high = first.ranges[lookup.columns[0]]
            if low < 0 or high >= lookup.length:
                _refuse_codes(rows, self._kernel_of([lookup]), [lookup])
        if self._computed:
            _refuse_codes(rows, self._kernel, self._computed)
        return rows

    @cached_property
    def _kernel(self) -> Kernel:
        return self._kernel_of(self._computed)

    def _kernel_of(self, some: Sequence[RowCodes]) -> Kernel:
        obs = self._observations
        of_rows = [obs.n_rows, *(row.placeholder for row in obs.rows)]
        axes = {i: row.axis for i, row in enumerate(obs.rows)}
        return Kernel([], of_rows, [lookup.codes for lookup in some], axes)


def _refuse_codes(rows: StreamedRows, kernel: Kernel, some: Sequence[RowCodes]) -> None:
    """Read all rows, and refuse the first with an index out of range."""
    begin = partial(_bad_codes, kernel, [own.length for own in some])
    # Rows: some MB of codes.
    for position, number, code in rows.reduce(BlockPass(2**16, begin, _first)):
        raise some[number].error(rows, code, position)


#: The position of a row, the number of an index among all, and its value, which is out of range.
type _BadCode = tuple[int, int, int]


def _bad_codes(kernel: Kernel, lengths: Sequence[int]) -> Callable[[Rows], list[_BadCode]]:
    """Return a function of rows to the first of them with an index out of range, or to none."""
    evaluate = kernel.program.given()

    def check(rows: Rows) -> list[_BadCode]:
        values = evaluate(np.asarray(len(rows)), *kernel.arrays(rows))
        return [
            (int(rows.positions[place[0]]), i, int(codes[tuple(place)]))
            for i, (codes, length) in enumerate(zip(values, lengths, strict=True))
            for place in out_of_range(codes, length)[:1]
        ][:1]

    return check


def _first(parts: Iterable[list[_BadCode]]) -> list[_BadCode]:
    return list(islice(chain.from_iterable(list(parts)), 1))
