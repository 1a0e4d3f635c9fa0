"""Rows that come again: samples of the rows that constructions read, looked for among new ones."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.passes import BlockPass
from pymc_coresets.rows.values import Rows

#: Rows of a sample, and new ones among which it is counted how often rows are equal by chance.
_KNOWN, _COUNTED = 20, 2_000
#: Probability of a coincidence below which rows have come again.
_COINCIDENCE = 1e-6
#: An odd number without a pattern in its bits, the golden ratio's.
_FACTOR = 0x9E3779B97F4A7C15
_BLOCK = 2**16


class KnownRows(NamedTuple):
    """Sample of the rows that a construction read, to detect rows that are passed twice.

    Parameters
    ----------
    start, stop : int
        Positions of its first row, and of the first row after it.
    hashes : list of int
        Of the data and case weights of some of its rows.
    """

    start: int
    stop: int
    hashes: list[int]

    @classmethod
    def of(cls, loglik: LogLikelihood, rows: Rows, start: int, stop: int) -> Self:
        """Record twenty of a construction's rows."""
        some = rows.take(_spread(len(rows)))
        return cls(start, stop, _hashes(_order_of(loglik), some).tolist())

    @classmethod
    def among(cls, new: LogLikelihood, start: int) -> Self:
        """Record rows from all parts of the new ones, which begin at `start`."""
        return cls.of(new, new.source.at(_spread(new.n_rows)), start, start + new.n_rows)


def recurring(known: Sequence[KnownRows], new: LogLikelihood) -> list[int]:
    """Return how many rows of each sample are among new rows; 0 if that may be by chance.

    Costs one pass over the new rows.  How often a row has an equal one by chance is counted among
    these themselves.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> def loglik_of(y):
    ...     with pm.Model() as model:
    ...         pm.Normal("y", pm.Normal("mu"), 1.0, observed=y)
    ...     return LogLikelihood(find_observations(model))
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> known = KnownRows.among(loglik_of(x), 0)
    >>> recurring([known], loglik_of(np.r_[np.zeros(3), x])), recurring([known], loglik_of(-x))
    ([20], [0])
    """
    wanted = np.unique(np.concatenate([np.array(one.hashes, np.int64) for one in known]))
    every = max(new.n_rows // _COUNTED, 1)
    begin = partial(partial, _found, _order_of(new), wanted, every)
    counts, sampled = new.source.reduce(BlockPass(_BLOCK, begin, _joined))
    _, equal = np.unique(sampled, return_counts=True)
    chance = (1 + equal[equal > 1].sum()) / (2 + len(sampled))
    is_there = dict(zip(wanted.tolist(), (counts > 0).tolist(), strict=True))
    numbers = [sum(is_there[each] for each in one.hashes) for one in known]
    chances = (bdtrc(n - 1, len(one.hashes), chance) for n, one in zip(numbers, known, strict=True))
    return [n if p < _COINCIDENCE else 0 for n, p in zip(numbers, chances, strict=True)]


type _Found = tuple[NDArray[np.int64], NDArray[np.int64]]


def _found(order: Sequence[int], wanted: NDArray[np.int64], every: int, rows: Rows) -> _Found:
    """Return how often rows with these hashes are in a block, and one in so many of all hashes."""
    hashes = _hashes(order, rows)
    places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    counts = np.bincount(places[wanted[places] == hashes], minlength=len(wanted))
    return counts, hashes[hashes % every == 0]  # with all that are equal to these


def _joined(parts: Iterable[_Found]) -> _Found:
    counts, sampled = zip(*parts, strict=True)
    return np.sum(counts, axis=0), np.concatenate(sampled)


def _order_of(loglik: LogLikelihood) -> list[int]:
    """Return the order of the columns by their names, which is that of no model's graph."""
    names = [row.name for row in loglik.observations.rows]
    return sorted(range(len(names)), key=lambda i: names[i])


def _hashes(order: Sequence[int], rows: Rows) -> NDArray[np.int64]:
    """Return a number of 63 bits for each row: equal ones for equal data and case weights."""
    columns: list[np.ndarray] = [rows.case_weights, *(rows.arrays[i] for i in order)]
    flat = [np.reshape(c, (len(rows), -1)).astype(np.float64) for c in columns]
    bits = (np.concatenate(flat, axis=1) + 0.0).view(np.uint64)  # -0.0 is 0.0
    factors = np.multiply.accumulate(np.full(bits.shape[1], _FACTOR, np.uint64))
    bits = (bits ^ (bits >> np.uint64(32))) * factors  # of simple numbers, the last bits are zero
    mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(_FACTOR)
    return (mixed.sum(axis=1) >> np.uint64(1)).astype(np.int64)


def _spread(n_rows: int) -> NDArray[np.int64]:
    return np.linspace(0, n_rows - 1, min(n_rows, _KNOWN)).astype(np.int64)
