"""The one source of rows: a reader of some kind, and how its columns become arrays."""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Never, cast

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, warn_user
from pymc_coresets.options import generator, whole_number
from pymc_coresets.rows.chunks import Chunk, Column, Seed
from pymc_coresets.rows.first_reading import (
    BadValues,
    ChunkScan,
    SourceScan,
    extremes,
    fingerprint,
    spaced,
)
from pymc_coresets.rows.passes import TASK_ROWS
from pymc_coresets.rows.sources.decoding import Fault, Recipe, decode, not_finite
from pymc_coresets.rows.sources.kinds.conversion import table_of
from pymc_coresets.rows.sources.kinds.named_files import NamedFiles
from pymc_coresets.rows.sources.layout import Piece, chunks_of, segment_at
from pymc_coresets.rows.sources.reader import DaskReader, Key, Lies, Reader, SentRows

__all__ = ["RowTable"]

type Arrays = dict[str, NDArray[Any]]

_UNITS = ("B", "kB", "MB", "GB", "TB")


class RowTable:
    """Rows of any kind of source, see `RowSource`.

    Parameters
    ----------
    reader : Reader
    recipes : mapping from str to Recipe
    weight : Recipe, optional
    chunks : sequence of Chunk, optional
        The rows of the reader; by default all, as `chunks_of` divides them.
    files : NamedFiles, optional
        Those of the reader, where others may be added.

    Raises
    ------
    InvalidDataError
        If there are no rows.
    """

    def __init__(
        self,
        reader: Reader,
        recipes: Mapping[str, Recipe],
        weight: Recipe | None = None,
        chunks: Sequence[Chunk] | None = None,
        files: NamedFiles | None = None,
    ) -> None:
        self._reader, self._recipes, self._weight = reader, dict(recipes), weight
        self.columns: Mapping[str, Column] = {n: r.column for n, r in self._recipes.items()}
        if chunks is None:
            row_bytes = sum(math.prod(c.shape) * c.dtype.itemsize for c in self.columns.values())
            pieces = list(_pieces(reader))
            chunks = chunks_of(pieces, divide=reader.divisible, row_bytes=row_bytes)
        self.chunks: Sequence[Chunk] = chunks
        if not self.chunks:
            raise InvalidDataError("The source has no rows.")
        self._files = files
        self._starts = [chunk.start for chunk in self.chunks]
        self.n_rows = self.chunks[-1].start + self.chunks[-1].n_rows

    def __len__(self) -> int:
        return self.n_rows

    def read(self, chunk: Chunk, names: Collection[str] | None = None) -> Arrays:
        """Return the rows of a chunk, see `RowSource.read`."""
        return self._read(chunk, list(self._names(names)), None)[0]

    def weights(self, chunk: Chunk) -> NDArray[np.float64] | None:
        """Return base weights, see `RowSource.weights`."""
        return self._read(chunk, [], self._weight)[1]

    def weighted(
        self, chunk: Chunk, names: Collection[str]
    ) -> tuple[Arrays, NDArray[np.float64] | None]:
        """Return rows and base weights, see `DividedSource.weighted`."""
        return self._read(chunk, list(self._names(names)), self._weight)

    def _read(
        self, chunk: Chunk, names: Sequence[str], weight: Recipe | None
    ) -> tuple[Arrays, NDArray[np.float64] | None]:
        recipes = [self._recipes[name] for name in names]
        if not recipes and weight is None:
            return {}, None
        decoded = self._decoded(chunk, [*recipes, *([] if weight is None else [weight])])
        wrong = [
            fault
            for recipe in recipes
            for fault in decoded[recipe.name][1]
            if fault.kind != "missing value" or recipe.column.dtype.kind != "f"
        ]
        weights = None
        if weight is not None:
            weights, faults = decoded.pop(weight.name)
            wrong += faults + self._wrong_weights(weights)
        for fault in wrong:
            raise InvalidDataError(self._problem(chunk, fault).refusal)
        return {name: array for name, (array, _) in decoded.items()}, weights

    def head(self, n: int) -> Arrays:
        """Return the first rows, see `RowSource.head`."""
        n = whole_number("n", n, least=1)
        return self.take(np.arange(min(n, self.n_rows)))

    def sample(
        self,
        n: int,
        random_seed: Seed | None = None,
    ) -> Arrays:
        """Return rows at random, see `RowSource.sample`."""
        n = min(whole_number("n", n, least=1), self.n_rows)
        rng = generator(random_seed)
        return self.take(_distinct_positions(n, self.n_rows, rng))

    def take(self, positions: NDArray[np.int64]) -> Arrays:
        """Return the rows at some positions, see `RowSource.take`."""
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

    def locate(self, position: int) -> str:
        """Say where a row lies, see `RowSource.locate`."""
        if not 0 <= position < self.n_rows:
            self._refuse_position(position)
        chunk = self.chunks[bisect_right(self._starts, position) - 1]
        return self._place(chunk, position - chunk.start)

    def examine(self, chunk: Chunk) -> tuple[Arrays, ChunkScan]:
        """Return the arrays of a chunk and the notes on them, see `RowSource.examine`."""
        recipes = list(self._recipes.values())
        weighted = [] if self._weight is None else [self._weight]
        decoded = self._decoded(chunk, recipes + weighted)
        faults, total_weight = [], float(chunk.n_rows)
        if self._weight is not None:
            weights, found = decoded.pop(self._weight.name)
            faults += found or self._wrong_weights(weights)
            with np.errstate(over="ignore", invalid="ignore"):
                total_weight = float(weights.sum())
        arrays: Arrays = {}
        ranges, prints = {}, {}
        for recipe in recipes:
            array, found = decoded[recipe.name]
            arrays[recipe.name] = array
            prints[recipe.name], finite = fingerprint(array)
            faults += found if finite else _without_nulls(not_finite(recipe, array), found)
            seen = array[array >= 0] if recipe.labels and found else array
            if (range_ := extremes(seen)) is not None:
                ranges[recipe.name] = range_
        return arrays, ChunkScan(
            start=chunk.start, n_rows=chunk.n_rows, where=chunk.where, ranges=ranges,
            problems=tuple(self._problem(chunk, fault) for fault in faults),
            prints=prints, total_weight=total_weight,
        )  # fmt: skip

    def scan(self) -> SourceScan:
        """Read all rows once, see `RowSource.scan`."""
        self.notice_new_files()
        dtypes = {name: column.dtype for name, column in self.columns.items()}
        return SourceScan.joined([self.examine(chunk)[1] for chunk in self.chunks], dtypes)

    def notice_new_files(self) -> None:
        """See `DividedSource.notice_new_files`."""
        added = self._files.added() if self._files else []
        if added:
            more = f" and {spaced(len(added) - 1)} more" if len(added) > 1 else ""
            warn_user(
                f"{added[0]}{more} came after the files had been opened: what came later is not "
                "among the rows. Open them again with open_rows, or by a list of those you mean."
            )

    @property
    def task_rows(self) -> int:
        """See `DividedSource.task_rows`: rows that are not in files are sent chunk by chunk."""
        return TASK_ROWS if self._reader.lies is Lies.IN_FILES else 1

    def may_begin(self, chunk: Chunk) -> bool:
        """See `DividedSource.may_begin`: a row group is decoded from its start."""
        return self._reader.lies is not Lies.IN_FILES or chunk.key[0].part == 0

    def portion(self, chunks: Sequence[Chunk], names: Collection[str]) -> "RowTable":
        """Return a source of some chunks and arrays, see `DividedSource.portion`."""
        keys, parts = self._sent(chunks, names)
        return self._portion(self._reader.portion(keys, parts), chunks, names)

    def collections(
        self, chunks: Sequence[Chunk], names: Collection[str]
    ) -> tuple["RowTable", list[list[Any]]] | None:
        """Return a portion that lacks its rows, see `DividedSource.collections`."""
        if not isinstance(self._reader, DaskReader) or self._reader.lies is not Lies.WITH_DASK:
            return None
        keys, parts = self._sent(chunks, names)
        reader = SentRows.without_rows(self._reader, keys, parts)
        found = [self._reader.collections(key, parts) for key in keys]
        return self._portion(reader, chunks, names), found

    def with_tables(self, found: Sequence[Sequence[Any]]) -> "RowTable":
        """Add the rows that a portion lacks: what the collections have become."""
        tables = [[table for value in some if (table := table_of(value))] for some in found]
        reader = replace(cast(SentRows, self._reader), found=tables)
        return RowTable(reader, self._recipes, self._weight, self.chunks)

    def _sent(self, chunks: Sequence[Chunk], names: Collection[str]) -> tuple[list[Key], list[str]]:
        """Return the keys of chunks and the columns that arrays need; no keys where none does."""
        used = [self._recipes[name] for name in self._names(names)]
        used += [] if self._weight is None else [self._weight]
        parts = list(dict.fromkeys(part for recipe in used for part in recipe.parts))
        return [chunk.key for chunk in chunks] if parts else [], parts

    def _portion(
        self, reader: Reader, chunks: Sequence[Chunk], names: Collection[str]
    ) -> "RowTable":
        recipes = {name: self._recipes[name] for name in names}
        return RowTable(reader, recipes, self._weight, chunks)

    def __repr__(self) -> str:
        files = {piece.file for piece in _pieces(self._reader)} - {""}
        noun = self._reader.noun
        counted = f"{spaced(len(files))} {noun}{'s' * (len(files) != 1)}" if files else ""
        size = self._reader.n_bytes
        bytes_ = "" if size is None else f", {_size(size)}"
        columns = ", ".join(f"{name} {_described(c)}" for name, c in self.columns.items())
        weight = f", weighted by {self._weight.parts[0]}" if self._weight else ""
        return (
            f"<RowSource: {', '.join(filter(None, [self._reader.kind, counted]))}, "
            f"{spaced(self.n_rows)} rows{bytes_}{weight}; "
            f"{columns}>"
        )

    def _names(self, names: Collection[str] | None) -> Iterator[str]:
        for name in self._recipes if names is None else names:
            if name not in self._recipes:
                raise InvalidOptionError(
                    f"The rows have no array {name!r}. They have {', '.join(self._recipes)}."
                )
            yield name

    def _decoded(
        self, chunk: Chunk, recipes: Sequence[Recipe]
    ) -> dict[str, tuple[NDArray[Any], list[Fault]]]:
        parts = list(dict.fromkeys(part for recipe in recipes for part in recipe.parts))
        tables = list(self._reader.tables(chunk.key, parts))
        where = partial(self._piece, chunk)
        decoded = {recipe.name: decode(recipe, tables, where) for recipe in recipes}
        for array, _ in decoded.values():
            if len(array) != chunk.n_rows:
                raise InvalidDataError(
                    f"{chunk.where} has {spaced(len(array))} rows now, but had "
                    f"{spaced(chunk.n_rows)} when it was opened. The data must stay as they are "
                    "while they are used: open them again with open_rows."
                )
        return decoded

    def _wrong_weights(self, array: NDArray[np.float64]) -> list[Fault]:
        if self._weight is None:
            return []
        negative = np.flatnonzero(array < 0)
        faults = [] if np.isfinite(array).all() else not_finite(self._weight, array)
        if negative.size:
            value = f"{array[negative[0]]:g}"
            faults.append(Fault(self._weight.parts[0], "negative weight", negative, value))
        return faults

    def _piece(self, chunk: Chunk, row: int) -> str:
        piece, _ = segment_at(chunk.key, min(row, chunk.n_rows - 1))
        return self._reader.pieces[piece].where or chunk.where

    def _place(self, chunk: Chunk, row: int) -> str:
        piece, number = segment_at(chunk.key, row)
        where, number = self._reader.pieces[piece].where, number + self._reader.pieces[piece].origin
        return f"{where}, row {spaced(number)}" if where else f"row {spaced(number)}"

    def _problem(self, chunk: Chunk, fault: Fault) -> BadValues:
        pieces = {segment_at(chunk.key, int(row))[0] for row in _edges(chunk, fault.rows)}
        row = int(fault.rows[0])
        return BadValues(
            column=fault.column,
            kind=fault.kind,
            position=chunk.start + row,
            first=self._place(chunk, row),
            value=fault.value,
            n_rows=len(fault.rows),
            files=frozenset(self._reader.pieces[piece].file for piece in pieces) - {""},
            noun=self._reader.noun,
        )

    def _refuse_position(self, position: int) -> Never:
        raise InvalidOptionError(
            f"There is no row {spaced(int(position))}: the source has {spaced(self.n_rows)} rows."
        )


def _pieces(reader: Reader) -> Iterable[Piece]:
    return reader.pieces.values() if isinstance(reader.pieces, Mapping) else reader.pieces


def _distinct_positions(n: int, n_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw sorted positions without replacement: the first n distinct ones of a sequence.

    O(n) memory: `Generator.choice` may hold all positions.
    """
    if 2 * n > n_rows:
        others = _distinct_positions(n_rows - n, n_rows, rng)
        return np.setdiff1d(np.arange(n_rows), others, assume_unique=True)
    drawn, distinct, first = [], np.empty(0, np.int64), np.empty(0, np.int64)
    while len(distinct) < n:
        drawn.append(rng.integers(n_rows, size=n))
        distinct, first = np.unique(np.concatenate(drawn), return_index=True)
    return np.sort(distinct[np.argpartition(first, n - 1)[:n]]) if n else distinct


def _edges(chunk: Chunk, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one of the rows for each segment that holds any of them."""
    stops = np.cumsum([segment.stop - segment.start for segment in chunk.key])
    _, first = np.unique(np.searchsorted(stops, rows, side="right"), return_index=True)
    return rows[first]


def _without_nulls(faults: list[Fault], nulls: list[Fault]) -> list[Fault]:
    """Do not list as NaN what is missing: `nulls`, which come first in the result."""
    kept = list(nulls)
    missing = {fault.column: fault.rows for fault in nulls if fault.kind == "missing value"}
    for fault in faults:
        rows = np.setdiff1d(
            fault.rows, missing.get(fault.column, []) if fault.kind == "NaN" else []
        )
        if rows.size:
            kept.append(Fault(fault.column, fault.kind, rows.astype(np.int64), fault.value))
    return kept


def _described(column: Column) -> str:
    shape = "".join(f"[{size}]" for size in column.shape)
    return f"{column.dtype}{shape}"


def _size(n_bytes: float) -> str:
    for unit in _UNITS[:-1]:
        if n_bytes < 999.5:  # what is above would be rounded to 1e+03
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} {_UNITS[-1]}"
