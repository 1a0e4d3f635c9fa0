"""What a kind of source must be able to do, and the simplest ones: tables in memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from pymc_coresets.rows.sources.columns import Field
from pymc_coresets.rows.sources.layout import Chunk, Piece
from pymc_coresets.rows.sources.tables import Table

__all__ = ["Location", "Opened", "Reader", "SentRows", "open_table"]


class Location(Enum):
    """Where rows lie."""

    IN_FILES = "in files, which every process can read"
    HERE = "in this process, which sends them to others"
    WITH_DASK = "in collections of Dask, which a cluster computes where they lie"


class Reader(ABC):
    """Finds the rows of one kind of source; knows nothing of models, labels and weights.

    Nor of the layout: the chunks hold what is needed to find their rows.

    Attributes
    ----------
    kind : str
        For `repr`: ``"Parquet"``.
    noun : str
        What `Piece.file` names: ``"file"``, ``"partition"``; empty for tables in memory.
    divisible : bool
        Whether a large piece may be divided into several chunks.
    location : Location
        Where the rows lie: what other processes need to read them.
    fields : mapping from str to Field
        What each column holds.
    n_bytes : int or None
        Size of the source, compressed where it is; None if it is not known.
    """

    kind = noun = ""
    divisible = True
    location = Location.HERE
    fields: Mapping[str, Field]
    n_bytes: int | None = None

    @abstractmethod
    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterable[Table]:
        """Read some columns of a chunk: tables that hold its rows, one after the other."""

    def collections(self, chunk: Chunk, names: Sequence[str]) -> list[Any]:
        """Return what becomes these tables, where the rows lie `Location.WITH_DASK`."""
        raise NotImplementedError


type Opened = tuple[Reader, Sequence[Piece]]  # and where its rows lie, in order


class TableReader(Reader):
    """A table that lies in memory, or in memory-mapped files."""

    def __init__(self, table: Table, kind: str) -> None:
        self._table, self.kind, self.fields = table, kind, table.fields
        self.n_bytes = table.n_bytes

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Return views of the table, see `Reader.tables`."""
        for segment in chunk.segments:
            yield self._table.part(names, slice(segment.start, segment.stop))


def open_table(table: Table, kind: str) -> Opened:
    """Return the reader of a table, and where its rows lie."""
    return TableReader(table, kind), [Piece("", "", table.n_rows)]


class SentRows(Reader):
    """The rows of some chunks, which were read where they lie and are decoded elsewhere.

    Parameters
    ----------
    noun : str
        See `Reader`.
    found : mapping from int to sequence of Table
        The rows of each chunk, by the position of the first one.
    """

    def __init__(self, noun: str, found: Mapping[int, Sequence[Table]]) -> None:
        self.noun, self.fields, self._found = noun, {}, found

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Sequence[Table]:
        """Return what was read, see `Reader.tables`."""
        del names
        return self._found[chunk.start]
