"""Interfaces of sources of rows, passes over them, and their results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import CoresetError
from pymc_coresets.numerics import ROUNDING
from pymc_coresets.rows.keyed import RowSample, Smallest
from pymc_coresets.rows.proportional import Priorities, random_points
from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, kw_only=True, eq=False)
class PassSums:
    """Sums of the log-likelihoods of all rows, or of a block, at S draws, and candidates.

    Parameters
    ----------
    total : ndarray of shape (n_draws,)
        ``sum_n u_n (f_n(theta_s) - c_n)`` over the rows, in nats, where c_n is the mean of f_n
        over the draws: centred sums keep their precision for millions of rows.
    norm_total : float
        ``sum_n u_n |V_n|``, where ``|V_n|`` is the standard deviation of f_n over the draws; 0
        where no candidates are wanted.
    candidates : Rows
        Rows to choose from, see `Priorities`.
    keys : ndarray of shape (len(candidates),)
        Their keys, the smallest ones.
    loglik : ndarray of shape (len(candidates), n_draws), optional
        Their log-likelihoods, in nats, where the pass has kept them: see `Priorities`.

    Examples
    --------
    >>> values = np.array([[1.0, 4.0], [3.0, 4.0]])
    >>> wanted = Priorities.of_all(2, n_rows=2)
    >>> sums = PassSums.of(values, Rows(np.arange(2), np.ones(2)), wanted)
    >>> sums.total, sums.norm_total
    (array([-1.,  1.]), 1.0)
    """

    total: NDArray[np.float64]
    norm_total: float
    candidates: Rows
    keys: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    loglik: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, values: NDArray[np.float64], rows: Rows, wanted: Priorities) -> Self:
        """Reduce log-likelihoods (n_draws, n_rows) of a block of rows, which are overwritten."""
        means = _centre_in_place(values)
        norms = _deviations(values, means) if wanted.n_candidates else np.zeros(len(rows))
        found = cls.of_sums(values @ rows.case_weights, norms, rows, wanted)
        if not (wanted.keeps_potentials and len(found.candidates)):
            return found
        kept = rows.where(found.candidates.positions)
        # Those that vary little keep their means, by which rounding errors are known.
        means = np.where(np.isfinite(means[kept]), means[kept], 0.0)
        return replace(found, loglik=(np.take(values, kept, axis=1) + means).T)

    @classmethod
    def of_sums(
        cls,
        total: NDArray[np.float64],
        norms: NDArray[np.float64],
        rows: Rows,
        wanted: Priorities,
    ) -> Self:
        """Select candidates of a block whose centred log-likelihoods have been added up.

        Parameters
        ----------
        total : ndarray of shape (n_draws,)
        norms : ndarray of shape (len(rows),)
            Standard deviations of the log-likelihoods over the draws; zeros select no candidates.
        rows : Rows
        wanted : Priorities
        """
        keys = wanted.keys(rows, norms)
        kept = np.flatnonzero(np.isfinite(keys))
        return cls(
            total=total,
            norm_total=float(rows.case_weights @ norms),
            candidates=rows.take(kept),
            keys=keys[kept],
        )

    def loglik_or(
        self, evaluate: Callable[[Rows], NDArray[np.floating[Any]]]
    ) -> NDArray[np.floating[Any]]:
        """Return the log-likelihoods of the candidates, evaluated if the pass did not keep them."""
        return evaluate(self.candidates) if self.loglik is None else self.loglik

    @classmethod
    def joined(cls, parts: Iterable[Self], wanted: Priorities) -> Self:
        """Add up the parts in the order of the rows; keep the smallest keys.

        Memory: that of the candidates, for any number of parts.
        """
        total, norm_total, kept = np.zeros(1), 0.0, Smallest(wanted.n_candidates)
        evaluated = []
        for part in parts:
            total = total + part.total
            norm_total += part.norm_total
            kept.add(part.candidates, part.keys)
            if part.loglik is not None:
                evaluated.append((part.candidates.positions, part.loglik))
        candidates, keys = kept.cut()
        loglik = _chosen(evaluated, candidates.positions) if evaluated else None
        return cls(
            total=total,
            norm_total=norm_total,
            candidates=candidates,
            keys=keys,
            loglik=loglik,
        )


def _centre_in_place(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtract each row's mean over the draws (the first axis), and return the means.

    A row that is not finite at some draw is not centred, so that only the sum of that draw is lost.
    """
    with np.errstate(invalid="ignore"):  # infinite log-likelihoods
        means: NDArray[np.float64] = values.mean(axis=0)
    values -= np.where(np.isfinite(means), means, 0.0)
    return means


def _deviations(centred: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviations over the draws (the first axis); 0 if they are rounding errors."""
    with np.errstate(invalid="ignore"):
        deviations = np.sqrt(np.einsum("sn,sn->n", centred, centred) / len(centred))
    return np.where(deviations > ROUNDING * np.abs(means), deviations, 0.0)


def _chosen(
    evaluated: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
    positions: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return log-likelihoods of rows at some of the positions where they are known, in order."""
    known = np.concatenate([own for own, _ in evaluated])
    # As everywhere, a draw is contiguous.
    draws_first = np.concatenate([loglik.T for _, loglik in evaluated], axis=1)
    if len(known) > len(positions):
        draws_first = np.take(draws_first, np.searchsorted(known, positions), axis=1)
    return draws_first.T


def added_up[T](parts: Iterable[T]) -> T:
    """Add up results, in their order."""
    return reduce(add, parts)


@dataclass(frozen=True, eq=False)
class BlockPass[T]:
    """A computation over all rows: pure functions that can be sent to other processes.

    Parameters
    ----------
    size : int
        Number of rows of a block.
    begin : callable
        Prepares the data that blocks share, and returns the function of a block.
    joined : callable, optional
        Joins results of consecutive blocks, or of groups of them, in their order; by default it
        adds them up.

    Examples
    --------
    >>> work = BlockPass.of(2, len)
    >>> work.joined(map(work.begin(), Rows(np.arange(3), np.ones(3)).blocks(work.size)))
    3
    """

    size: int
    begin: Callable[[], Callable[[Rows], T]]
    joined: Callable[[Iterable[T]], T] = added_up

    @classmethod
    def of(
        cls,
        size: int,
        of_block: Callable[[Rows], T],
        joined: Callable[[Iterable[T]], T] = added_up,
    ) -> "BlockPass[T]":
        """Return the pass of a function of a block that needs nothing prepared."""
        return cls(size, partial(_itself, of_block), joined)


def _itself[T](value: T) -> T:
    return value


class RowBlocks(Protocol):
    """Access to the rows of some data: the interface that evaluation needs.

    Samples with replacement: ``K ~ Multinomial(size, u / sum(u))`` and ``w_n = K_n sum(u) / size``,
    so that ``E[w_n] = u_n`` and ``Cov[w_n, w_m] = (sum(u) u_n [n = m] - u_n u_m) / size``.
    Distinct ones: successive sampling, by the smallest `waiting_times`, with `weights_of_first`.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows N."""

    @property
    def total_weight(self) -> float:
        """Sum of the case weights."""

    def blocks(self, size: int) -> Iterator[Rows]:
        """Read all rows, in blocks of `size`; only the last one may be smaller."""

    def reduce[T](self, work: BlockPass[T]) -> T:
        """Read all rows, and add up the results of their blocks."""

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows that have the given positions in the user's data."""

    def place(self, position: int) -> str:
        """Return the location of a row in the user's data, for messages."""

    def earliest(self, size: int, key: int) -> RowSample:
        """Return the first rows in the random order of a key, weighted."""

    def hit(self, points: NDArray[np.float64]) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows into whose shares of the total weight points fall, with their numbers."""

    def subsample(self, size: int, *, key: int, distinct: bool = False) -> RowSample:
        """Sample rows by their case weights: see `PointwiseLogLikelihood.subsample`."""
        if distinct:
            return self.earliest(size, key)
        total = self.total_weight
        rows, counts = self.hit(random_points(size, total, key))
        return RowSample(rows=rows, weights=counts.astype(float) * (total / size))


class PointwiseLogLikelihood[D](Protocol):
    """The log-likelihoods f_n(theta) of the rows of some data at any draws.

    The implementation defines the type D of the draws: a matrix of parameters, or named arrays.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows N to choose from."""

    @property
    def n_terms(self) -> int:
        """Number of terms evaluated at a draw: the rows; for units, those at all nodes."""

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D of the model."""

    def subsample(self, size: int, *, key: int, distinct: bool = False) -> RowSample:
        """Sample `size` rows in proportion to their case weights.

        With replacement, where equal rows add up their weights; or `distinct` rows, of which those
        of a smaller sample with the same key are a part.
        """

    def sums(
        self, draws: D, *, n_candidates: int = 0, scale: float = 0.0, key: int = 0
    ) -> PassSums:
        """Evaluate all rows at the draws: one pass over the data.  See `Priorities.of_all`."""

    def loglik(self, draws: D, rows: Rows) -> NDArray[np.floating]:
        """Return f_n(theta_s) of some rows, of shape (n_rows, n_draws), in nats."""


@dataclass(frozen=True)
class AbsentRows:
    """Rows that were not passed again: their number is known, but they cannot be read.

    Parameters
    ----------
    n_rows : int
    total_weight : float
    why : str
        Message of the error raised on access.

    Examples
    --------
    >>> AbsentRows(1_000, 1_000.0).n_rows
    1000
    """

    n_rows: int
    total_weight: float
    why: str = (
        "This coreset was read without the rows that it represents: it can be sampled, but this "
        "needs them. Read it again with Coreset.from_netcdf(path, model, rows=...), or with "
        "coreset_of(idata, model, rows=...)."
    )

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise CoresetError(self.why, topic="coresets-in-files")

    blocks = reduce = subsample = at = earliest = hit = _refuse

    def place(self, position: int) -> str:
        """Return the location of a row in the user's data, for messages."""
        return f"row {position}"
