"""What a kind of source must be able to do, and the simplest one: a table in memory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from pymc_coresets.rows.sources.layout import Piece, Segment
from pymc_coresets.rows.sources.tabular import Field, Table

__all__ = ["Reader", "TableReader"]


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
    """

    kind: str
    noun: str
    divisible: bool

    @property
    def fields(self) -> Mapping[str, Field]:
        """What each column holds."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """What the source stores together, in order."""

    @property
    def n_bytes(self) -> int | None:
        """Size of the source, compressed where it is; None if it is not known."""

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Read some columns: tables, and the rows of each, that make up the segments in order."""


class TableReader:
    """A table that lies in memory, or in memory-mapped files.

    Parameters
    ----------
    table : Table
    kind : str
        For `repr`.
    """

    noun = ""
    divisible = True

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
