"""Notes of the first reading of all rows: ranges, unusable values, hashes."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pymc_coresets.exceptions import InvalidDataError

_REMEDY = (
    "Before open_rows, remove such rows or fill in their values; add labels that are missing to "
    "labels=."
)


def spaced(number: int) -> str:
    """Write a whole number with commas between thousands.

    Examples
    --------
    >>> spaced(41207)
    '41,207'
    """
    return f"{number:,}"


@dataclass(frozen=True, kw_only=True)
class BadValues:
    """Values of one column that cannot be used.

    Parameters
    ----------
    column : str
        Its name in the source.
    kind : str
        The fault: ``"NaN"``, ``"infinite"``, ``"missing value"``, ``"unseen label"``, ``"negative
        weight"``.
    position : int
        Of the first of these rows, among all rows.
    first : str
        Location of this row.
    value : str
        The value there, as text.
    n_rows : int
        Number of rows with such values.

    Examples
    --------
    >>> print(BadValues(column="wind", kind="NaN", position=7, first="a.parquet, row 7",
    ...                 value="NaN", n_rows=12))
    a.parquet, row 7, column 'wind': NaN; 12 rows in all
    """

    column: str
    kind: str
    position: int
    first: str
    value: str
    n_rows: int

    def __str__(self) -> str:
        return f"{self._found}; {spaced(self.n_rows)} row{'s' * (self.n_rows != 1)} in all"

    @property
    def refusal(self) -> str:
        """The message if only one chunk has been read."""
        return f"{self._found}. The source's check() counts all such rows. {_REMEDY}"

    @property
    def _found(self) -> str:
        what = self.kind if self.value in {"", self.kind} else f"{self.kind} {self.value}"
        return f"{self.first}, column {self.column!r}: {what}"


@dataclass(frozen=True, kw_only=True)
class ChunkNotes:
    """Notes of the first reading of one chunk: at most 1 kB for any number of rows.

    Parameters
    ----------
    start : int
        Position of the chunk's first row.
    n_rows : int
    where : str
        For messages.
    ranges : mapping from str to (int, int)
        Smallest and largest value of each array of whole numbers, without unseen labels.
    problems : tuple of BadValues
    hashes : mapping from str to bytes
        A `array_hash` of each array.
    total_weight : float
        Sum of the case weights.
    """

    start: int
    n_rows: int
    where: str
    ranges: Mapping[str, tuple[int, int]]
    problems: tuple[BadValues, ...]
    hashes: Mapping[str, bytes]
    total_weight: float


@dataclass(frozen=True, kw_only=True)
class FirstReading:
    """Notes of the first reading of all rows.

    Parameters
    ----------
    n_rows : int
        Number of rows N.
    total_weight : float
        Sum of the case weights; N if there are none.
    ranges : mapping from str to (int, int)
        Smallest and largest value of each array of whole numbers, without unseen labels: compare
        codes with the number of groups.
    problems : tuple of BadValues
        Values that cannot be used, one entry for each column and kind, in the order of the rows.
    chunks : mapping from int to ChunkNotes
        Notes of each chunk, by the position of its first row.

    Examples
    --------
    >>> from pymc_coresets import open_rows
    >>> notes = open_rows({"group": np.array([0, 2, 1]), "y": np.array([0.5, 1.5, 0.5])}).check()
    >>> notes.n_rows, notes.ranges, notes.problems
    (3, {'group': (0, 2)}, ())
    """

    n_rows: int
    total_weight: float
    ranges: Mapping[str, tuple[int, int]]
    problems: tuple[BadValues, ...]
    chunks: Mapping[int, ChunkNotes]

    @classmethod
    def joined(cls, parts: Sequence[ChunkNotes]) -> Self:
        """Join the notes of all chunks, in any order."""
        parts = sorted(parts, key=lambda part: part.start)
        ranges: dict[str, tuple[int, int]] = {}
        problems: dict[tuple[str, str], BadValues] = {}
        for part in parts:
            for name, (low, high) in part.ranges.items():
                least, most = ranges.get(name, (low, high))
                ranges[name] = (min(least, low), max(most, high))
            for problem in part.problems:
                first = problems.setdefault((problem.column, problem.kind), problem)
                if first is not problem:
                    n_rows = first.n_rows + problem.n_rows
                    problems[first.column, first.kind] = replace(first, n_rows=n_rows)
        return cls(
            n_rows=sum(part.n_rows for part in parts),
            total_weight=math.fsum(part.total_weight for part in parts),
            ranges=ranges,
            problems=tuple(sorted(problems.values(), key=lambda p: p.position)),
            chunks={part.start: part for part in parts},
        )

    def of(self, starts: Iterable[int]) -> Self:
        """Return the notes of the chunks with these starts, to verify only these."""
        return replace(self, problems=(), chunks={start: self.chunks[start] for start in starts})

    def require_usable(self) -> None:
        """Raise if rows have values that cannot be used.

        Raises
        ------
        InvalidDataError
            If there are `problems`, or the case weights are all 0.

        Examples
        --------
        >>> from pymc_coresets import open_rows
        >>> open_rows({"y": np.array([0.5, np.nan])}).check().require_usable()
        Traceback (most recent call last):
        pymc_coresets.exceptions.InvalidDataError: row 1, column 'y': NaN; 1 row in all.
        Before open_rows, remove such rows or fill in their values; add labels that are missing to
        labels=. (docs: troubleshooting#rows-and-files)
        """
        if self.problems:
            listed = "\n".join(map(str, self.problems[:5]))
            more = len(self.problems) - 5
            rest = f"\nand {more} more such entries" if more > 0 else ""
            raise InvalidDataError(f"{listed}{rest}. {_REMEDY}", topic="rows-and-files")
        if not 0 < self.total_weight < math.inf:
            raise InvalidDataError(
                f"The case weights sum to {self.total_weight:g}: they must be finite and not all "
                "0.",
                topic="rows-and-files",
            )

    def verify(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Raise if rows differ from those of the first reading.

        Parameters
        ----------
        start : int
            Position of the chunk's first row.
        arrays : mapping from str to ndarray
            Values of this reading, for all arrays of the chunk or some of them.

        Raises
        ------
        InvalidDataError
            If a hash differs.

        Examples
        --------
        >>> from pymc_coresets import open_rows
        >>> notes = open_rows({"y": np.array([0.5, 1.5])}).check()
        >>> notes.verify(0, {"y": np.array([0.5, 1.5])})
        >>> notes.verify(0, {"y": np.array([1.5, 0.5])})
        Traceback (most recent call last):
        pymc_coresets.exceptions.InvalidDataError: rows 0 to 1: 'y' is not what it was in the first
        reading. The data must stay as they are while they are used: open them again with open_rows.
        (docs: troubleshooting#rows-and-files)
        """
        first = self.chunks[start]
        for name, array in arrays.items():
            if array_hash(array) != first.hashes[name]:
                raise InvalidDataError(
                    f"{first.where}: {name!r} is not what it was in the first reading. The data "
                    "must stay as they are while they are used: open them again with open_rows.",
                    topic="rows-and-files",
                )


def array_hash(array: np.ndarray) -> bytes:
    """Return an 8-byte hash of data.

    One pass over the data, whose 8-byte words are summed in 1021 lanes, modulo 2**64: several times
    as fast as a digest of all bytes.  The hash changes with the values, the order of the
    rows, the dtype or the shape.  It detects accidental changes only: swapping two words at a
    distance of a multiple of 1021 is not detected.

    Parameters
    ----------
    array : ndarray
        Contiguous in C order.

    Examples
    --------
    >>> array_hash(np.arange(3)) == array_hash(np.array([0, 2, 1]))
    False
    """
    octets = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    n_lanes = 1021  # a prime: rows at usual distances from each other fall into different lanes
    n_summed = octets.size // (8 * n_lanes) * 8 * n_lanes
    sums = octets[:n_summed].view(np.uint64).reshape(-1, n_lanes).sum(axis=0)
    digest = hashlib.blake2b(f"{array.shape}{array.dtype.str}".encode(), digest_size=8)
    digest.update(sums.tobytes())
    digest.update(octets[n_summed:].tobytes())
    return digest.digest()


def all_finite(array: np.ndarray) -> bool:
    """Whether no number is NaN or infinite.

    Examples
    --------
    >>> all_finite(np.array([0.5, np.inf])), all_finite(np.array([1, 2]))
    (False, True)
    """
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        is_sum_finite = np.isfinite(array.sum())
    return bool(is_sum_finite or np.isfinite(array).all())  # the sum may overflow
