"""Whether draws of many variables are those of their densities given others: Stein's identities.

Given the shared variables theta, the variables of a unit have a density of their own.  So its
derivatives tell draws of these variables from others as `pymc_coresets.diagnostics.stein` tells
those of theta; and since ``f`` may depend on theta, they tell whether both belong together.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy import stats

from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.stein import (
    FALSE_ALARMS,
    Change,
    Deviation,
    Stretch,
    size_by_values,
    standard_errors_from_zero,
    widths,
)

#: Sum of the log-densities of units, (n_points,), in nats, given the numbers of some columns and
#: their values, (n_points, n_columns).
type OfColumns = Callable[[np.ndarray, Floats], Floats]

#: Standard errors by which values of the density must confirm what its derivatives tell, and how
#: many deviations are tried.
_CONFIRMED, _TRIED = 4.0, 6
#: Change of a distribution, in standard deviations of a statistic, that is not told: quantiles of
#: units' variables are interpolated, and are off by less.
_HARMLESS = 0.02


class Shifts(NamedTuple):
    """A change of points by amounts of their own: ``x + a s``, see `stein.Move`.

    Parameters
    ----------
    by : ndarray of shape (n_points, n_dims)
        s, which does not depend on x.
    """

    by: Floats

    def amounts(self) -> Floats:
        """Return amounts a that change a distribution noticeably."""
        return np.array([0.3, 1.0, 2.0]) / math.sqrt(self.by.shape[1])

    def inverse(self, a: float) -> float:
        """Return the amount that moves points back."""
        return -a

    def of(self, x: Floats, a: float) -> tuple[Floats, float]:
        """Return moved points (n_points, n_dims), and the logarithm of the Jacobian determinant."""
        return x + a * self.by, 0.0


#: Statistics of one kind of each column, (n_chains, n_draws, n_columns), and the moves of columns.
type _Statistics = tuple[Floats, Callable[[np.ndarray], Change]]


def deviation_of_units(
    z: Floats,
    scores: Floats,
    given: Floats,
    names: Sequence[str],
    log_density: OfColumns,
    *,
    variables: Sequence[str],
    together: np.ndarray | slice = slice(None),
    n_all: int = 0,
) -> Deviation:
    """Compare draws of many variables with their densities given others, by derivatives.

    Parameters
    ----------
    z : ndarray of shape (n_chains, n_draws, n_columns)
        Draws of one-dimensional variables.
    scores : ndarray of the same shape
        Derivative of each one's log-density given all else.
    given : ndarray of the same shape
        The same with z at a fixed value: a function of what is given alone.
    names : sequence of str
        Of the columns.
    log_density : callable
        See `OfColumns`.
    variables : sequence of str
        The variable of which each column is an entry.
    together : ndarray of bool, of shape (n_columns,), optional
        Of which columns means are taken: those that were not chosen for their draws; by default
        all.
    n_all : int, optional
        Number of columns from which these were chosen.

    Returns
    -------
    Deviation
        Of one variable, or of all entries together: then it is named without an index.

    Notes
    -----
    The statistics of a column are those of shift, width and tails, see `stein.deviation`, and
    ``(h - E h) g``, with h the derivative at a fixed value: draws that go with others of the given
    variables have a positive mean, that of the squared h.  If these explain a share ``R^2`` of the
    variance of a normal column, permuting its draws moves the mean by ``R / sqrt(1 + R^2)``
    standard deviations: 4,000 draws detect it if ``R^2`` is at least 0.02, and 400 if it is at
    least 0.2.  A mean over the columns of a variable tells what is too small in each of them.  What
    is noticeable must be confirmed by values of the density, which may have jumps.  Up to 0.02
    standard deviations of a statistic are tolerated.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> theta, e = rng.normal(size=(4, 1_000, 1)), rng.normal(size=(4, 1_000, 9))
    >>> names = [f"z[{k}]" for k in range(9)]
    >>> def deviation_of(z):  # from that of normal variables around theta
    ...     mean = theta.reshape(-1, 1)
    ...     def log_density(columns, x):
    ...         return -np.square(x - mean).sum(axis=1) / 2
    ...     return deviation_of_units(z, theta - z, theta + 0 * z, names, log_density,
    ...                               variables=["z"] * 9)
    >>> deviation_of(theta + e).is_noticeable, deviation_of(theta[:, ::-1] + e).where
    (False, 'z')
    """
    every, of_column = np.arange(len(names))[together], np.array(variables)
    groups = {str(name): every[of_column[every] == name] for name in dict.fromkeys(variables)}
    found: list[tuple[float, str, np.ndarray, Callable[[np.ndarray], Change]]] = []
    n_kinds = df = 0
    for values, move in chain(_of_columns(z, scores), [_given_others(z, scores, given)]):
        sizes, df = _sizes(values)
        found += [(float(size), names[j], np.array([j]), move) for j, size in enumerate(sizes)]
        for name, columns in groups.items():
            if columns.size:
                [size], _ = _sizes(values[:, :, columns].mean(axis=2, keepdims=True))
                found.append((float(size), name, columns, move))
        n_kinds += 1
    n_statistics = n_kinds * (max(n_all, len(names)) + len(groups))
    limit = float(stats.t.isf(FALSE_ALARMS / 2 / n_statistics, df))
    found.sort(key=lambda some: -some[0])
    size, where, _, _ = found[0]
    if size <= limit:
        return Deviation(size, limit, where)
    for size, where, columns, move in found[:_TRIED]:
        own: Floats = z[:, :, columns]
        middle = np.median(own, axis=(0, 1))

        def of_own(x: Floats, columns: np.ndarray = columns) -> Floats:
            return log_density(columns, x)

        if size > limit and size_by_values(own, middle, of_own, move(columns)) > _CONFIRMED:
            return Deviation(size, limit, where)
    return Deviation(0.0, limit)


def sizes_of_columns(z: Floats, scores: Floats) -> Floats:
    """Return the largest statistic of each column, in standard errors, (n_columns,).

    Parameters
    ----------
    z, scores
        See `deviation_of_units`.

    Examples
    --------
    >>> z = np.random.default_rng(1).normal([0.0, 1.0], size=(4, 500, 2))
    >>> sizes_of_columns(z, -z).round(-1)
    array([ 0., 50.])
    """
    sizes: list[Floats] = [_sizes(values)[0] for values, _ in _of_columns(z, scores)]
    return np.stack(sizes).max(axis=0)


def _sizes(values: Floats) -> tuple[Floats, int]:
    """Return how far means are from zero, in standard errors, less what is tolerated."""
    sizes, df = standard_errors_from_zero(values)
    tolerated = _HARMLESS * math.sqrt(values.shape[0] * values.shape[1])
    return np.maximum(np.abs(sizes) - tolerated, 0.0), df


def _of_columns(z: Floats, scores: Floats) -> Iterator[_Statistics]:
    """Yield the statistics of all columns by their own values, kind by kind."""
    scales = widths(z)
    t, g = (z - np.median(z, axis=(0, 1))) / scales, scores * scales

    def shift(columns: np.ndarray) -> Shifts:
        return Shifts(np.broadcast_to(scales[columns], (z.shape[0] * z.shape[1], len(columns))))

    def width(columns: np.ndarray) -> Stretch:
        return Stretch(len(columns))

    yield g, shift
    yield t * g + 1.0, width
    beyond = np.tanh((np.abs(t) - 1.5) / 0.3)
    steps = np.sign(t) * (beyond + np.tanh(5.0))
    yield steps * g + (1 - np.square(beyond)) / 0.3, width


def _given_others(z: Floats, scores: Floats, given: Floats) -> _Statistics:
    """Return the statistics of all columns that tell whether they go with other variables."""
    scales = widths(z)
    along = (given - given.mean(axis=(0, 1))) * scales
    spread = along.std(axis=(0, 1))
    along /= np.where(spread > 0, spread, 1.0)

    def together(columns: np.ndarray) -> Shifts:
        return Shifts((along * scales)[:, :, columns].reshape(-1, len(columns)))

    return along * (scores * scales), together


def deviation_of_values(
    z: np.ndarray, probabilities: Floats, names: Sequence[str], together: str
) -> Deviation:
    """Compare draws of discrete variables with the probabilities of their values given others.

    Parameters
    ----------
    z : ndarray of int, of shape (n_chains, n_draws, n_units)
        Numbers of values.
    probabilities : ndarray of shape (n_chains, n_draws, n_values, n_units)
    names : sequence of str
        Of the units.
    together : str
        What all units together are called.

    Notes
    -----
    The mean of an indicator less its probability is zero.  Its standard error is the larger one of
    those by means of batches and by the probabilities: the former is zero if a rare value is not
    among the draws.

    Examples
    --------
    >>> z = (np.random.default_rng(1).random((4, 500, 1)) < 0.3).astype(int)
    >>> p = np.broadcast_to([[0.7], [0.3]], (4, 500, 2, 1))
    >>> deviation_of_values(z, p, ["z[0]"], "z").is_noticeable
    False
    >>> deviation_of_values(1 - z, p, ["z[0]"], "z").where
    'z[0]'
    """
    n_draws, n_values = math.prod(z.shape[:2]), probabilities.shape[2]
    largest, n_statistics, df = (0.0, ""), 0, 1
    for value in range(n_values):
        p = probabilities[:, :, value]
        away = (z == value) - p
        variances = (p * (1 - p)).sum(axis=(0, 1)) / n_draws**2
        sums = away.sum(axis=2, keepdims=True)
        for own, variance, where in (
            (away, variances, names),
            (sums, np.array([variances.sum()]), [together]),
        ):
            by_batches, df = standard_errors_from_zero(own)
            with np.errstate(divide="ignore", invalid="ignore"):
                by_variance = own.mean(axis=(0, 1)) / np.sqrt(variance)
            sizes = np.fmin(np.abs(by_batches), np.abs(by_variance))
            worst = int(np.nan_to_num(sizes, posinf=np.finfo(float).max).argmax())
            largest = max(largest, (float(np.nan_to_num(sizes[worst])), where[worst]))
            n_statistics += len(sizes)
    limit = float(stats.t.isf(FALSE_ALARMS / 2 / n_statistics, df))
    return Deviation(largest[0], limit, largest[1])
