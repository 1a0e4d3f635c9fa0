"""What a kind of source must be able to do, and the simplest one: a table in memory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from pymc_coresets.rows.sources.layout import Piece, Segment
from pymc_coresets.rows.sources.tabular import Field, ReadTable, Table

__all__ = ["Key", "Pieces", "Reader", "SentRows", "TableReader"]


type Key = tuple[Segment, ...]  # of a chunk
type Pieces = Sequence[Piece] | Mapping[int, Piece]


class Reader(Protocol):
    """Finds the rows of one kind of source; knows nothing of models, labels and weights.

    Attributes
    ----------
    kind : str
        For `repr`: ``"Parquet"``.
    noun : str
        What `Piece.file` names: ``"file"``, ``"partition"``; empty for tables in memory.
    divisible : bool
        Whether a large piece may be divided into several chunks.
    travels : bool
        Whether the rows must travel to other processes, which cannot read them where they lie.
    """

    kind: str
    noun: str
    divisible: bool
    travels: bool

    @property
    def fields(self) -> Mapping[str, Field]:
        """What each column holds."""

    @property
    def pieces(self) -> Pieces:
        """What the source stores together, in order; a portion has some of them, by number."""

    @property
    def n_bytes(self) -> int | None:
        """Size of the source, compressed where it is; None if it is not known."""

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Read some columns: tables, and the rows of each, that make up the segments in order."""

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> "Reader":
        """Return a reader of some columns of the chunks with these keys, to be sent elsewhere."""


class TableReader:
    """A table that lies in memory, or in memory-mapped files.

    Parameters
    ----------
    table : Table
    kind : str
        For `repr`.
    """

    noun = ""
    divisible = travels = True

    def __init__(self, table: Table, kind: str) -> None:
        self.table, self.kind = table, kind
        self.fields: Mapping[str, Field] = table.fields
        self.pieces = (Piece("", "", table.n_rows),)
        self.n_bytes: int | None = table.n_bytes

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Return the table itself, see `Reader.tables`."""
        del names  # those of a table in memory cost nothing
        for segment in segments:
            yield self.table, slice(segment.start, segment.stop)

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> Reader:
        """Return what some chunks hold, see `Reader.portion`."""
        return SentRows(self, keys, names)


class SentRows:
    """Some chunks of a reader that were read already, and are sent to where they are decoded.

    Parameters
    ----------
    reader : Reader
    keys : sequence of tuple of Segment
        Of the chunks.
    names : sequence of str
        Of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.rows.sources.tabular import ArrayTable
    >>> reader = TableReader(ArrayTable({"x": np.arange(9.0)}), "dict")
    >>> sent = SentRows(reader, [(Segment(0, 3, 5),)], ["x"])
    >>> [(table, rows)] = sent.tables((Segment(0, 3, 5),), ["x"])
    >>> table.values("x", rows).data
    array([3., 4.])
    """

    n_bytes = None
    divisible = travels = True

    def __init__(self, reader: Reader, keys: Sequence[Key], names: Sequence[str]) -> None:
        self.kind, self.noun = reader.kind, reader.noun
        self.fields = {name: reader.fields[name] for name in names}
        self.pieces = {s.piece: reader.pieces[s.piece] for key in keys for s in key}
        self._tables = {
            key: [ReadTable.of(*found, names) for found in reader.tables(key, names)]
            for key in keys
        }

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Return what was read, see `Reader.tables`."""
        del names
        for table in self._tables[tuple(segments)]:
            yield table, slice(0, table.n_rows)

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> Reader:
        """Return what some chunks hold, see `Reader.portion`."""
        return SentRows(self, keys, names)
