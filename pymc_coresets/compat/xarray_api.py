"""What xarray does not make public: whether the data of a variable were loaded."""

from typing import Any

__all__ = ["lies_in_memory"]


def lies_in_memory(variable: Any) -> bool:  # noqa: ANN401
    """Whether a variable holds its data, and not the file that they are read from.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> lies_in_memory(xr.Variable("row", np.zeros(3)))
    True
    """
    loaded: bool = variable._in_memory  # noqa: SLF001
    return loaded
