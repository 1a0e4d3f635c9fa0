"""Errors of other libraries while they read, as our own."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymc_coresets.exceptions import InvalidDataError

_DAMAGED = "It may be truncated or damaged: write it again."
_TOO_LARGE = (
    "Let the process use more memory, or write the data in smaller row groups or partitions; a "
    "damaged file may ask for too much, too."
)
_RAISED = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,  # NotImplementedError is one
)  # fmt: skip - of files, whatever the format


@contextmanager
def reading_errors(where: str, remedy: str = _DAMAGED) -> Iterator[None]:
    """Turn errors of reading into ours, which name the place.

    Parameters
    ----------
    where : str
        A file, a partition, some rows.
    remedy : str
        What to do where the error itself does not tell.

    Raises
    ------
    InvalidDataError
        If the file is missing, unreadable, truncated or damaged, or there is too little memory.

    Examples
    --------
    >>> with reading_errors("flights.parquet"):
    ...     raise OSError("unexpected end of stream")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidDataError: flights.parquet cannot be read: unexpected end of
    stream. It may be truncated or damaged: write it again. (docs: troubleshooting#rows-and-files)
    """
    try:
        yield
    except InvalidDataError:
        raise
    except FileNotFoundError as error:
        raise InvalidDataError(
            f"{where} is missing ({error}): put it back, or open the other files with open_rows."
        ) from error
    except PermissionError as error:
        raise InvalidDataError(f"{where} may not be read: change its permissions.") from error
    except MemoryError as error:
        raise InvalidDataError(
            f"{where} does not fit into memory ({error}). {_TOO_LARGE}"
        ) from error
    except _RAISED as error:
        said = str(error).strip().rstrip(".") or type(error).__name__
        raise InvalidDataError(f"{where} cannot be read: {said}. {remedy}") from error
