"""Chunks as they arrive: checked before anything is added, and told apart from those before."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pymc_coresets.exceptions import CoresetError, InvalidDataError, InvalidOptionError, warn_user
from pymc_coresets.potentials.code_checks import CodeCheck
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.template import Template
from pymc_coresets.rows.fingerprints import FirstReading
from pymc_coresets.rows.memory import InMemoryRows, collapse_rows
from pymc_coresets.rows.sources.opening import open_rows
from pymc_coresets.rows.sources.readers import Chunk
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows

_WEIGHTS = "weights=..."  # what a column of a mapping is called that holds them
_MOST_KNOWN = 10_000  # chunks, of 8 bytes each
_ENOUGH = 10_000  # rows of a chunk, to say how much they vary
_UNLIKELY = 1e-6  # chance that a chunk is said to come again which does not


def rows_given(chunk: Any, weights: ArrayLike | None = None) -> RowSource:  # noqa: ANN401
    """Return a source of the rows that a user gave, with their base weights.

    Raises
    ------
    InvalidOptionError
        If it is nothing that `open_rows` can open, or weights come with a source.
    InvalidDataError
        If the arrays have different lengths.

    Examples
    --------
    >>> rows_given({"y": np.arange(3.0)}, weights=[1, 1, 2]).n_rows
    3
    """
    if weights is None:
        return chunk if isinstance(chunk, RowSource) else open_rows(chunk)
    if not isinstance(chunk, Mapping):
        raise InvalidOptionError(
            "weights=... belong to a mapping from names to arrays. Name the column of the others: "
            "open_rows(..., weight=...)."
        )
    return open_rows({**chunk, _WEIGHTS: np.asarray(weights)}, weight=_WEIGHTS)


class ArrivedRows(InMemoryRows):
    """Rows of a chunk that was passed.

    Parameters
    ----------
    rows : Rows
        At their positions in the stream; each of positive base weight.
    stop : int
        Position of the first row after them.
    place : callable
        Says where the user finds the row at a position.

    Examples
    --------
    >>> arrived = ArrivedRows(Rows(np.array([4, 5]), np.ones(2)), 6, str)
    >>> arrived.part(0, 1).stop, arrived.place(4)
    (5, '4')
    """

    def __init__(self, rows: Rows, stop: int, place: Callable[[int], str]) -> None:
        super().__init__(rows.arrays, rows.base_weights, rows.positions, place=place)
        self.stop = int(stop)

    def part(self, start: int, stop: int) -> Self:
        """Return some consecutive rows."""
        ends = self.stop if stop >= self.n_rows else int(self.all.positions[stop])
        return type(self)(self.take(slice(start, stop)), ends, self._place)


class Arrivals:
    """Reads chunks into rows for one model, and refuses what the model cannot use.

    Parameters
    ----------
    template : LogLikelihood
        Of a model with a template of the rows.
    """

    def __init__(self, template: LogLikelihood) -> None:
        self._template, self._codes = template, CodeCheck(template.observations)

    def read(self, source: RowSource, *, number: int, start: int) -> Iterator[ArrivedRows]:
        """Return the rows of a chunk, one after the other where the source divides it.

        Parameters
        ----------
        source : RowSource
            The chunk.
        number : int
            Of the chunk, for messages.
        start : int
            Position of its first row in the stream.

        Raises
        ------
        InvalidDataError
            If a name is missing, a shape or a type does not fit, values are missing or not finite,
            codes are not in what they index, or weights are negative; with the chunk and the row.
        """
        try:
            self._check_columns(source)
            types = {r.name: r.values.dtype for r in self._template.observations.rows}
            rows = StreamedRows(source, types, start=start)
            for piece in source.chunks:
                yield self._read(rows, piece, number)
        except CoresetError as error:
            raise InvalidDataError(
                f"{error.message} This is chunk {number} of the stream, of which nothing was added."
            ) from error

    def _check_columns(self, source: RowSource) -> None:
        names = [row.name for row in self._template.observations.rows]
        missing = [name for name in names if name not in source.columns]
        if missing:
            raise InvalidDataError(
                f"There is no column {missing[0]!r}, but {', '.join(source.columns)}: each chunk "
                f"needs {', '.join(names)}, as in the pilot."
            )
        Template.of(self._template.observations.model, {n: source.columns[n] for n in names})

    def _read(self, rows: StreamedRows, piece: Chunk, number: int) -> ArrivedRows:
        found, weights, notes = rows.source.examine(piece)
        FirstReading.joined([notes]).require_usable()
        some = rows.rows_of(piece, found, weights)
        if not some.base_weights.all():
            some = some.take(some.base_weights > 0)
        stop = rows.start + piece.start + piece.n_rows
        arrived = ArrivedRows(some, stop, lambda at: f"Chunk {number}, {rows.place(at)}")
        self._codes.require_inside(arrived)
        return arrived


class ChunkDigest:
    """Tells whether the rows of a chunk came before, however they were cut then.

    Examples
    --------
    >>> rows, digest = Rows(np.arange(9), np.ones(9), (np.arange(9.0),)), ChunkDigest()
    >>> digest.add(rows)
    >>> known, again = digest.known([]), ChunkDigest()
    >>> for part in rows.blocks(4):
    ...     again.add(part)
    >>> again.repeats(known)
    0
    """

    def __init__(self) -> None:
        self._columns: list[blake2b] = []
        self._some: list[Rows] = []

    def add(self, rows: Rows) -> None:
        """Add consecutive rows of the chunk."""
        arrays = (rows.base_weights, *rows.arrays)
        self._columns = self._columns or [blake2b(digest_size=8) for _ in arrays]
        if sum(map(len, self._some)) < _ENOUGH:
            self._some.append(rows)
        for column, array in zip(self._columns, arrays, strict=True):
            column.update(np.ascontiguousarray(array))

    def known(self, before: Sequence[int]) -> tuple[int, ...]:
        """Return digests of the last chunks, this one included, in their order."""
        return (*before, self._value)[-_MOST_KNOWN:]

    def repeats(self, known: Sequence[int]) -> int | None:
        """Return which of the known chunks has the same rows, where that is no mere chance."""
        if self._value not in known:
            return None
        # Rows like these, drawn at random, are again the same with this probability.
        some = Rows.joined(self._some)
        _, counts = collapse_rows(some.arrays, len(some))
        log_chance = counts @ np.log(counts / counts.sum()) + math.log(len(known))
        return known.index(self._value) if log_chance < math.log(_UNLIKELY) else None

    def warn_if_known(self, known: Sequence[int], number: int) -> None:
        """Warn where the chunk of a number came before."""
        found = self.repeats(known)
        if found is not None:
            first = number - len(known) + found
            warn_user(
                f"Chunk {number} of the stream has the same rows as "
                f"{f'chunk {first}' if first else 'the pilot'}: they count twice now. If it was "
                "given twice by mistake, go on from a state() of before, without it."
            )

    @property
    def _value(self) -> int:
        digests = b"".join(column.digest() for column in self._columns)
        return int.from_bytes(blake2b(digests, digest_size=8).digest(), signed=True)
