"""A table of rows that is read in chunks: what every kind of source can do."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.rows.first_reading import ChunkScan, SourceScan

__all__ = [
    "Chunk",
    "Column",
    "DividedSource",
    "LackingSource",
    "RowSource",
    "Seed",
    "required_source",
]

type Arrays = dict[str, NDArray[Any]]
type Seed = int | Sequence[int] | np.random.SeedSequence | np.random.Generator


@dataclass(frozen=True)
class Column:
    """What an array of a source looks like, apart from its number of rows.

    Parameters
    ----------
    shape : tuple of int
        Shape of one row; ``()`` for a single number.
    dtype : numpy.dtype
        int64 where labels were turned into codes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive rows that are read together; depends on the layout of the source only.

    Parameters
    ----------
    start : int
        Position of the first row among all rows of the source.
    n_rows : int
        At least 1.
    where : str
        For messages: ``"flights/part-0057.parquet, row group 3"``.
    key : object
        What the source needs to find the rows.
    """

    start: int
    n_rows: int
    where: str
    key: Any = field(default=None, repr=False)


@runtime_checkable
class RowSource(Protocol):
    """A table of rows that is read in chunks, as often as needed; see :func:`open_rows`.

    Several threads may read different chunks at the same time.  A source can be pickled; where the
    data lie in files, the pickle holds their paths and layout, not the data.

    Attributes
    ----------
    columns : mapping from str to Column
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

    @property
    def columns(self) -> Mapping[str, Column]:
        """Shape of a row and dtype of each array, by its name in the model."""

    @property
    def n_rows(self) -> int:
        """Number of rows N."""

    @property
    def chunks(self) -> Sequence[Chunk]:
        """All rows, in order."""

    def __len__(self) -> int: ...

    def read(self, chunk: Chunk, names: Collection[str] | None = None) -> Arrays:
        """Return the rows of a chunk.

        Parameters
        ----------
        chunk : Chunk
            One of `chunks`.
        names : collection of str, optional
            Which arrays to return; all by default.

        Returns
        -------
        dict from str to ndarray of shape (chunk.n_rows, ...)
            Contiguous in C order, with the dtype of the `Column`.  Labels are int64 codes.  A null
            among floating-point numbers is NaN.

        Raises
        ------
        InvalidDataError
            If a label is unseen, a value that is no floating-point number is missing, or the data
            cannot be read; the message names file, row group, row and column.
        """

    def weights(self, chunk: Chunk) -> NDArray[np.float64] | None:
        """Return the base weights of the rows of a chunk, finite and >= 0; None if there are none.

        Raises
        ------
        InvalidDataError
            If a weight is missing, negative or not finite.
        """

    def head(self, n: int) -> Arrays:
        """Return the first `n` rows, or all where there are fewer: data for the template model."""

    def sample(
        self,
        n: int,
        random_seed: Seed | None = None,
    ) -> Arrays:
        """Return `n` rows drawn uniformly without replacement, in the order of their positions."""

    def take(self, positions: NDArray[np.int64]) -> Arrays:
        """Return the rows at the given positions, in the order of `positions`."""

    def locate(self, position: int) -> str:
        """Say where a row lies: ``"flights/part-0057.parquet, row group 3, row 41 207"``.

        Rows are counted from 0, within the last part that is named.
        """

    def examine(self, chunk: Chunk) -> tuple[Arrays, ChunkScan]:
        """Return all arrays of a chunk, and what a scan notes of them.

        Unlike `read`, this raises nothing for values that are missing or unseen (their codes are
        -1): they are listed in the `ChunkScan`.
        """

    def scan(self) -> SourceScan:
        """Read all rows once: ranges, problems and fingerprints.

        Costs one reading of the data.  To spread it over threads, map `examine` over `chunks` and
        join the second values by `SourceScan.joined`.
        """


@runtime_checkable
class DividedSource(RowSource, Protocol):
    """A source of which parts can be sent to other processes, as those of `open_rows`."""

    @property
    def task_rows(self) -> int:
        """Number of rows that are worth a task of their own."""

    def notice_new_files(self) -> None:
        """Warn, once, of files that lie beside those of the source now, but are not among them."""

    def may_begin(self, chunk: Chunk) -> bool:
        """Whether a task may begin with a chunk: not inside of what is read from its start only."""

    def weighted(
        self, chunk: Chunk, names: Collection[str]
    ) -> tuple[Arrays, NDArray[np.float64] | None]:
        """Return some arrays of a chunk and its base weights, in one reading."""

    def portion(self, chunks: Sequence[Chunk], names: Collection[str]) -> RowSource:
        """Return a source of some chunks and arrays, and of the base weights.

        Its pickle holds the paths and the layout that these need; the rows themselves where they
        lie in this process.
        """

    def collections(
        self, chunks: Sequence[Chunk], names: Collection[str]
    ) -> "tuple[LackingSource, list[list[Any]]] | None":
        """Return the same without rows, and collections of Dask of which each chunk is made.

        None where the rows lie elsewhere.
        """


class LackingSource(RowSource, Protocol):
    """A portion of a source that lacks its rows."""

    def with_tables(self, found: Sequence[Sequence[Any]]) -> RowSource:
        """Add the rows: what the collections of each chunk have become."""


def required_source(rows: Any) -> RowSource:  # noqa: ANN401
    """Return what the user gave as ``rows=...``, if it is a source of rows.

    Raises
    ------
    InvalidOptionError
        If it is not.

    Examples
    --------
    >>> required_source({"x": np.arange(4.0)})
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: rows is a dict, but must be what open_rows(...)
    returns. (docs: troubleshooting#arguments)
    """
    if not isinstance(rows, RowSource):
        raise InvalidOptionError(
            f"rows is a {type(rows).__name__}, but must be what open_rows(...) returns."
        )
    return rows
