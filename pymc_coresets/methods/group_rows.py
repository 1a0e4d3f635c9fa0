"""The rows of all groups, chosen in turn at the same draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.values import GroupedRows, Rows
from pymc_coresets.solving.groups import (
    GroupTerms,
    joint_objective,
    joint_weights,
    rows_of_group,
    select_rows,
)
from pymc_coresets.solving.problem import Vector, tangent_vectors
from pymc_coresets.solving.shared_basis import SharedBasis, chance_functions

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
    key = int(rng.integers(2**63))
    order, sizes = rng.permutation(data.n_groups), np.diff(data.bounds)
    run = _Run(data, loglik, shared, noise, SharedBasis.of(shared), tolerance, most)
    run.whole = [data.of(int(group)) for group in np.flatnonzero(sizes <= _FEW)]
    for groups in _together(order[sizes[order] > _FEW], sizes, run.rows_at_once):
        if sizes[groups[0]] > _CANDIDATES:
            run.add_large(groups[0], np.random.default_rng([key, groups[0]]))
        else:
            run.add_small(groups)
    return run.choice()


def _together(order: NDArray[np.int64], sizes: NDArray[np.int64], most: int) -> Iterator[list[int]]:
    """Yield groups in their order, of `most` rows together; large ones come alone."""
    waiting: list[int] = []
    n_waiting = 0
    for group in map(int, order):
        if sizes[group] > _CANDIDATES:
            yield [group]
            continue
        if waiting and n_waiting + sizes[group] > most:
            yield waiting
            waiting, n_waiting = [], 0
        waiting.append(group)
        n_waiting += sizes[group]
    if waiting:
        yield waiting


@dataclass(eq=False)
class _Run:
    """The rows chosen so far, and what they lack of the shared part."""

    data: GroupedRows
    loglik: LogLik
    shared: Vector
    noise: Vector
    basis: SharedBasis
    tolerance: float
    most: int  # rows of a group

    def __post_init__(self) -> None:
        self.lacking = np.zeros(self.basis.functions.shape[1])
        self.whole: list[Places] = []
        self.places: list[Places] = []
        self.terms: list[GroupTerms] = []
        self.rows_at_once = max(_ENTRIES // len(self.noise), 1)

    def add_small(self, groups: list[int]) -> None:
        """Choose among the rows of groups that are evaluated together."""
        places = [self.data.of(group) for group in groups]
        ends = np.cumsum([len(own) for own in places])
        values = np.split(self._values(np.concatenate(places)), ends[:-1])
        for group, own, of_group in zip(groups, places, values, strict=True):
            vectors = self._vectors(group, of_group)
            self._add(group, own, vectors, self.data.rows.base_weights[own] @ vectors)

    def _add(self, group: int, places: Places, vectors: Vector, target: Vector) -> None:
        """Choose among rows of a group, to match the sum over all of them."""
        chosen, weights = select_rows(
            vectors, target, self.basis, self.lacking, tolerance=self.tolerance, size=self.most
        )
        if len(chosen) >= len(self.data.of(group)) - 1:
            self.whole.append(self.data.of(group))
            return
        terms = GroupTerms.of(vectors[chosen], target, weights, self.basis)
        self.lacking = self.lacking + terms.lacks(weights)[0]
        self.places.append(places[chosen])
        self.terms.append(terms)

    def add_large(self, group: int, rng: np.random.Generator) -> None:
        """Choose from a part of the rows: half come at random, half by the length of vectors."""
        places = self.data.of(group)
        base_weights = self.data.rows.base_weights
        total, sizes = np.zeros(len(self.noise)), []
        for start in range(0, len(places), self.rows_at_once):
            part = places[start : start + self.rows_at_once]
            values = self._values(part)
            values -= values.mean(axis=1, keepdims=True)
            total += base_weights[part] @ values
            sizes.append(base_weights[part] * np.linalg.norm(values, axis=1))
        places = places[_candidates(np.concatenate(sizes), rng)]
        target = self._vectors(group, total[None])[0]
        self._add(group, places, self._vectors(group, self._values(places)), target)

    def choice(self) -> GroupChoice:
        """Give all rows the weights that are best together."""
        weights = joint_weights(self.terms)
        chosen = [*self.whole, *self.places]
        masses = [*(self.data.rows.base_weights[w] for w in self.whole), *weights]
        places, found = np.concatenate(chosen), np.concatenate(masses)
        kept = np.flatnonzero(found)
        objective = sum(joint_objective(self.terms, weights)) if weights else 0.0
        return GroupChoice(places[kept], found[kept], objective)

    def _values(self, places: Places) -> Vector:
        values = np.ascontiguousarray(self.loglik(self.data.rows.take(places)), dtype=float)
        if not np.isfinite(values).all():
            n_bad = np.count_nonzero(~np.isfinite(values).all(axis=0))
            raise InvalidDataError(
                f"Log-likelihoods are NaN or infinite at {n_bad} of {values.shape[1]} draws from "
                "around the posterior: check that the likelihood is positive wherever the prior is."
            )
        return values

    def _vectors(self, group: int, values: Vector) -> Vector:
        """Tangent vectors of rows of a group, without what they share by chance."""
        by_chance = tangent_vectors(chance_functions(self.noise[:, group], self.shared).T)
        return self.basis.without_noise(tangent_vectors(values), by_chance.T)


def _candidates(sizes: Vector, rng: np.random.Generator) -> Places:
    """Half of the candidates at random, and half in proportion to their sizes: sorted."""
    half = _CANDIDATES // 2
    uniform = rng.permutation(len(sizes))[:half]
    with np.errstate(divide="ignore"):
        keys = rng.standard_exponential(len(sizes)) / sizes
    longest = np.argpartition(keys, half)[:half]
    return np.union1d(uniform, longest)
