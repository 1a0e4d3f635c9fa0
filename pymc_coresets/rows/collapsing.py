"""Rows that are the same observation several times."""

import numpy as np

from pymc_coresets.reading.pushdown import RowArray

__all__ = ["collapse_rows"]


def collapse_rows(arrays: list[RowArray], n_obs: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge rows that are identical in every row array: they have the same potential.

    Exact, in one sort of N fixed-length keys; time O(N log N) and memory O(N) times the length of
    a row.

    Parameters
    ----------
    arrays : list of RowArray
        Everything that is indexed by the observation.
    n_obs : int
        Number of rows N.

    Returns
    -------
    indices : ndarray of int64
        The first row of each kind, sorted.
    counts : ndarray of float64
        How many rows are like it; they sum to N.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=[1, 0, 1, 1])
    >>> collapse_rows(list(find_observations(model).rows), 4)
    (array([0, 1]), array([3., 1.]))
    """
    columns = [np.moveaxis(a.values, a.axis, 0).reshape(n_obs, -1) for a in arrays]
    # Adding zero makes -0.0 and 0.0 the same key.
    columns = [c + 0.0 if c.dtype.kind == "f" else c for c in columns]
    keys = np.concatenate(
        [np.ascontiguousarray(c).view(np.uint8).reshape(n_obs, -1) for c in columns], axis=1
    )
    whole = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).reshape(n_obs)
    _, first, counts = np.unique(whole, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order].astype(float)
