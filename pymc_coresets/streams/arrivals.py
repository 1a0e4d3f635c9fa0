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
from pymc_coresets.rows.fingerprints import ChunkNotes, FirstReading
from pymc_coresets.rows.memory import InMemoryRows, collapse_rows
from pymc_coresets.rows.sources.opening import open_rows
from pymc_coresets.rows.sources.readers import Chunk
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows

_WEIGHTS = "weights=..."  # what a column of a mapping is called that holds them
_MOST_KNOWN = 10_000  # chunks, of 8 bytes each
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

    def read(
        self, source: RowSource, *, number: int, start: int
    ) -> Iterator[tuple[ArrivedRows, ChunkNotes]]:
        """Return the rows of a chunk, piece by piece where the source divides it, with notes.

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

    def _read(
        self, rows: StreamedRows, piece: Chunk, number: int
    ) -> tuple[ArrivedRows, ChunkNotes]:
        found, weights, notes = rows.source.examine(piece)
        FirstReading.joined([notes]).require_usable()
        some = rows.rows_of(piece, found, weights)
        if not some.base_weights.all():
            some = some.take(some.base_weights > 0)
        stop = rows.start + piece.start + piece.n_rows
        arrived = ArrivedRows(some, stop, lambda at: f"Chunk {number}, {rows.place(at)}")
        self._codes.require_inside(arrived)
        return arrived, notes


def digest_of_rows(notes: Sequence[ChunkNotes]) -> int:
    """Return a digest of the rows of a chunk, by the fingerprints of their columns.

    Parameters
    ----------
    notes : sequence of ChunkNotes
        Of the pieces that its source divides it into: in other pieces, it has another digest.

    Examples
    --------
    >>> pieces = [open_rows({"y": np.arange(n)}).check().chunks[0] for n in (3, 3, 4)]
    >>> one, same, other = (digest_of_rows([piece]) for piece in pieces)
    >>> one == same, one == other
    (True, False)
    """
    digest = blake2b(digest_size=8)
    for piece in notes:
        digest.update(f"{sorted(piece.prints.items())} {piece.total_weight}".encode())
    return int.from_bytes(digest.digest(), signed=True)


def with_chunk(known: Sequence[int], digest: int, rows: Rows, number: int) -> tuple[int, ...]:
    """Add the digest of a chunk to those of the chunks before it, and warn if it is among them.

    Parameters
    ----------
    known : sequence of int
        Digests of the pilot and of the chunks before it, of which the last ones are kept.
    digest : int
    rows : Rows
        Some rows of the chunk: equal ones by mere chance are no reason to warn.
    number : int
        Of the chunk.
    """
    if digest in known:
        # Rows like these, drawn at random, are again the same with this probability.
        _, counts = collapse_rows(rows.arrays, len(rows))
        log_chance = counts @ np.log(counts / counts.sum()) + math.log(len(known))
        if log_chance < math.log(_UNLIKELY):
            first = number - len(known) + known.index(digest)
            warn_user(
                f"Chunk {number} of the stream has the same rows as "
                f"{f'chunk {first}' if first else 'the pilot'}: they count twice now. If it was "
                "given twice by mistake, go on from a state() of before, without it."
            )
    return (*known, digest)[-_MOST_KNOWN:]
