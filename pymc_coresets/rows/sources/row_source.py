"""The class for sources of rows: a reader, and the conversion of its columns to arrays."""

from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Never, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.options import generator, whole_number
from pymc_coresets.rows.first_reading import (
    BadValues,
    ChunkNotes,
    FirstReading,
    all_finite,
    array_hash,
    spaced,
)
from pymc_coresets.rows.memory import TASK_ROWS
from pymc_coresets.rows.sources.columns import Column, Field, Table, column_field, read_column
from pymc_coresets.rows.sources.readers import Chunk, Reader

type Arrays = dict[str, np.ndarray]
type Weights = NDArray[np.float64]
type Seed = int | Sequence[int] | np.random.SeedSequence | np.random.Generator
type _Wrong = tuple[str, NDArray[np.int64], str]  # kind, rows and value of a fault


@dataclass(frozen=True, eq=False)
class Fault:
    """Rows of a chunk in which a column cannot be used.

    Parameters
    ----------
    column : str
        Its name in the source.
    kind : str
        See `BadValues.kind`.
    rows : ndarray of int64
        Numbers within the chunk, increasing; not empty.
    value : str
        Value in the first of them, as text.
    """

    column: str
    kind: str
    rows: NDArray[np.int64]
    value: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnMapping:
    """How an array of the model is made from columns of the source.

    Parameters
    ----------
    name : str
        In the model.
    fields : mapping from str to Field
        Its parts, which are columns of the source, with their types in the first piece.
    column : Field
        Type of the array; int64 if labels are converted to codes.
    stacked : bool
        Whether the parts become a trailing axis; otherwise there is one part.
    labels : tuple, optional
        Values whose positions in this tuple are the codes.
    """

    name: str
    fields: Mapping[str, Field]
    column: Field
    stacked: bool = False
    labels: tuple[Hashable, ...] | None = None


class RowSource:
    """A table of rows that is read in chunks, as often as needed; see :func:`open_rows`.

    Several threads may read different chunks at the same time.  A source can be pickled; for data
    in files, the pickle holds their paths and layout, not the data.

    Attributes
    ----------
    columns : mapping from str to Field
        Shape of a row and dtype of each array, by its name in the model.
    n_rows : int
        Number of rows N; ``len(rows)`` is the same.
    chunks : sequence of Chunk
        All rows, in order.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets import RowSource, open_rows
    >>> rows = open_rows({"x": np.arange(4.0), "late": np.array([0, 1, 1, 0])})
    >>> isinstance(rows, RowSource), len(rows)
    (True, 4)
    >>> rows.head(2)
    {'x': array([0., 1.]), 'late': array([0, 1])}
    """

    def __init__(
        self,
        reader: Reader,
        mappings: Mapping[str, ColumnMapping],
        weights: Sequence[ColumnMapping],
        chunks: Sequence[Chunk],
    ) -> None:
        """Read some columns by a reader; one of them may be that of the case weights."""
        self._reader, self._mappings, self._weights = reader, dict(mappings), weights
        self.columns = {name: mapping.column for name, mapping in mappings.items()}
        self.chunks = chunks
        self.n_rows = chunks[-1].start + chunks[-1].n_rows
        self._starts = [chunk.start for chunk in chunks]

    def __len__(self) -> int:
        return self.n_rows

    # -- reading -------------------------------------------------------------------------------

    def read(self, chunk: Chunk, names: Collection[str] | None = None) -> Arrays:
        """Return the rows of a chunk.

        Parameters
        ----------
        chunk : Chunk
            One of `chunks`.
        names : collection of str, optional
            Names of the arrays to return; all by default.

        Returns
        -------
        dict from str to ndarray of shape (chunk.n_rows, ...)
            Contiguous in C order, with the dtype of `columns`.  Labels are int64 codes.  A null
            among floating-point numbers is NaN.

        Raises
        ------
        InvalidDataError
            If a label is unseen, a value other than a floating-point number is missing, or the data
            cannot be read; the message names file, row group, row and column.
        """
        return self.weighted(chunk, names)[0]

    def weighted(
        self, chunk: Chunk, names: Collection[str] | None = None
    ) -> tuple[Arrays, Weights]:
        """Return the rows of a chunk and their case weights, in one reading.

        As `read`; the weights are finite and >= 0; ones if the source has none.
        """
        mappings = self._mappings_of(names)
        decoded, weights, wrong = self._decoded(chunk, mappings)
        for mapping in mappings:
            nulls = mapping.column.dtype.kind == "f"  # missing values, which are NaN there
            found = decoded[mapping.name][1]
            wrong += [fault for fault in found if not (nulls and fault.kind == "missing value")]
        for fault in wrong:
            raise InvalidDataError(self._problem(chunk, fault).refusal, topic="rows-and-files")
        return {name: array for name, (array, _) in decoded.items()}, weights

    def head(self, n: int) -> Arrays:
        """Return the first `n` rows, or all if there are fewer, as data of prototypes."""
        n = whole_number("n", n, least=1)
        return self.take(np.arange(min(n, self.n_rows)))

    def sample(self, n: int, random_seed: Seed | None = None) -> Arrays:
        """Return `n` rows drawn uniformly without replacement, in the order of their positions."""
        n = min(whole_number("n", n, least=1), self.n_rows)
        rng = generator(random_seed)
        return self.take(np.sort(rng.choice(self.n_rows, n, replace=False, shuffle=False)))

    def take(self, positions: NDArray[np.int64]) -> Arrays:
        """Return the rows at the given positions, in the order of `positions`."""
        positions = np.asarray(positions, np.int64)
        for position in positions[(positions < 0) | (positions >= self.n_rows)][:1]:
            self._refuse_position(position)
        taken = {
            name: np.empty((len(positions), *column.shape), column.dtype)
            for name, column in self.columns.items()
        }
        chunk_of = np.searchsorted(self._starts, positions, side="right") - 1
        for number in np.unique(chunk_of):
            chunk, here = self.chunks[number], np.flatnonzero(chunk_of == number)
            for name, array in self.read(chunk).items():
                taken[name][here] = array[positions[here] - chunk.start]
        return taken

    def together(self, names: Collection[str]) -> Arrays:
        """Return all rows of some arrays, in one reading: for those that fit into memory."""
        columns = {name: self.columns[name] for name in names}
        found = {n: np.empty((self.n_rows, *c.shape), c.dtype) for n, c in columns.items()}
        for chunk in self.chunks:
            for name, array in self.read(chunk, names).items():
                found[name][chunk.start : chunk.start + chunk.n_rows] = array
        return found

    @property
    def has_weights(self) -> bool:
        """Whether rows have case weights."""
        return bool(self._weights)

    def locate(self, position: int) -> str:
        """Return the location of a row: ``"flights/part-0057.parquet, row group 3, row 41,207"``.

        Rows are counted from 0, within the last part that is named.
        """
        if not 0 <= position < self.n_rows:
            self._refuse_position(position)
        chunk = self.chunks[bisect_right(self._starts, position) - 1]
        return chunk.place(position - chunk.start)

    # -- the first reading ---------------------------------------------------------------------

    def examine(self, chunk: Chunk) -> tuple[Arrays, Weights, ChunkNotes]:
        """Return all arrays of a chunk, its case weights, and the notes of the first reading.

        Unlike `read`, this raises nothing for values that are missing or unseen (their codes are
        -1): they are listed in the `ChunkNotes`.
        """
        decoded, weights, faults = self._decoded(chunk, [*self._mappings.values()])
        with np.errstate(over="ignore", invalid="ignore"):
            total_weight = float(weights.sum())
        ranges, hashes = {}, {}
        for name, (array, found) in decoded.items():
            mapping = self._mappings[name]
            hashes[name] = array_hash(array)
            faults += found if all_finite(array) else [*found, *not_finite(mapping, array, found)]
            seen = array[array >= 0] if mapping.labels and found else array
            if seen.dtype.kind in "iub" and seen.size:
                ranges[name] = int(seen.min()), int(seen.max())
        notes = ChunkNotes(
            start=chunk.start,
            n_rows=chunk.n_rows,
            where=chunk.where,
            ranges=ranges,
            problems=tuple(self._problem(chunk, fault) for fault in faults),
            hashes=hashes,
            total_weight=total_weight,
        )
        return {name: array for name, (array, _) in decoded.items()}, weights, notes

    def check(self) -> FirstReading:
        """Read all rows once: ranges, problems and hashes.

        Costs one reading of the data.  To spread it over threads, map `examine` over `chunks` and
        join the last values by `FirstReading.joined`.
        """
        return FirstReading.joined([self.examine(chunk)[-1] for chunk in self.chunks])

    # -- what is sent to other processes -------------------------------------------------------

    @property
    def task_rows(self) -> int:
        """Least number of rows of a task. Rows that are not in files are sent by chunks."""
        return TASK_ROWS if self._reader.in_files else 1

    def may_begin(self, chunk: Chunk) -> bool:
        """Whether a task may begin with a chunk, which must be the start of a row group."""
        first = chunk.pieces[0]
        return not self._reader.in_files or first.is_whole or not first.origin

    def portion(
        self, chunks: Sequence[Chunk], names: Collection[str], *, to_dask: bool = False
    ) -> tuple[Self, list[list[object]]]:
        """Return a source of some chunks and arrays, and of the case weights.

        Its pickle holds their paths and layout. Chunks that are not in files are included, see
        `with_tables`: as values, or with `to_dask` as Dask collections.
        """
        mappings = {mapping.name: mapping for mapping in self._mappings_of(names)}
        parts = self._parts_of(mappings.values())
        portion = type(self)(self._reader, mappings, self._weights, chunks)
        if self._reader.in_files:
            return portion, []
        read = chunks if parts else []  # empty if no array is needed
        sent = [self._reader.sent(chunk, parts, to_dask=to_dask) for chunk in read]
        return portion.with_tables([]), sent

    def with_tables(self, found: Sequence[Sequence[object]]) -> Self:
        """Add the rows that were sent with a portion, computed; those of files were not."""
        if self._reader.in_files:
            return self
        starts = (chunk.start for chunk in self.chunks)
        find = partial(_sent, dict(zip(starts, found, strict=False)))
        return type(self)(
            replace(self._reader, find=find), self._mappings, self._weights, self.chunks
        )

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {column}" for name, column in self.columns.items())
        weight = "".join(f", weighted by {next(iter(own.fields))}" for own in self._weights)
        size = f"{spaced(self.n_rows)} rows in {spaced(len(self.chunks))} chunks"
        return f"<RowSource: {self._reader.kind}, {size}{weight}; {columns}>"

    # -- parts ---------------------------------------------------------------------------------

    def _mappings_of(self, names: Collection[str] | None) -> list[ColumnMapping]:
        wanted = list(self._mappings if names is None else names)
        for name in wanted:
            if name not in self._mappings:
                raise InvalidOptionError(
                    f"The rows have no array {name!r}. They have {', '.join(self._mappings)}."
                )
        return [self._mappings[name] for name in wanted]

    def _parts_of(self, mappings: Iterable[ColumnMapping]) -> list[str]:
        """Return the columns that the arrays and the case weights need."""
        every = [*mappings, *self._weights]
        return list(dict.fromkeys(part for mapping in every for part in mapping.fields))

    def _decoded(
        self, chunk: Chunk, mappings: Sequence[ColumnMapping]
    ) -> tuple[dict[str, tuple[np.ndarray, list[Fault]]], Weights, list[Fault]]:
        """Return the arrays of a chunk and the faults of each; the weights, and their faults."""
        parts = self._parts_of(mappings)
        tables = self._reader.tables(chunk, parts) if parts else []
        every = [*mappings, *self._weights]
        decoded = {mapping.name: decode(mapping, tables, chunk) for mapping in every}
        for array, _ in decoded.values():
            if len(array) != chunk.n_rows:
                raise InvalidDataError(
                    f"{chunk.where} has {spaced(len(array))} rows now, but had "
                    f"{spaced(chunk.n_rows)} when it was opened. The data must stay as they are "
                    "while they are used: open them again with open_rows.",
                    topic="rows-and-files",
                )
        for weight in self._weights:
            weights, faults = decoded.pop(weight.name)
            return decoded, weights, faults or _wrong_weights(weight, weights)
        return decoded, np.ones(chunk.n_rows), []

    def _problem(self, chunk: Chunk, fault: Fault) -> BadValues:
        row = int(fault.rows[0])
        return BadValues(
            column=fault.column,
            kind=fault.kind,
            position=chunk.start + row,
            first=chunk.place(row),
            value=fault.value,
            n_rows=len(fault.rows),
        )

    def _refuse_position(self, position: int) -> Never:
        raise InvalidOptionError(
            f"There is no row {spaced(int(position))}: the source has {spaced(self.n_rows)} rows."
        )


def _sent(
    found: Mapping[int, Sequence[object]], chunk: Chunk, names: Sequence[str]
) -> Sequence[object]:
    del names
    return found[chunk.start]


def _wrong_weights(mapping: ColumnMapping, weights: NDArray[np.float64]) -> list[Fault]:
    faults = [] if np.isfinite(weights).all() else not_finite(mapping, weights)
    negative = np.flatnonzero(weights < 0)
    if negative.size:
        value = f"{weights[negative[0]]:g}"
        faults.append(Fault(next(iter(mapping.fields)), "negative weight", negative, value))
    return faults


# -- columns become arrays -------------------------------------------------------------------------


def decode(
    mapping: ColumnMapping, tables: Sequence[Table], chunk: Chunk
) -> tuple[np.ndarray, list[Fault]]:
    """Make an array of the model from the rows of some tables, one after the other.

    Parameters
    ----------
    mapping : ColumnMapping
    tables : sequence of Table
    chunk : Chunk
        Whose rows these are, for messages.

    Returns
    -------
    array : ndarray
        Contiguous in C order and writeable. Missing values are NaN, or 0; the code of a missing or
        unseen label is -1.
    faults : list of Fault

    Raises
    ------
    InvalidDataError
        If a column has another type than in the first piece.
    """
    faults: list[Fault] = []
    columns = []
    for part, field in mapping.fields.items():
        pieces, offset = [np.empty((0, *field.shape), mapping.column.dtype)], 0
        for table in tables:
            where = chunk.piece_at(min(offset, chunk.n_rows - 1))[0].where or chunk.where
            column = _read(table, field, part, where)
            array, wrong = _codes(column, mapping.labels) if mapping.labels else _numbers(column)
            faults += [Fault(part, kind, rows + offset, value) for kind, rows, value in wrong]
            offset += len(array)
            pieces.append(array)
        columns.append(pieces[1] if len(pieces) == 2 else np.concatenate(pieces))
    dtype = mapping.column.dtype
    array = np.stack(columns, axis=1) if mapping.stacked else columns[0]
    array = array.astype(dtype, copy=False)
    return np.require(array, requirements=["C", "W", "E"]), faults


def not_finite(
    mapping: ColumnMapping, array: np.ndarray, nulls: Iterable[Fault] = ()
) -> list[Fault]:
    """Find NaN and infinite values other than nulls, which are faults already."""
    missing = {fault.column: fault.rows for fault in nulls}
    faults = []
    for j, part in enumerate(mapping.fields):
        values = array[:, j] if mapping.stacked else array
        for kind, wrong in (("NaN", np.isnan(values)), ("infinite", np.isinf(values))):
            found = np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
            rows = np.setdiff1d(found, missing[part]) if part in missing else found
            if rows.size:
                faults.append(Fault(part, kind, rows, kind))
    return faults


def _read(table: Table, expected: Field, part: str, where: str) -> Column:
    if part not in table:
        raise InvalidDataError(
            f"{where} has no column {part!r}, which the first rows have.", topic="rows-and-files"
        )
    found = column_field(table[part])
    if found == expected:
        column = read_column(table[part])
        found = column.field  # Dask may have declared another type
    if found != expected:
        raise InvalidDataError(
            f"{where} has {part!r} as {found}, and the first rows as {expected}: give the column "
            "one type everywhere.",
            topic="rows-and-files",
        )
    return column


def _numbers(column: Column) -> tuple[np.ndarray, list[_Wrong]]:
    data = column.data.astype(column.field.dtype, copy=False)
    if not column.missing.size:
        return data, []
    data = data.copy()
    data[column.missing] = np.nan if data.dtype.kind == "f" else 0
    return data, [("missing value", column.missing, "")]


def _codes(column: Column, labels: tuple[Hashable, ...]) -> tuple[NDArray[np.int64], list[_Wrong]]:
    """Turn values into their positions among the labels."""
    codes, categories = column.data, column.categories
    if categories is None:
        codes, found = pd.factorize(column.data)
        categories = found.tolist()
    positions = {label: code for code, label in enumerate(labels)}
    table = [positions.get(category, -1) for category in categories]
    coded = np.array([*table, -1])[codes]  # -1, a missing value, takes the last
    unseen = np.setdiff1d(np.flatnonzero(coded < 0), column.missing, assume_unique=True)
    coded[column.missing] = -1
    distinct = [repr(categories[code]) for code in pd.unique(codes[unseen])]
    shown = ", ".join([*distinct[:5], *(["..."] if len(distinct) > 5 else [])])
    faults = [("missing value", column.missing, ""), ("unseen label", unseen, shown)]
    return coded, [fault for fault in faults if fault[1].size]
