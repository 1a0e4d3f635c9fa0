"""Which columns hold the numbers of levels: those by which variables are looked up."""

from collections.abc import Mapping

import numpy as np

from pymc_coresets.potentials.code_checks import lookups
from pymc_coresets.reading.observations import TERM_OF_ROW, Observations
from pymc_coresets.reading.pushdown import UNNAMED, RowArray
from pymc_coresets.results.columns import Levels


def levels_of_rows(observations: Observations) -> Mapping[int, tuple[str, Levels]]:
    """Find the row arrays that are indices of variables, as ``group`` in ``effect[group]``.

    Parameters
    ----------
    observations : Observations

    Returns
    -------
    mapping of int to (str, Levels)
        By the position in ``observations.rows``: the name of the column, and its levels.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"shop": ["a", "b"]}) as model:
    ...     effect = pm.Normal("effect", dims="shop")
    ...     y = pm.Normal("y", effect[np.array([0, 1, 1])], 1.0, observed=np.ones(3))
    >>> [(name, levels)] = levels_of_rows(find_observations(model)).values()
    >>> name, levels.labels.tolist()
    ('shop', ['a', 'b'])
    """
    found = lookups(observations)
    levels: dict[int, tuple[str, Levels]] = {}
    for number, row in enumerate(observations.rows):
        if observations.sets and row.name == TERM_OF_ROW:
            levels[number] = row.name, Levels(np.array([s.names for s in observations.sets]))
        uses = [lookup for lookup in found if lookup.codes is row.placeholder]
        if not uses or row.values.ndim > 1:
            continue
        length, table = max(lookup.length for lookup in uses), uses[0].table
        dims = (d for lookup in uses for d in _dims_of_length(observations, lookup.table, length))
        dim = next(dims, None)
        labels = np.arange(length) if dim is None else level_labels(observations, dim, length)
        name = row.name if row.name != UNNAMED else dim or f"index of {table}"
        levels[number] = name, Levels(labels)
    return levels


def own_values(row: RowArray, values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the values of a row array, with NaN for rows of other likelihood terms.

    Parameters
    ----------
    row : RowArray
    values : ndarray
        For some rows, which lie along the first axis.
    positions : ndarray of int
        Of these rows.
    """
    if row.own is None:
        return values
    start, stop = row.own
    own = (positions >= start) & (positions < stop)
    return np.where(own.reshape(-1, *[1] * (values.ndim - 1)), values, np.nan)


def level_labels(observations: Observations, dim: str, length: int) -> np.ndarray:
    """Return the labels of a dimension; numbers where it has none."""
    labels = observations.model.coords.get(dim)
    return np.arange(length) if labels is None else np.asarray(labels)


def _dims_of_length(observations: Observations, table: str, length: int) -> list[str]:
    dims, coords = observations.model.named_vars_to_dims.get(table, ()), observations.model.coords
    return [dim for dim in dims if dim is not None and len(coords.get(dim) or ()) == length]
