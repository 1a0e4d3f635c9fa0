"""The data of a model: the groups that `pm.sample` gives them, and blocks of rows in a copy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from pytensor.graph import Constant, Variable, ancestors
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.predictive.approximate_posterior import ApproximatePosterior
from pymc_coresets.reading.draws import dims_of
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.graphs import as_plain_tensor, shapes_of
from pymc_coresets.reading.likelihood.prototypes import check_column, row_dims
from pymc_coresets.reading.user_model import data_of, settable_data
from pymc_coresets.rowlogp.code_checks import RowCodes, codes_in, out_of_range
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import StreamedRows

_GROUPS = ["observed_data", "constant_data"]
BLOCK_ROWS = 2**16
"""Rows that the model holds at a time, at most: some MB of each column."""


#: Values of each variable; and the axes along the rows that they have, one or none.
type Known = dict[str, tuple[np.ndarray, tuple[int, ...]]]


class HeldRows:
    """The rows that a model holds itself, as one block: see `FilledModel`."""

    n_rows = 1

    def blocks(self, at_draw: int) -> Iterator[slice]:
        """Yield the only block."""
        del at_draw
        yield slice(0, 1)

    def draws_of_block(self, n_draws: int, most: int) -> int:
        """Return how many draws of each chain a block takes, of which `most` fit into memory."""
        return min(n_draws, most)

    def place(self, number: int) -> str:
        """Return the location of a block, for messages."""
        del number
        return ""

    def known(self, compute: Callable[[str], Mapping[str, np.ndarray]]) -> Known:
        """Return values at a draw: no axis grows with the rows."""
        return {name: (value, ()) for name, value in compute("").items()}


@dataclass(frozen=True, eq=False)
class FilledModel:
    """A copy of a model, to be filled with rows from elsewhere.

    Parameters
    ----------
    model : pm.Model
        The copy.
    source : RowBlocks
        The rows; their arrays are what `columns` take.
    columns : tuple of str
        The data containers that hold rows.
    resized : tuple of str
        Other containers, of which only the number of rows matters.
    """

    model: pm.Model
    source: RowBlocks
    columns: tuple[str, ...]
    resized: tuple[str, ...] = ()

    @property
    def dims(self) -> set[str]:
        """The dimensions of the rows."""
        return row_dims(self.model, (*self.columns, *self.resized))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.source.n_rows

    def draws_of_block(self, n_draws: int, most: int) -> int:
        """Return all draws: blocks are divided along the rows."""
        del most
        return n_draws

    def place(self, number: int) -> str:
        """Return the location of a block, for messages."""
        return f" in block {number} of the rows"

    def known(self, compute: Callable[[str], Mapping[str, np.ndarray]]) -> Known:
        """Return values at a draw and three rows, with the axes along the rows.

        Raises
        ------
        UnsupportedModelError
            If a variable has no such axis.
        """
        fewer, more = (self._of_few(n_rows, compute) for n_rows in (2, 3))
        found: Known = {}
        for name, value in more.items():
            shapes = list(zip(fewer[name].shape, value.shape, strict=True))
            if shapes.count((2, 3)) != 1:
                raise UnsupportedModelError(
                    f"{name!r} has shape {value.shape} for 3 rows and {fewer[name].shape} for 2: "
                    "it has no axis along the rows. Put the data that it is computed from into "
                    "pm.Data, give it the dims of these (or shape=x.shape[0]), or name others with "
                    "var_names."
                )
            found[name] = value, (shapes.index((2, 3)),)
        return found

    def blocks(self, size: int = BLOCK_ROWS) -> Iterator[slice]:
        """Fill the model with one block of rows after the other, and yield which rows these are."""
        start = 0
        for rows in self.source.blocks(size):
            self.fill(rows.arrays)
            yield slice(start, start + len(rows))
            start += len(rows)

    def fill(self, arrays: Sequence[np.ndarray]) -> None:
        """Put rows into the containers."""
        n_rows = len(arrays[0])
        for name, array in zip(self.columns, arrays, strict=True):
            self.model[name].set_value(np.ascontiguousarray(array), borrow=True)
        for name in self.resized:
            container = self.model[name]
            values = container.get_value(borrow=True)
            container.set_value(np.resize(values, (n_rows, *values.shape[1:])), borrow=True)
        for dim in self.dims:
            length = self.model.dim_lengths[dim]
            if isinstance(length, SharedVariable):
                length.set_value(np.array(n_rows))

    def _of_few(
        self, n_rows: int, compute: Callable[[str], Mapping[str, np.ndarray]]
    ) -> Mapping[str, np.ndarray]:
        """Compute values for a few rows, some of them repeatedly."""
        first = next(iter(self.source.blocks(n_rows))).arrays
        self.fill([np.resize(array, (n_rows, *array.shape[1:])) for array in first])
        return compute(f" for {n_rows} rows")


def fill_with(model: pm.Model, rows: RowSource, graphs: Mapping[str, Variable]) -> FilledModel:
    """Fill a model with new rows, after a reading of all of them that finds what cannot be used.

    Parameters
    ----------
    model : pm.Model
        A copy of the user's.
    rows : RowSource
        From `open_rows`.  What is only observed needs no column.
    graphs : mapping of str to Variable
        The graphs to compute, from `forward_graphs`.

    Returns
    -------
    FilledModel

    Raises
    ------
    InvalidOptionError
        If a container that holds rows has no column, or none has.
    InvalidDataError
        If a column has another shape or type than its container, holds NaN or infinite values, or
        asks for an entry that a table does not have.
    UnsupportedModelError
        If a free variable has one value per row, or a dimension of fixed length.

    Examples
    --------
    >>> from pymc_coresets.predictive.forward import Forward, forward_graphs
    >>> from pymc_coresets.rows.sources.opening import open_rows
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(5.0))
    ...     line = pm.Deterministic("line", pm.Normal("slope") * x)
    >>> graphs = forward_graphs(model, ["line"], means=True)
    >>> filled = fill_with(model, open_rows({"x": np.array([7.0, 8.0])}), graphs)
    >>> [Forward.of(model, graphs)({"slope": np.array(2.0)}, 1)["line"] for _ in filled.blocks()]
    [array([14., 16.])]
    """
    columns, resized = _containers(model, rows, graphs)
    dtypes = {name: model[name].get_value(borrow=True).dtype for name in columns}
    filled = FilledModel(model, StreamedRows(rows, dtypes), columns, resized)
    _refuse_fixed(filled)
    _check(filled, _lookups(filled, graphs))
    return filled


def filled_with_own(own: ApproximatePosterior, copy: pm.Model) -> FilledModel | HeldRows:
    """Prepare a copy of the model for all rows, unless it holds them already."""
    if len(own.parts) > 1:
        raise InvalidOptionError(
            "The rows of summaries that were added lie in several models: predict those of one "
            "with model=..., or new ones with rows=..."
        )
    own.require_all_rows()
    [loglik] = own.parts
    prototypes = loglik.observations.prototypes
    if not prototypes:
        return HeldRows()
    columns = tuple(row.name for row in loglik.observations.rows)
    others = tuple(name for name in prototypes.values if name not in columns)
    return FilledModel(copy, loglik.source, columns, others)


# -- containers and columns ------------------------------------------------------------------------


def _containers(
    model: pm.Model, rows: RowSource, graphs: Mapping[str, Variable]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the containers that take columns, and others of which only the length matters."""
    data = settable_data(model)
    below = set(ancestors(graphs.values(), blockers=set(model.free_RVs)))
    used = used_by_value(model, graphs)
    given = [name for name in data if name in rows.columns and model[name] in below]
    if not given:
        raise InvalidOptionError(
            f"rows: they have the columns {list(rows.columns)!r}, but {list(graphs)!r} is computed "
            "from no pm.Data of these names. Write the same model with the data in pm.Data of the "
            "columns' names, and pass it as model=...: the draws serve for it, too."
        )
    for name in given:
        check_column(name, data[name], rows.columns[name])
    lengths = {len(data[name]) for name in given}
    dims = row_dims(model, given)
    others = [
        name
        for name, values in data.items()
        if name not in given
        and model[name] in below
        and values.ndim > 0
        and len(values) in lengths
        and row_dims(model, [name]) <= dims
    ]
    for name in others:
        if model[name] in used:
            raise InvalidOptionError(
                f"rows: {name!r} holds data of the rows too, but they have no column of its name; "
                f"they have {list(rows.columns)!r}."
            )
    return tuple(given), tuple(others)


def used_by_value(model: pm.Model, graphs: Mapping[str, Variable]) -> set[Variable]:
    """Return what graphs depend on by more than its shape.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x, y = pm.Data("x", np.arange(5.0)), pm.Data("y", np.arange(5.0))
    >>> found = used_by_value(model, {"total": x + y.shape[0]})
    >>> x in found, y in found
    (True, False)
    """
    free = set(model.free_RVs)
    below = ancestors(graphs.values(), blockers=free)
    shapes = {v for v in below if isinstance(ops.op_of(v), ops.Shape | ops.Shape_i)}
    return set(ancestors(graphs.values(), blockers=free | shapes))


def _refuse_fixed(filled: FilledModel) -> None:
    model = filled.model
    for dim in sorted(filled.dims):
        if isinstance(model.dim_lengths[dim], Constant):
            raise UnsupportedModelError(
                f"The dimension {dim!r} has a fixed length: name it in the dims of a pm.Data first."
            )
        local = [v.name for v in model.free_RVs if dim in model.named_vars_to_dims.get(v.name, ())]
        if local:
            raise UnsupportedModelError(
                f"The free variables {local!r} have one value for each row of {dim!r}: there are "
                "no draws of them for new rows."
            )


# -- values that cannot be used --------------------------------------------------------------------


def _check(filled: FilledModel, lookups: Sequence[RowCodes]) -> None:
    """Read all rows, and refuse values that are not finite and codes of nothing."""
    for rows in filled.source.blocks(BLOCK_ROWS):
        for name, array in zip(filled.columns, rows.arrays, strict=True):
            by_row = array.reshape(len(rows), -1)
            bad = np.flatnonzero(~np.isfinite(by_row).all(axis=1))
            if bad.size:
                raise InvalidDataError(
                    f"{filled.source.place(int(rows.positions[bad[0]]))}: {name!r} is not finite."
                )
        if lookups:
            filled.fill(rows.arrays)
        for lookup in lookups:
            [codes] = values_of([lookup.codes])
            for place in out_of_range(codes, lookup.length)[:1]:
                position = int(rows.positions[place[0]])
                raise lookup.error(filled.source, int(codes[tuple(place)]), position)


def _lookups(filled: FilledModel, graphs: Mapping[str, Variable]) -> list[RowCodes]:
    model = filled.model

    def length_of(table: TensorVariable, axis: int) -> int:
        return shapes_of([table])[0][axis]

    columns = {model[name]: name for name in filled.columns}
    found = codes_in(graphs.values(), columns, model.free_RVs, length_of=length_of)
    # A table may itself be looked up by codes, which are checked first.
    return sorted(found, key=lambda lookup: len(list(ancestors([lookup.codes]))))


# -- as groups -------------------------------------------------------------------------------------


def with_data(idata: xr.DataTree, own: ApproximatePosterior) -> xr.DataTree:
    """Add the data of all rows to draws, if the user's model holds them.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of an approximate posterior; its groups of data, which are those of a few rows, are
        replaced.
    own : ApproximatePosterior
        Replacement of all rows in it.

    Returns
    -------
    xarray.DataTree
        The same draws; without data, if the rows are outside the model.
    """
    kept = idata.drop_nodes(_GROUPS, errors="ignore")
    if not own.n_in_memory:
        return kept
    groups = data_groups(own.parts[0].observations.snapshot.whole)
    found: xr.DataTree = kept.assign({name: xr.DataTree(group) for name, group in groups.items()})
    return found


def data_groups(model: pm.Model) -> dict[str, xr.Dataset]:
    """Return what was observed, and the data containers, as `pm.sample` does.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    dict of str to xarray.Dataset
        ``observed_data`` and ``constant_data``, if there are any.  The arrays are those of the
        model, which cannot be written to, and no copies.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0), dims="row")
    ...     y = pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=np.ones(3), dims="row")
    >>> {name: list(group.variables) for name, group in data_groups(model).items()}
    {'observed_data': ['y', 'row'], 'constant_data': ['x', 'row']}
    """
    observed = {str(rv.name): model.rvs_to_values[rv] for rv in model.observed_RVs}
    used = set(ancestors([*model.basic_RVs, *model.deterministics, *model.potentials]))
    values = set(observed.values())
    constant = {str(v.name): v for v in model.data_vars if v in used or v not in values}
    return {
        name: labelled(model, {n: _values(variable) for n, variable in variables.items()})
        for name, variables in zip(_GROUPS, (observed, constant), strict=True)
        if variables
    }


def labelled(
    model: pm.Model,
    arrays: Mapping[str, np.ndarray],
    *,
    before: Sequence[str] = (),
    labels: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> xr.Dataset:
    """Give arrays the dimensions and labels that a model has for them, as `pm.sample` does.

    Parameters
    ----------
    model : pm.Model
    arrays : mapping of str to ndarray
        By the names of its variables.
    before : sequence of str
        Dimensions that come before those of the variables.
    labels : mapping of str to ndarray
        In place of the model's.

    Examples
    --------
    >>> with pm.Model(coords={"k": ["u", "v"]}) as model:
    ...     slope = pm.Normal("slope", dims="k")
    >>> found = labelled(model, {"slope": np.zeros((5, 2))}, before=["draw"])
    >>> dict(found.sizes), found["k"].values.tolist()
    ({'draw': 5, 'k': 2}, ['u', 'v'])
    """
    named, n_before = model.named_vars_to_dims, len(before)
    dims = {name: dims_of(name, array.ndim - n_before, named) for name, array in arrays.items()}
    data = xr.Dataset({name: ([*before, *dims[name]], array) for name, array in arrays.items()})
    numbers: dict[Any, Any] = {dim: pd.RangeIndex(size) for dim, size in data.sizes.items()}
    held = {dim: np.array(model.coords[dim]) for dim in numbers if model.coords.get(dim)}
    return data.assign_coords(numbers | held | dict(labels))


def _values(variable: Variable) -> np.ndarray:
    if isinstance(variable, Constant | SharedVariable):
        values = data_of(variable)
    else:
        [values] = values_of([as_plain_tensor(variable)])
    view: np.ndarray = values.view()
    view.flags.writeable = False
    return view
