"""The rows of all groups, chosen in turn at the same draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.grouped import GroupedRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.group_selection import GroupTerms, rows_of_group, select_rows
from pymc_coresets.solving.joint import joint_objective, joint_weights
from pymc_coresets.solving.problem import Vector, tangent_vectors
from pymc_coresets.solving.shared_basis import SharedBasis, chance_functions

__all__ = ["GroupChoice", "choose_by_group"]

type Places = NDArray[np.int64]
type LogLik = Callable[[Rows], NDArray[np.floating[Any]]]

_ENTRIES = 2**22  # of the potentials of some groups: 32 MB
_FEW = 2  # rows of a group that are kept anyway
_CANDIDATES = 400  # of a group
_LEAST_SIZE = 15  # rows that a group may take


@dataclass(frozen=True, eq=False)
class GroupChoice:
    """Weighted rows, and how well they match at the draws that chose them.

    Parameters
    ----------
    chosen : ndarray of int64
        Where the rows stand.
    weights : ndarray of float64
        Positive.
    objective : float
        The variance of log r over these draws, in nats, if the groups are independent given what
        they share.
    """

    chosen: Places
    weights: Vector
    objective: float


def choose_by_group(
    data: GroupedRows,
    loglik: LogLik,
    shared: Vector,
    noise: Vector,
    *,
    tolerance: float,
    rng: np.random.Generator,
) -> GroupChoice:
    """Choose weighted rows of all groups, such that log r varies little over the draws.

    Parameters
    ----------
    data : GroupedRows
    loglik : callable
        From rows to their potentials at the draws, (n_rows, n_draws), in nats.
    shared : ndarray of shape (n_draws, p)
        Shared variables, whitened.
    noise : ndarray of shape (n_draws, G, q)
        What is random in each group's variables given the shared ones, standardised; each draw
        has a partner with the same shared variables and the opposite noise.
    tolerance : float
        Nats within each group that are enough.
    rng : numpy.random.Generator
        The order of the groups, and candidates of the large ones.

    Raises
    ------
    InvalidDataError
        If a potential is not finite at a draw.
    """
    most = max(_LEAST_SIZE, 2 * rows_of_group(noise.shape[2], shared.shape[1]))
    run = _Run(data, loglik, shared, noise, tolerance, most)
    key = int(rng.integers(2**63))
    for group, values in run.evaluated(rng.permutation(data.n_groups)):
        if values is None:
            run.add_large(group, np.random.default_rng([key, group]))
        else:
            run.add(group, data.of(group), values, None)
    return run.choice()


class _Run:
    """The rows chosen so far, and what they lack of the shared part."""

    def __init__(
        self,
        data: GroupedRows,
        loglik: LogLik,
        shared: Vector,
        noise: Vector,
        tolerance: float,
        most: int,
    ) -> None:
        self._data, self._loglik, self._shared, self._noise = data, loglik, shared, noise
        self._basis, self._tolerance, self._most = SharedBasis.of(shared), tolerance, most
        self._lacking = np.zeros(self._basis.functions.shape[1])
        self._whole: list[Places] = []
        self._places: list[Places] = []
        self._terms: list[GroupTerms] = []

    def evaluated(self, order: NDArray[np.int64]) -> Iterator[tuple[int, Vector | None]]:
        """Yield groups with their potentials, many at a time; None for the large ones."""
        data, most = self._data, max(_ENTRIES // len(self._noise), 1)
        waiting: list[int] = []
        n_waiting = 0
        for group in map(int, order):
            n_rows = len(data.of(group))
            if n_rows <= _FEW:
                self._whole.append(data.of(group))
            elif n_rows > _CANDIDATES:
                yield group, None
            else:
                if waiting and n_waiting + n_rows > most:
                    yield from self._of(waiting)
                    waiting, n_waiting = [], 0
                waiting.append(group)
                n_waiting += n_rows
        yield from self._of(waiting)

    def _of(self, groups: list[int]) -> Iterator[tuple[int, Vector]]:
        if not groups:
            return
        places = [self._data.of(group) for group in groups]
        values = self._values(np.concatenate(places))
        ends = np.cumsum([len(place) for place in places])
        yield from zip(groups, np.split(values, ends[:-1]), strict=True)

    def add(self, group: int, places: Places, values: Vector, total: Vector | None) -> None:
        """Choose among rows of a group, to match the sum over all of them."""
        vectors = self._vectors(group, values)
        if total is None:
            target = self._data.rows.base_weights[places] @ vectors
        else:
            target = self._vectors(group, total[None])[0]
        chosen, weights = select_rows(
            vectors,
            target,
            self._basis,
            self._lacking,
            tolerance=self._tolerance,
            size=self._most,
        )
        if len(chosen) >= len(self._data.of(group)) - 1:
            self._whole.append(self._data.of(group))
            return
        terms = GroupTerms.of(vectors[chosen], target, weights, self._basis)
        self._lacking = self._lacking + terms.lacks(weights)[0]
        self._places.append(places[chosen])
        self._terms.append(terms)

    def add_large(self, group: int, rng: np.random.Generator) -> None:
        """Choose from a part of the rows: half come at random, half by the length of vectors."""
        places = self._data.of(group)
        base_weights = self._data.rows.base_weights
        total, sizes = np.zeros(len(self._noise)), []
        step = max(_ENTRIES // len(self._noise), 1)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            values = self._values(part)
            values -= values.mean(axis=1, keepdims=True)
            total += base_weights[part] @ values
            sizes.append(base_weights[part] * np.linalg.norm(values, axis=1))
        candidates = _candidates(np.concatenate(sizes), rng)
        self.add(group, places[candidates], self._values(places[candidates]), total)

    def choice(self) -> GroupChoice:
        """Give all rows the weights that are best together."""
        weights = joint_weights(self._terms)
        chosen = [*self._whole, *self._places]
        masses = [*(self._data.rows.base_weights[w] for w in self._whole), *weights]
        places, found = np.concatenate(chosen), np.concatenate(masses)
        kept = np.flatnonzero(found)
        objective = sum(joint_objective(self._terms, weights)) if weights else 0.0
        return GroupChoice(places[kept], found[kept], objective)

    def _values(self, places: Places) -> Vector:
        values = np.ascontiguousarray(self._loglik(self._data.rows.take(places)), dtype=float)
        if not np.isfinite(values).all():
            n_bad = np.count_nonzero(~np.isfinite(values).all(axis=0))
            raise InvalidDataError(
                f"Log-likelihoods are NaN or infinite at {n_bad} of {values.shape[1]} draws from "
                "around the posterior: check that the likelihood is positive wherever the prior is."
            )
        return values

    def _vectors(self, group: int, values: Vector) -> Vector:
        """Tangent vectors of rows of a group, without what they share by chance."""
        by_chance = tangent_vectors(chance_functions(self._noise[:, group], self._shared).T)
        return self._basis.without_noise(tangent_vectors(values), by_chance.T)


def _candidates(sizes: Vector, rng: np.random.Generator) -> Places:
    """Half of the candidates at random, and half in proportion to their sizes: sorted."""
    half = _CANDIDATES // 2
    uniform = rng.permutation(len(sizes))[:half]
    with np.errstate(divide="ignore"):
        keys = rng.standard_exponential(len(sizes)) / sizes
    longest = np.argpartition(keys, half)[:half]
    return np.union1d(uniform, longest)
