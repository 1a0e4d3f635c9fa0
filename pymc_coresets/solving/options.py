"""What every method checks of its options."""

import math
from operator import index

from pymc_coresets.exceptions import InvalidOptionError

__all__ = ["check_positive", "check_tolerance", "checked_size"]


def check_tolerance(tolerance: float | None) -> None:
    """Raise `InvalidOptionError` unless the tolerance is None or a positive number of nats.

    Examples
    --------
    >>> check_tolerance(0.01)
    """
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InvalidOptionError(
            f"tolerance must be a positive number of nats or None, but is {tolerance}"
        )


def check_positive(name: str, value: int) -> None:
    """Raise `InvalidOptionError` unless the option is at least 1.

    Examples
    --------
    >>> check_positive("max_iterations", 100)
    """
    if value < 1:
        raise InvalidOptionError(f"{name} must be at least 1, but is {value}")


def checked_size(size: int, n_obs: int) -> int:
    """Give ``size`` as an int, or raise `InvalidOptionError` unless it lies between 1 and n_obs.

    Examples
    --------
    >>> checked_size(3, 10)
    3
    """
    try:
        whole = index(size)
    except TypeError:
        raise InvalidOptionError(f"size must be an integer, but is {size!r}") from None
    if not 1 <= whole <= n_obs:
        raise InvalidOptionError(
            f"size must be between 1 and the number of observations n_obs={n_obs}, "
            f"but is size={whole}"
        )
    return whole
