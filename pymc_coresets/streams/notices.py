"""What a chunk gives reason to warn of: rows that came before, a posterior that moves away."""

import math
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from pymc_coresets.exceptions import warn_user
from pymc_coresets.rows.collapsing import collapse_rows
from pymc_coresets.rows.values import Rows
from pymc_coresets.streams.growth import Beginning, Reason

_MOST_KNOWN = 10_000  # chunks, of 8 bytes each
_ENOUGH = 10_000  # rows of a chunk, to say how much they vary
_UNLIKELY = 1e-6  # chance that a chunk is said to come again which does not


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


def warn_of_drift(begun: Beginning, number: int) -> None:
    """Warn where an epoch began because the posterior had left the draws."""
    if begun.reason is Reason.DRIFT:
        warn_user(
            f"Chunk {number} moves the posterior {begun.distance:.3g} standard deviations "
            "of the stream's draws away from them: its rows are not like those before. A "
            f"new epoch begins, in which a coreset of {begun.size} rows stands for the "
            f"{begun.n_rows} before it, and the draws know of this chunk. If that is no "
            "exception, begin the stream again with a pilot from all over the data, or let "
            "the model depend on time."
        )
