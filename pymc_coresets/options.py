"""Checks of what users pass: whole numbers, positive numbers, seeds."""

import math
from collections.abc import Sequence
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError

__all__ = ["generator", "positive_number", "whole_number"]


def whole_number(name: str, value: Any, *, least: int, most: int | None = None) -> int:  # noqa: ANN401
    """Return ``value`` as an int between ``least`` and ``most``.

    Parameters
    ----------
    name : str
        Name of the option, for the message.
    value : object
        What the user passed.  True and False are no numbers, and neither is 2.0.
    least : int
        Smallest value that is allowed.
    most : int, optional
        Largest value that is allowed.

    Returns
    -------
    int

    Raises
    ------
    InvalidOptionError
        If the value is no whole number, or lies outside the range.

    Examples
    --------
    >>> whole_number("degree", 2, least=1, most=20)
    2
    >>> whole_number("degree", 0, least=1, most=20)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: degree=0 must lie between 1 and 20.
    """
    try:
        whole = None if isinstance(value, bool) else index(value)
    except TypeError:
        whole = None
    if whole is None:
        raise InvalidOptionError(f"{name}={value!r} must be a whole number.")
    if most is not None and not least <= whole <= most:
        raise InvalidOptionError(f"{name}={whole} must lie between {least} and {most}.")
    if whole < least:
        raise InvalidOptionError(f"{name}={whole} must be at least {least}.")
    return whole


def positive_number(name: str, value: Any) -> float:  # noqa: ANN401
    """Return ``value`` as a float that is positive and finite.

    Parameters
    ----------
    name : str
        Name of the option, for the message.
    value : object
        What the user passed.  True and False are no numbers.

    Returns
    -------
    float

    Raises
    ------
    InvalidOptionError
        If the value is no number, not positive, infinite or NaN.

    Examples
    --------
    >>> positive_number("tolerance", 1)
    1.0
    >>> positive_number("tolerance", float("nan"))
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: tolerance=nan must be a positive, finite number.
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):
        raise InvalidOptionError(f"{name}={value!r} must be a positive, finite number.")
    return float(value)


def generator(
    random_seed: int | Sequence[int] | np.random.SeedSequence | np.random.Generator | None,
) -> np.random.Generator:
    """Return the random generator that a ``random_seed`` stands for.

    Parameters
    ----------
    random_seed : int, sequence of int, SeedSequence or Generator, optional
        What `numpy.random.default_rng` accepts, without True and False.  A Generator is used
        itself, not a copy of it; None takes fresh entropy from the operating system.

    Returns
    -------
    numpy.random.Generator

    Raises
    ------
    InvalidOptionError
        If the seed is of another type, or negative.

    Examples
    --------
    >>> bool(generator(1).random() == generator(1).random())
    True
    >>> generator("a")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: random_seed='a' must be a whole number that is not
    negative, a sequence of them, a numpy.random.Generator, or None.
    """
    try:
        if not isinstance(random_seed, bool):
            return np.random.default_rng(random_seed)
    except (TypeError, ValueError):
        pass
    raise InvalidOptionError(
        f"random_seed={random_seed!r} must be a whole number that is not negative, a sequence of "
        "them, a numpy.random.Generator, or None."
    )
