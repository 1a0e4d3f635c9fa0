"""Everything the package raises or warns with, under one base each."""


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
