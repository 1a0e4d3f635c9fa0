"""Distribution functions of many densities of one number at once, from tables."""

import numpy as np
from numba import njit

from pymc_coresets.loops.vectormath import vector_exp

#: Cells that each one between two places is divided into.
_CELLS = 4
#: Nats below its top where a density ends; and from which on it is taken to be zero.
_DEPTH, _FLOOR = 25.0, 60.0


@njit(cache=True, nogil=True, error_model="numpy")
def _refined(
    places: np.ndarray,
    logs: np.ndarray,
    inverse: np.ndarray,
    of_two: np.ndarray,
    fine: np.ndarray,
    heights: np.ndarray,
) -> None:
    """Fill in places and heights of four times as many cells, by cubic interpolation.

    Where the curvatures on both sides of a cell differ much, as next to a kink, it takes the
    smaller one.
    """
    last, known = len(places) - 1, 0.0
    slope = (logs[1] - logs[0]) * inverse[0]
    for i in range(last):
        step, second, after = places[i + 1] - places[i], known, slope
        if i < last - 1:
            after = (logs[i + 2] - logs[i + 1]) * inverse[i + 1]
            second = (after - slope) * of_two[i]
        left, right = (known if i > 0 else second), second
        known, slope = second, after
        square = step * step
        if not abs(left - right) * square < 1.0:
            left = right = left if abs(left) < abs(right) else right
        if not abs(left) * square < 1e3:  # beside minus infinity
            left = right = 0.0
        fine[_CELLS * i], heights[_CELLS * i] = places[i], logs[i]
        for j in range(1, _CELLS):
            share, k = j / _CELLS, _CELLS * i + j
            curved = (1 - share) * left + share * right
            straight = (1 - share) * logs[i] + share * logs[i + 1]
            fine[k] = places[i] + share * step
            heights[k] = straight - share * (1 - share) * square * curved
    fine[-1], heights[-1] = places[last], logs[last]


@njit(cache=True, nogil=True, error_model="numpy")
def _masses(places: np.ndarray, logs: np.ndarray, cumulative: np.ndarray) -> None:
    """Fill in the integral up to each place, relative to the largest value."""
    top = -np.inf
    for i in range(len(places)):
        top = max(top, logs[i])
    for i in range(len(places)):  # densities, first
        cumulative[i] = vector_exp(logs[i] - top)
    density, total = cumulative[0], 0.0
    cumulative[0] = 0.0
    for i in range(len(places) - 1):
        step, change = places[i + 1] - places[i], abs(logs[i + 1] - logs[i])
        before, density = density, cumulative[i + 1]
        if max(logs[i], logs[i + 1]) > top - _FLOOR:
            if change > 1e-4:
                total += step * abs(density - before) / change
            else:
                total += step * max(density, before) * (1.0 - change / 2 + change * change / 6)
        cumulative[i + 1] = total


@njit(cache=True, nogil=True, error_model="numpy")
def _first_not_below(places: np.ndarray, value: float) -> int:
    """Return the number of the first place that is not below a value; of NaN, their number."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if places[middle] >= value:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(
    found: np.ndarray,
    given: np.ndarray,
    are_probabilities: bool,  # noqa: FBT001 (Numba takes no keywords alone)
    tables: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    work: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Fill in quantiles of probabilities, or probabilities of quantiles: see `quantiles`.

    `tables` are places, log-densities, and the inverse distances of places from the next ones, and
    from the next but one.  NumPy makes all arrays, also those to work with: its functions take a
    tenth of a second each to compile.
    """
    (places, logs, inverse, of_two), (own, heights, below) = tables, work
    for s in range(found.shape[0]):  # of one draw, all units fit into a cache
        for g in range(found.shape[2]):
            _refined(places[:, g], logs[s, :, g], inverse[:, g], of_two[:, g], own, heights)
            _masses(own, heights, below)
            if not below[-1] > 0.0:
                continue
            for k in range(found.shape[1]):
                value = given[s, k, g]
                wanted = value * below[-1] if are_probabilities else value
                ascending = below if are_probabilities else own
                i = min(max(_first_not_below(ascending, wanted) - 1, 0), len(own) - 2)
                share = (wanted - ascending[i]) / (ascending[i + 1] - ascending[i])
                change = heights[i + 1] - heights[i]
                if are_probabilities:
                    if change > 1e-8:
                        share = 1.0 + np.log1p((1.0 - share) * np.expm1(-change)) / change
                    elif change < -1e-8:
                        share = np.log1p(share * np.expm1(change)) / change
                    found[s, k, g] = own[i] + min(max(share, 0.0), 1.0) * (own[i + 1] - own[i])
                    continue
                share = min(max(share, 0.0), 1.0)
                if change > 1e-8:
                    share = 1.0 - np.expm1((share - 1.0) * change) / np.expm1(-change)
                elif change < -1e-8:
                    share = np.expm1(share * change) / np.expm1(change)
                found[s, k, g] = (below[i] + share * (below[i + 1] - below[i])) / below[-1]


def _found(
    places: np.ndarray, logs: np.ndarray, given: np.ndarray, *, are_probabilities: bool
) -> np.ndarray:
    # In C order: for each other one, the loops would be compiled anew.
    places, logs, given = (np.ascontiguousarray(x, np.float64) for x in (places, logs, given))
    found, n_fine = np.full(given.shape, np.nan), _CELLS * (len(places) - 1) + 1
    inverse, of_two = 1.0 / (places[1:] - places[:-1]), 1.0 / (places[2:] - places[:-2])
    work = np.empty(n_fine), np.empty(n_fine), np.empty(n_fine)
    _fill(found, given, are_probabilities, (places, logs, inverse, of_two), work)
    return found


def quantiles(places: np.ndarray, logs: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return the quantiles of densities that are known at some places.

    Their logarithm is a cubic between two places, by which each cell is divided into four where it
    is linear.

    Parameters
    ----------
    places : ndarray of shape (n_places, n_units)
        Ascending; beyond them the density is 0.
    logs : ndarray of shape (n_draws, n_places, n_units)
        Up to a constant for each density.
    uniform : ndarray of shape (n_draws, n_quantiles, n_units)
        Probabilities.

    Returns
    -------
    ndarray of shape (n_draws, n_quantiles, n_units)
        NaN where there is no density.

    Examples
    --------
    >>> places, logs = np.array([[0.0], [1.0], [2.0]]), np.array([[[0.0], [0.0], [-np.inf]]])
    >>> quantiles(places, logs, np.array([[[0.25], [0.5]]])).ravel()
    array([0.25, 0.5 ])
    """
    return _found(places, logs, uniform, are_probabilities=True)


def probabilities(places: np.ndarray, logs: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the distribution functions at some numbers: the inverse of `quantiles`.

    Examples
    --------
    >>> places, logs = np.array([[0.0], [1.0], [2.0]]), np.array([[[0.0], [0.0], [-np.inf]]])
    >>> probabilities(places, logs, np.array([[[0.25], [7.0]]])).ravel()
    array([0.25, 1.  ])
    """
    return _found(places, logs, x, are_probabilities=False)


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_resolved(found: np.ndarray, logs: np.ndarray, top: np.ndarray, dense: np.ndarray) -> None:
    n_draws, n_places, n_units = logs.shape
    for s in range(n_draws):
        own = logs[s]
        for g in range(n_units):
            top[g], dense[g] = own[0, g], 0
        for i in range(n_places):
            for g in range(n_units):
                top[g] = max(top[g], own[i, g])
        for i in range(n_places):
            for g in range(n_units):
                dense[g] += top[g] - own[i, g] < 2.0
        for g in range(n_units):
            nearest = max(own[0, g], own[-1, g])
            found[s, g] = top[g] - nearest > 12.0 and dense[g] >= 6


def are_resolved(logs: np.ndarray) -> np.ndarray:
    """Return whether places reach as far as densities, and are dense enough there.

    Parameters
    ----------
    logs : ndarray of shape (n_draws, n_places, n_units)

    Returns
    -------
    ndarray of bool, of shape (n_draws, n_units)

    Examples
    --------
    >>> x = np.linspace(-6, 6, 50)
    >>> are_resolved(np.stack([-(x**2) / 2, -(x**2) / 8], axis=1)[None])
    array([[ True, False]])
    """
    n_draws, _, n_units = logs.shape
    found = np.empty((n_draws, n_units), dtype=np.bool_)
    work = np.empty(n_units), np.empty(n_units, dtype=np.int64)
    _fill_resolved(found, np.ascontiguousarray(logs, np.float64), *work)
    return found


def places_for(coarse: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Choose places at which to tabulate densities, from their values at others.

    Some are where the mass is, and the others in the tails.

    Parameters
    ----------
    coarse : ndarray of shape (n_coarse, n_units)
        Ascending.
    logs : ndarray of shape (n_draws, n_coarse, n_units)

    Returns
    -------
    ndarray of shape (40, n_units)
        Ascending.
    """
    with np.errstate(all="ignore"):
        relative = np.exp(logs - logs.max(axis=1, keepdims=True))
        mean = np.log(np.nan_to_num(relative).mean(axis=0))  # (n_coarse, n_units)
    mean -= mean.max(axis=0)
    own, heights, ends = coarse.copy(), np.maximum(mean, -2 * _DEPTH), []
    units, numbers = np.arange(coarse.shape[1]), np.arange(len(coarse))[:, None]
    for depth in (2.5, 5.0, 9.0, 14.0, 20.0, 1.2 * _DEPTH):
        inside = mean > -depth
        first, last = inside.argmax(axis=0), len(coarse) - 1 - inside[::-1].argmax(axis=0)
        outer = np.maximum(first - 1, 0), np.minimum(last + 1, len(coarse) - 1)
        ends += [
            _fallen(coarse, mean, near, far, depth)
            for near, far in zip((first, last), outer, strict=True)
        ]
    heights[(numbers < outer[0]) | (numbers > outer[1])] = -np.inf
    for end, near, far in zip(ends[-2:], (first, last), outer, strict=True):
        own[far, units] = end
        heights[far, units] = np.where(near == far, heights[far, units], -_DEPTH)
    parts = [
        quantiles(own, power * heights[None], _levels(n_places, coarse.shape[1]))[0]
        for power, n_places in ((0.7, 14), (0.2, 14))
    ]
    found: np.ndarray = np.sort(np.concatenate([np.stack(ends), *parts]), axis=0)
    return found


def _fallen(
    places: np.ndarray, logs: np.ndarray, inside: np.ndarray, outside: np.ndarray, depth: float
) -> np.ndarray:
    """Return where densities have fallen by some nats, between two numbered places, (n_units,).

    By the logarithm of the fall, which is linear even for double exponential tails.
    """
    units = np.arange(places.shape[1])
    near, far = (1.0 - logs[number, units] for number in (inside, outside))
    with np.errstate(all="ignore"):
        share = np.log((1.0 + depth) / near) / np.log(far / near)
    share = np.where(np.isfinite(far), np.where(far > near, share, 1.0), 0.5).clip(0.0, 1.0)
    start, end = places[inside, units], places[outside, units]
    found: np.ndarray = start + share * (end - start)
    return found


def _levels(n: int, n_units: int) -> np.ndarray:
    levels = np.broadcast_to((np.arange(n) + 0.5)[:, None] / n, (n, n_units))
    return np.ascontiguousarray(levels[None])
