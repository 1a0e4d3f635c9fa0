"""Checks of what users pass: whole numbers, positive numbers, flags, names, seeds."""

import math
from collections.abc import Callable, Collection, Sequence
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError

_MOST = 2**31 - 1


def whole_number(name: str, value: Any, *, least: int, most: int = _MOST) -> int:  # noqa: ANN401
    """Return ``value`` as an int between ``least`` and ``most``.

    Parameters
    ----------
    name : str
        Name of the option, for the message.
    value : object
        The user's argument.  True, False and 2.0 are refused.
    least : int
        Smallest value that is allowed.
    most : int, default 2**31 - 1
        Largest value that is allowed.

    Returns
    -------
    int

    Raises
    ------
    InvalidOptionError
        If the value is not a whole number, or lies outside the range.

    Examples
    --------
    >>> whole_number("degree", 2, least=1, most=20)
    2
    >>> whole_number("degree", 0, least=1, most=20)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: degree=0 must lie between 1 and 20.
    (docs: troubleshooting#arguments)
    """
    try:
        number: Any = "True or False" if isinstance(value, bool | np.bool_) else value
        whole = index(number)
    except TypeError as error:
        raise InvalidOptionError(f"{name}={value!r} must be a whole number.") from error
    if whole < least and most == _MOST:
        raise InvalidOptionError(f"{name}={whole} must be at least {least}.")
    if not least <= whole <= most:
        raise InvalidOptionError(f"{name}={whole} must lie between {least} and {most}.")
    return whole


def positive_number(name: str, value: object, *, below: float = math.inf) -> float:
    """Return ``value`` as a float that is positive and finite.

    Parameters
    ----------
    name : str
        Name of the option, for the message.
    value : object
        The user's argument.  True and False are refused.
    below : float, optional
        Exclusive upper limit of the value.

    Returns
    -------
    float

    Raises
    ------
    InvalidOptionError
        If the value is not a number, not positive, too large, infinite or NaN.

    Examples
    --------
    >>> positive_number("tolerance", 1)
    1.0
    >>> positive_number("tolerance", float("nan"))
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: tolerance=nan must be a positive, finite number.
    (docs: troubleshooting#arguments)
    """
    number = math.nan
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            number = float(value)
    except OverflowError:
        pass
    if not 0 < number < below:
        kind = "positive, finite number" if below == math.inf else f"number between 0 and {below:g}"
        raise InvalidOptionError(f"{name}={value!r} must be a {kind}.")
    return number


def if_given[T](
    check: Callable[..., T],
    name: str,
    value: object,
    **limits: Any,  # noqa: ANN401
) -> T | None:
    """Return an optional ``value`` as one of the checks here does; or None, if the user gave none.

    Examples
    --------
    >>> [if_given(whole_number, "draws", value, least=30) for value in (None, 40)]
    [None, 40]
    """
    return None if value is None else check(name, value, **limits)


def flag(name: str, value: object) -> bool:
    """Return ``value`` as a bool, if it is True or False.

    Parameters
    ----------
    name : str
        Name of the option, for the message.
    value : object
        The user's argument.  0, 1, None and strings are refused.

    Returns
    -------
    bool

    Raises
    ------
    InvalidOptionError
        If it is anything else.

    Examples
    --------
    >>> flag("collapse", "no")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: collapse='no' must be True or False.
    (docs: troubleshooting#arguments)
    """
    if not isinstance(value, bool | np.bool_):
        raise InvalidOptionError(f"{name}={value!r} must be True or False.")
    return bool(value)


def one_of(name: str, value: object, choices: Collection[str]) -> str:
    """Return ``value``, if it is one of some words.

    Parameters
    ----------
    name : str
        Name of the option, for the message.
    value : object
        The user's argument.
    choices : collection of str
        The words that are allowed.

    Returns
    -------
    str

    Raises
    ------
    InvalidOptionError
        If it is another value.

    Examples
    --------
    >>> one_of("kind", "bar", ["dist", "forest"])
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: kind='bar' must be one of ['dist', 'forest'].
    (docs: troubleshooting#arguments)
    """
    if not isinstance(value, str) or value not in choices:
        raise InvalidOptionError(f"{name}={value!r} must be one of {list(choices)!r}.")
    return value


def flag_or(name: str, value: object, usual: bool) -> bool:  # noqa: FBT001
    """Return ``value`` as a bool, see `flag`; or what is usual, if the user gave none.

    Examples
    --------
    >>> flag_or("progressbar", None, True), flag_or("progressbar", False, True)
    (True, False)
    """
    return usual if value is None else flag(name, value)


def names_of(name: str, value: object) -> str | list[str] | None:
    """Return the name or the names of variables, or None.

    Parameters
    ----------
    name : str
        Name of the option, for the message.
    value : object
        The user's argument.

    Returns
    -------
    str, list of str, or None

    Raises
    ------
    InvalidOptionError
        If it is neither a name nor a sequence of names.

    Examples
    --------
    >>> names_of("observed", ("y", "z"))
    ['y', 'z']
    >>> names_of("observed", 1)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: observed=1 must be a name, or a list of names.
    (docs: troubleshooting#arguments)
    """
    if value is None or (isinstance(value, str) and value):
        return value
    if (
        not isinstance(value, str | bytes)
        and isinstance(value, Sequence)
        and all(isinstance(item, str) for item in value)
    ):
        return list(value)
    raise InvalidOptionError(f"{name}={value!r} must be a name, or a list of names.")


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
    (docs: troubleshooting#arguments)
    """
    if isinstance(random_seed, np.random.RandomState):  # NumPy before 2.2 takes none for a seed
        random_seed = random_seed.randint(2**32, size=4, dtype=np.uint32)
    try:
        if not isinstance(random_seed, bool):
            rng = np.random.default_rng(random_seed)
            spawns = hasattr(rng.bit_generator.seed_seq, "spawn")  # not that of a RandomState
            return rng if spawns else np.random.default_rng(rng.integers(2**32, size=4))
    except (TypeError, ValueError):
        pass
    raise InvalidOptionError(
        f"random_seed={random_seed!r} must be a whole number that is not negative, a sequence of "
        "them, a numpy.random.Generator, or None."
    )


def unwritable(path: str | Path, error: Exception) -> InvalidOptionError:
    """Return what to raise where the system refuses to write a file.

    Examples
    --------
    >>> unwritable("y.zarr", OSError(28, "No space left on device")).message
    'y.zarr cannot be written: No space left on device. Name another place, or make room there.'
    """
    reason = getattr(error, "strerror", None) or error
    return InvalidOptionError(
        f"{path} cannot be written: {reason}. Name another place, or make room there."
    )
