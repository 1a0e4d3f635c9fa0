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
    """The model cannot be summarised as it stands: no observation axis, local variables, ...

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import UnsupportedModelError, build_coreset
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    >>> try:
    ...     build_coreset(model, progressbar=False)
    ... except UnsupportedModelError as error:
    ...     print("refused")
    refused
    """


class InvalidOptionError(CoresetError, ValueError):
    """An argument has a value outside its range, an unknown name, or a wrong shape.

    Examples
    --------
    >>> from pymc_coresets import InvalidOptionError, Pursuit
    >>> try:
    ...     Pursuit(tolerance=-1.0)
    ... except InvalidOptionError as error:
    ...     print(error)
    tolerance=-1.0 must be a positive, finite number.
    """


class InvalidDataError(CoresetError, ValueError):
    """Data, draws or potentials contain NaN or infinite values, or have incompatible shapes.

    Examples
    --------
    >>> import xarray as xr
    >>> from pymc_coresets import InvalidDataError, compare
    >>> try:
    ...     compare(xr.Dataset(), xr.Dataset())
    ... except InvalidDataError as error:
    ...     print("refused")
    refused
    """


class SamplingError(CoresetError, RuntimeError):
    """A sampler or optimiser that the construction relies on failed.

    Examples
    --------
    >>> from pymc_coresets import CoresetError, SamplingError
    >>> issubclass(SamplingError, CoresetError)
    True
    """


class CoresetWarning(UserWarning):
    """Base of the package's warnings: the result is usable, but not without knowing this.

    Examples
    --------
    >>> import warnings
    >>> from pymc_coresets import CoresetWarning
    >>> warnings.simplefilter("error", CoresetWarning)  # to be stopped by them
    >>> warnings.simplefilter("default", CoresetWarning)
    """


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
