"""Which data containers of a model hold rows that the likelihood uses."""

from collections.abc import Sequence

import numpy as np
from pytensor.graph import Variable

from pymc_coresets.compat.pytensor_api import AdvancedSubtensor, DimShuffle
from pymc_coresets.reading.observations import Observations


def chosen_rows(
    values: np.ndarray, axes: Sequence[int], positions: np.ndarray
) -> tuple[int, np.ndarray]:
    """Take some rows of an array, or some cells where there are several axes.

    Parameters
    ----------
    values : ndarray
    axes : sequence of int
        The observation axis, or the axes of the cells.
    positions : ndarray of int
        Of the rows; of the cells in C order along `axes`.

    Returns
    -------
    axis : int
        Along which the rows lie: the first, where there are several axes.
    rows : ndarray

    Examples
    --------
    >>> chosen_rows(np.array([[0, 1, 2], [3, 4, 5]]), [0, 1], np.array([2, 3]))
    (0, array([2, 3]))
    """
    if len(axes) == 1:
        return axes[0], np.take(values, positions, axis=axes[0])
    cells = np.moveaxis(values, axes, range(len(axes)))
    return 0, cells[np.unravel_index(positions, cells.shape[: len(axes)])]


def row_containers(observations: Observations) -> dict[str, int]:
    """Return the number of the row array that each data container is, where it is just one.

    Parameters
    ----------
    observations : Observations

    Returns
    -------
    dict of str to int
        Positions in ``observations.rows``, by the name of the container.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(5.0))
    ...     y = pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(5))
    >>> list(row_containers(find_observations(model)))
    ['x']
    """
    names = {v.name for v in observations.model.data_vars}
    found: dict[str, list[int]] = {}
    for number, row in enumerate(observations.rows):
        source = _container(row.source, n_axes=len(observations.dims))
        if source.owner is None and source.name is not None and source.name in names:
            found.setdefault(source.name, []).append(number)
    return {name: numbers[0] for name, numbers in found.items() if len(numbers) == 1}


def _container(source: Variable, *, n_axes: int) -> Variable:
    """Return the matrix of which a row array has the cells, if that is all that it is."""
    node = source.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor) or n_axes < 2:
        return source
    table: Variable = node.inputs[0]
    if len(node.inputs) != n_axes + 1:
        return source
    while table.owner is not None and isinstance(table.owner.op, DimShuffle):
        table = table.owner.inputs[0]
    return table
