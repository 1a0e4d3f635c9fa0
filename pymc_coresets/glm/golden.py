"""Points and rows spread evenly, by multiples of the golden ratio."""

import numpy as np

_RATIO = (np.sqrt(5.0) - 1.0) / 2.0


def evenly_spread(n: int) -> np.ndarray:
    """Return `n` numbers between 0 and 1 that fill the interval evenly, in no period.

    They are the multiples of the golden ratio, modulo 1.  A sequence in base 2, such as
    `scipy.stats.qmc.Halton`, would meet only some of the groups where rows repeat in periods.

    Examples
    --------
    >>> evenly_spread(4).round(3)
    array([0.618, 0.236, 0.854, 0.472])
    """
    spread: np.ndarray = np.arange(1, n + 1) * _RATIO % 1.0
    return spread


def spread_rows(n_obs: int, most: int) -> np.ndarray:
    """Return positions of at most `most` rows, spread evenly over the data; all, if they are few.

    Parameters
    ----------
    n_obs : int
        Number of rows.
    most : int
        Largest number of positions.

    Returns
    -------
    ndarray of int
        Sorted and unique.

    Examples
    --------
    >>> spread_rows(3, 10), spread_rows(1000, 3)
    (array([0, 1, 2]), array([236, 618, 854]))
    """
    if n_obs <= most:
        return np.arange(n_obs)
    return np.unique((evenly_spread(most) * n_obs).astype(np.int64))
