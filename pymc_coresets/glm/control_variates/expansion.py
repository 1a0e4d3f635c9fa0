"""The sums behind a quadratic for all rows, and the sample of rows for its residual."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
from pytensor.graph import Variable, clone_replace
from scipy.linalg import cho_factor, cho_solve

from pymc_coresets.compat.pytensor_api import checked_tensor
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.glm.control_variates.by_levels import SampleOfLevels
from pymc_coresets.glm.predictor.finding import FreeCoordinates, interface_of
from pymc_coresets.glm.predictor.predictors import Predictors
from pymc_coresets.numerics import agree
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import Curvature, Quadratic, interface_at
from pymc_coresets.rows.keyed import Smallest, numbers_of, smallest
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.solution import Selection

#: Spread of a row, in nats, that counts as infinite; its square is still finite.
_LARGEST = 1e150
#: Cost of a gradient of rows, in log-likelihoods.
OF_A_GRADIENT = 6


@dataclass(frozen=True, eq=False)
class ResidualSample:
    """Nested samples of rows, without replacement, by their spreads (priority sampling).

    The rows with the smallest keys ``U_n / V_n``, for the spread V_n of a row and its own random
    number U_n, which depends neither on the blocks in which rows are read nor on their order.
    Given the key t of the next row, row n is among them with probability ``min(1, t V_n)``.  Rows
    of probability one are kept whole.

    Parameters
    ----------
    rows : Rows
        One more than the largest sample, if there are more.
    spread : ndarray of shape (len(rows),)
        V, positive.
    keys : ndarray of shape (len(rows),)
    most : int
        Size of the largest sample.
    is_exact : bool
        Whether nothing is left of any row: all are quadratic themselves.

    References
    ----------
    Duffield, Lund, Thorup (2007). Priority sampling for estimation of arbitrary subset sums.
    Journal of the ACM 54(6). https://doi.org/10.1145/1314690.1314696

    Examples
    --------
    >>> rows = Rows(np.arange(4), np.ones(4))
    >>> sample = ResidualSample.of(rows, np.array([8.0, 1.0, 0.0, 1.0]), 2, key=7)
    >>> which, shares = sample.shares(2)
    >>> sample.rows.positions[which], shares.round(2)
    (array([0, 3]), array([1. , 0.7]))
    """

    rows: Rows
    spread: np.ndarray
    keys: np.ndarray
    most: int
    is_exact: bool = False

    @classmethod
    def of(cls, rows: Rows, spread: np.ndarray, most: int, *, key: int) -> Self:
        """Sample some rows: those of infinite spread first, those of spread 0 never."""
        if not most:
            nothing = np.empty(0)
            return cls(rows.take(slice(0, 0)), nothing, nothing, most)
        spread = np.minimum(spread, _LARGEST)
        with np.errstate(divide="ignore"):
            keys = (1 - numbers_of(rows.positions, key)) / spread
        kept, _ = smallest(keys, most + 1)
        return cls(rows.take(kept), spread[kept], keys[kept], most)

    @classmethod
    def of_marked(cls, rows: Rows, keys: np.ndarray, most: int) -> Self:
        """Return the sample made from `marked` rows."""
        *arrays, spread = rows.arrays
        return cls(replace(rows, arrays=tuple(arrays)), spread, keys, most)

    @property
    def marked(self) -> tuple[Rows, np.ndarray]:
        """The rows, with their spreads among their data, and the keys."""
        return replace(self.rows, arrays=(*self.rows.arrays, self.spread)), self.keys

    @property
    def has_impossible_rows(self) -> bool:
        """Whether there are rows of infinite spread."""
        return bool((self.spread >= _LARGEST).any())

    def first(self, size: int) -> tuple[Rows, np.ndarray]:
        """Return a sample of at most `most` rows, and which of them were drawn, not kept whole."""
        which, shares = self.shares(size)
        return self.rows.take(which), shares < 1.0

    def shares(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows a sample has, and their inclusion probabilities.

        Returns
        -------
        which : ndarray of int64
            Numbers among `rows`, ascending.
        shares : ndarray
            Their inclusion probabilities.
        """
        which, beyond = smallest(self.keys, size)
        return which, np.minimum(1.0, self.spread[which] * beyond)

    def variance(self, size: int) -> float:
        """Estimate, without bias, the variance of a sum over a sample of that size.

        In squared nats: the sum of ``V_n^2 (1 / p_n - 1)`` over all rows, by the largest sample.
        """
        every, of_every = self.shares(self.most)
        which, beyond = smallest(self.keys, size)
        if self.is_exact or beyond == np.inf:  # nothing is left out
            return 0.0
        # What decides over a row are the keys of the others.
        limits = np.full(len(self.keys), self.keys[which].max())
        limits[which] = beyond
        spread = self.spread[every]
        variances = spread**2 * (1 / np.minimum(1.0, spread * limits[every]) - 1)
        return float((variances / of_every).sum())


#: Sums over rows, arrays or sparse ones, and a sample of the rows.
type SumsAndSample = tuple[tuple[Any, ...], ResidualSample]


def joined(parts: Iterable[SumsAndSample], most: int) -> SumsAndSample:
    """Add up consecutive blocks, and keep at most `most` rows of their samples."""
    kept = Smallest(most + 1)

    def sums_of_each() -> Iterator[tuple[Any, ...]]:
        for sums, sample in parts:
            kept.add(*sample.marked)
            yield sums

    total = reduce(lambda one, other: tuple(map(add, one, other)), sums_of_each())
    return total, ResidualSample.of_marked(*kept.cut(), most)


def calibrated(residuals: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return factors of weights that bring a sum of residuals closer to their goal.

    Ridge regression towards one, in its dual form, O(S^2 M) for S draws and M rows; all ones if a
    fit at the first half of the draws brings no gain at the second.

    Parameters
    ----------
    residuals : ndarray of shape (n_draws, n_rows)
        Weighted.
    goal : ndarray of shape (n_draws,)

    Returns
    -------
    ndarray of shape (n_rows,)
        Between 0 and 3.

    Examples
    --------
    >>> residuals = np.array([[1.0], [-1.0]])
    >>> calibrated(residuals, np.array([1.0, -1.0]))
    array([1.])
    """
    half = len(goal) // 2
    tried = _regressed(residuals[:half], goal[:half])
    ones, (own, wanted) = np.ones_like(tried), (residuals[half:], goal[half:])
    helps = np.var(wanted - own @ tried) < np.var(wanted - own @ ones)
    return _regressed(residuals, goal) if helps else ones


def _regressed(residuals: np.ndarray, goal: np.ndarray) -> np.ndarray:
    residuals, goal = residuals - residuals.mean(axis=0), goal - goal.mean()
    gram = residuals @ residuals.T
    ridge = 0.2 * np.trace(gram) / len(gram)
    if not ridge > 0:
        return np.ones(residuals.shape[1])
    lacking = goal - residuals.sum(axis=1)
    factor = cho_factor(gram + ridge * np.eye(len(gram)))
    change = residuals.T @ cho_solve(factor, lacking)
    found: np.ndarray = np.clip(1.0 + change, 0.0, 3.0)
    return found


#: The numbers c through which rows depend on the free variables: their names, and their graph.
type Interface = Predictors | FreeCoordinates


@dataclass(frozen=True, eq=False)
class AveragedRows:
    """Sums over all rows, times their case weights, and a sample of the rows.

    Parameters
    ----------
    draws : ndarray of shape (n_draws, p)
        Of the coefficients, over which rows are averaged.
    slope : ndarray of shape (p,)
    curvature : ndarray or csr_array, of shape (p, p)
    residual : ndarray of shape (n_draws,)
        Residual of all rows: log-likelihood minus quadratics, in nats, up to a constant.
    sample : ResidualSample or SampleOfLevels
        Rows, sampled by the spread of their residuals, or chosen for the residual of each level.
    missed : ndarray of shape (n_points,)
        Residual of all rows at the points at which rows are chosen.
    """

    draws: np.ndarray
    slope: np.ndarray
    curvature: Curvature
    residual: np.ndarray
    sample: ResidualSample | SampleOfLevels
    missed: np.ndarray

    def quadratic(self, found: Interface) -> Quadratic:
        """Return the quadratic of all rows, about the mean of the draws."""
        return Quadratic(
            names=found.names,
            center=self.draws.mean(axis=0),
            slope=self.slope,
            curvature=self.curvature,
            interface=found.coefficients,
        )

    def weighted(self, size: int, missed_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weights of a sample, shrunk if it is noisy, and the residual of drawn rows.

        Parameters
        ----------
        size : int
            See `ResidualSample.first`.
        missed_of : ndarray of shape (n_points, n_rows)
            Residual of each row of the sample.

        Returns
        -------
        weights : ndarray of shape (n_rows,)
        lacking : ndarray of shape (n_points,)
            Residual without the rows that are kept whole.
        """
        assert isinstance(self.sample, ResidualSample)  # others have weights of their own
        which, shares = self.sample.shares(size)
        drawn, weights = shares < 1.0, self.sample.rows.case_weights[which] / shares
        lacking = self.missed - missed_of[:, ~drawn] @ weights[~drawn]
        weights[drawn] *= reliability(float(np.var(lacking)), self.sample.variance(size))
        return weights, lacking

    def missed_by(self, size: int) -> float:
        """Predict the divergence of a coreset of a given size, in nats."""
        variance = self.sample.variance(size)
        return variance * reliability(float(np.var(self.residual)), variance)


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice(Selection):
    """Weighted rows, and the quadratic for the remaining log-likelihood.

    Attributes
    ----------
    of_all : Quadratic
        For the log-likelihood of all rows.
    tried : int
        How many rows there might have been.
    left : float
        Mean squared residual of all rows, in squared nats, at the draws used for the choice.
    """

    of_all: Quadratic
    tried: int
    left: float


def reliability(signal: float, noise: float) -> float:
    """Return the factor of an estimate of a sum that minimises its error.

    With few rows, the noise of the estimated residual may exceed the residual itself.

    Examples
    --------
    >>> reliability(3.0, 1.0)
    0.75
    """
    return signal / (signal + noise) if noise > 0 else 1.0


# -- in another model ------------------------------------------------------------------------------


def put_back(quadratic: Quadratic, observations: Observations) -> Quadratic:
    """Return a quadratic from a file, with the coefficients of its model.

    Raises
    ------
    InvalidDataError
        If the model has other coefficients.
    """
    found = interface_of(observations, quadratic.names)
    order = quadratic.order_of(found.names)
    if order is None:
        raise _other_coefficients(found.names, quadratic.names)
    return quadratic.ordered(order, found.coefficients)


def carried_over(quadratic: Quadratic, old: Observations, new: Observations) -> Quadratic:
    """Return the same quadratic for a model whose likelihood is the same.

    The coefficients are functions of the free variables in the likelihood.  These have the same
    names in both models; priors and rows may differ.
    """
    swaps: dict[Variable, Variable] = {
        v: new.parameters[name] for name, v in old.parameters.items() if name in new.parameters
    }
    [interface] = clone_replace([quadratic.graph], swaps, rebuild_strict=False)
    return replace(quadratic, interface=checked_tensor(interface))


def written_in(
    like: Quadratic, quadratic: Quadratic, observations: Observations, draws: DrawsLike
) -> Quadratic:
    """Return a quadratic in the coefficients of another one, which must be the same.

    Parameters
    ----------
    like : Quadratic
        The other one.
    quadratic : Quadratic
    observations : Observations
        Of the model that both belong to.
    draws : Draws
        Draws at which the coefficients of both are compared.

    Raises
    ------
    InvalidDataError
        If the coefficients have other names, or other values at a draw.
    """
    order = quadratic.order_of(like.names)
    if order is not None:
        values = interface_at(quadratic.graph, observations, draws)[:, order]
        if agree(values, interface_at(like.graph, observations, draws)).all():
            return quadratic.ordered(order, like.graph)
    raise _other_coefficients(like.names, quadratic.names)


def _other_coefficients(found: tuple[str, ...], wanted: tuple[str, ...]) -> InvalidDataError:
    one, other = (
        repr(list(names[:3]))[:-1] + (", ...]" if len(names) > 3 else "]")
        for names in (found, wanted)
    )
    return InvalidDataError(
        f"The linear predictor has the coefficients {one}, but the coreset's quadratic has "
        f"{other}: pass the model that the coreset was built from, write the predictor as in that "
        "model, or build another coreset.",
        topic="regressions",
    )
