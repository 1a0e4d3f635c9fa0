"""Where the rows of a variable with missing values lie in the user's own data."""

from collections.abc import Sequence

import numpy as np
import pymc as pm
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import evaluate

__all__ = ["common_positions"]

_SUFFIX = "_observed"  # PyMC's name for the part of a variable that is not missing


def common_positions(model: pm.Model, names: Sequence[str]) -> np.ndarray | None:
    """Position of each observation in the user's data, where PyMC imputes missing values.

    PyMC splits a variable with missing values in an observed one, whose rows are numbered anew,
    and a free one.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        The observed variables to summarise.

    Returns
    -------
    ndarray of int64, or None
        Sorted positions (in the raveled data, where single entries of rows are missing); ``None``
        where no value is missing.

    Raises
    ------
    UnsupportedModelError
        If the variables lack values in different rows.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array([1.0, 2.0, 3.0]))
    >>> common_positions(model, ["y"]) is None
    True
    """
    found = [_positions(model, name) for name in names]
    first = found[0]
    for name, other in zip(names[1:], found[1:], strict=True):
        if not _same(first, other):
            raise UnsupportedModelError(
                f"{names[0]!r} and {name!r} have missing values in different rows, and cannot "
                "form one observation together. Summarise one of them with observed=[...]."
            )
    return first


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _positions(model: pm.Model, name: str) -> np.ndarray | None:
    whole = name.removesuffix(_SUFFIX)
    if whole == name or f"{whole}_unobserved" not in model.named_vars:
        return None
    for variable in ancestors([model[whole]]):
        node = variable.owner
        if node is not None and isinstance(node.op, AdvancedIncSubtensor):
            _, part, *index = node.inputs
            if part is model[name]:
                indices = evaluate(index)
                shape = evaluate([model[whole].shape])[0]
                return _flat_positions(indices, tuple(int(n) for n in shape))
    return None


def _flat_positions(index: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    if len(index) == 1 and index[0].dtype == bool:
        return np.flatnonzero(index[0])
    n_indexed = len(index)
    return np.ravel_multi_index(tuple(index), shape[:n_indexed])
