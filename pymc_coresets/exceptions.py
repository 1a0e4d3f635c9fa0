"""Everything the package raises or warns with, under one base each.

What is printed of an error or a warning ends with the section of `docs/troubleshooting.md` that
says more: that of the class, or the one that ``topic=`` names where the error is raised.
"""

import contextlib
import os
import warnings
from pathlib import Path
from typing import ClassVar

_PACKAGE = str(Path(__file__).parent) + os.sep
#: Files between a user's line and a warning: what `with` enters is called by the standard library.
_OURS = (_PACKAGE, contextlib.__file__.removesuffix(".py"))  # a whole name is not skipped
_WARNINGS = "warnings"  # their section


class CoresetError(Exception):
    """Base of every error that :mod:`pymc_coresets` raises on purpose.

    The message says what was found, in which variable, and what to do instead. After it stands
    where the documentation says more.

    Parameters
    ----------
    *args : object
        The message.
    topic : str, optional
        Section of the page on troubleshooting; by default that of the class.

    Examples
    --------
    >>> from pymc_coresets import CoresetError
    >>> error = CoresetError("There is no sky.")
    >>> error.message
    'There is no sky.'
    >>> print(error)
    There is no sky. (docs: troubleshooting#other-errors)
    """

    #: Section of what is raised without another one.
    section: ClassVar[str] = "other-errors"

    def __init__(self, *args: object, topic: str = "") -> None:
        super().__init__(*args)
        self.topic = topic or self.section

    def __str__(self) -> str:
        return _with_section(self.message, self.topic)

    @property
    def message(self) -> str:
        """The message, without the section of the documentation."""
        return super().__str__()


def _with_section(message: str, topic: str) -> str:
    return f"{message} (docs: troubleshooting#{topic})"


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

    section = "models-that-are-refused"


class InvalidOptionError(CoresetError, ValueError):
    """An argument has a value outside its range, an unknown name, or a wrong shape.

    Examples
    --------
    >>> from pymc_coresets import InvalidOptionError, Pursuit
    >>> try:
    ...     Pursuit(tolerance=-1.0)
    ... except InvalidOptionError as error:
    ...     print(error)
    tolerance=-1.0 must be a positive, finite number. (docs: troubleshooting#arguments)
    """

    section = "arguments"


class InvalidDataError(CoresetError, ValueError):
    """Data, draws or log-likelihoods contain NaN or infinite values, or have incompatible shapes.

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

    section = "the-data-and-the-model"


class SamplingError(CoresetError, RuntimeError):
    """A sampler or optimiser that the construction relies on failed.

    Examples
    --------
    >>> from pymc_coresets import CoresetError, SamplingError
    >>> issubclass(SamplingError, CoresetError)
    True
    """

    section = "sampling"


class OutOfTimeError(CoresetError):
    """The `time_budget` was used up before there was a coreset, or draws of it.

    Examples
    --------
    >>> from pymc_coresets import CoresetError, OutOfTimeError
    >>> issubclass(OutOfTimeError, CoresetError)
    True
    """

    section = "sampling"


class CoresetWarning(UserWarning):
    """Base of the package's warnings: the result is usable, with a caveat.

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
        The finding, and the remedy.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_user("few draws: sample more.")
    >>> caught[0].category.__name__
    'CoresetWarning'
    """
    warnings.warn(_with_section(message, _WARNINGS), CoresetWarning, skip_file_prefixes=_OURS)
