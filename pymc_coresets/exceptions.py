"""Everything the package raises or warns with, under one base each."""

import os
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent) + os.sep


class CoresetError(Exception):
    """Base of every error that :mod:`pymc_coresets` raises on purpose.

    The message says what was found, in which variable, and what to do instead.

    Examples
    --------
    >>> from pymc_coresets import CoresetError
    >>> issubclass(CoresetError, Exception)
    True
    """


class UnsupportedModelError(CoresetError):
    """The model cannot be summarised as it stands: no observation axis, local variables, ..."""


class InvalidOptionError(CoresetError, ValueError):
    """An argument has a value outside its range, an unknown name, or a wrong shape."""


class InvalidDataError(CoresetError, ValueError):
    """Data, draws or potentials contain NaN or infinite values, or have incompatible shapes."""


class SamplingError(CoresetError, RuntimeError):
    """A sampler or optimiser that the construction relies on failed."""


class CoresetWarning(UserWarning):
    """Base of the package's warnings: the result is usable, but not without knowing this."""


def warn_user(message: str) -> None:
    """Issue a :class:`CoresetWarning` that points to the line that called the package.

    Parameters
    ----------
    message : str
        What was found, and what to do.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_user("few draws: sample more.")
    >>> caught[0].category.__name__
    'CoresetWarning'
    """
    warnings.warn(message, CoresetWarning, skip_file_prefixes=(_PACKAGE,))
