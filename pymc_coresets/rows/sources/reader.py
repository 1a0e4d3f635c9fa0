"""What a kind of source must be able to do, and the simplest one: a table in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, Self, runtime_checkable

from pymc_coresets.rows.sources.layout import Piece, Segment
from pymc_coresets.rows.sources.tabular import Field, ReadTable, Table

__all__ = ["DaskReader", "Key", "Lies", "Pieces", "Reader", "SentRows", "TableReader"]


class Lies(Enum):
    """Where rows lie."""

    IN_FILES = "in files, which every process can read"
    HERE = "in this process, which sends them to others"
    WITH_DASK = "in collections of Dask, which a cluster computes where they lie"


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
    lies : Lies
        Where the rows lie: what other processes need to read them.
    """

    kind: str
    noun: str
    divisible: bool
    lies: "Lies"

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


@runtime_checkable
class DaskReader(Protocol):
    """A reader of rows that lie `Lies.WITH_DASK`."""

    def collections(self, key: Key, names: Sequence[str]) -> list[Any]:
        """Return some columns of a chunk: collections that become tables, one after the other."""


class TableReader:
    """A table that lies in memory, or in memory-mapped files.

    Parameters
    ----------
    table : Table
    kind : str
        For `repr`.
    """

    noun = ""
    divisible, lies = True, Lies.HERE

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
        return SentRows.of(self, keys, names)


@dataclass(kw_only=True)
class SentRows:
    """Some chunks of a reader that are sent to where they are decoded.

    Parameters
    ----------
    kind, noun : str
    fields : mapping from str to Field
    pieces : mapping from int to Piece
        By their numbers in the reader.
    keys : sequence of tuple of Segment
        Of the chunks.
    found : sequence of sequence of Table
        The rows of each chunk.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.rows.sources.tabular import ArrayTable
    >>> reader = TableReader(ArrayTable({"x": np.arange(9.0)}), "dict")
    >>> sent = SentRows.of(reader, [(Segment(0, 3, 5),)], ["x"])
    >>> [(table, rows)] = sent.tables((Segment(0, 3, 5),), ["x"])
    >>> table.values("x", rows).data
    array([3., 4.])
    """

    kind: str
    noun: str
    fields: Mapping[str, Field]
    pieces: Mapping[int, Piece]
    keys: Sequence[Key]
    found: Sequence[Sequence[Table]] = ()
    n_bytes: None = None
    divisible: bool = True
    lies: Lies = Lies.HERE

    @classmethod
    def of(cls, reader: Reader, keys: Sequence[Key], names: Sequence[str]) -> Self:
        """Read some columns of chunks."""
        found = [[ReadTable.of(*part, names) for part in reader.tables(k, names)] for k in keys]
        return replace(cls.without_rows(reader, keys, names), found=found)

    @classmethod
    def without_rows(cls, reader: Reader, keys: Sequence[Key], names: Sequence[str]) -> Self:
        """Leave out the rows, which a cluster will add as `found`."""
        return cls(
            kind=reader.kind,
            noun=reader.noun,
            fields={name: reader.fields[name] for name in names},
            pieces={s.piece: reader.pieces[s.piece] for key in keys for s in key},
            keys=list(keys),
        )

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Return what was read, see `Reader.tables`."""
        del names
        for table in self.found[self.keys.index(tuple(segments))]:
            yield table, slice(0, table.n_rows)

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> Reader:
        """Return what some chunks hold, see `Reader.portion`."""
        return SentRows.of(self, keys, names)
