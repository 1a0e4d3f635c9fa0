"""What finds the rows of a source by chunks, computes what Dask holds, and names what fails."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymc_coresets.exceptions import CoresetError, InvalidDataError
from pymc_coresets.rows.sources.chunks import Chunk, Piece
from pymc_coresets.rows.sources.columns import (
    Field,
    Table,
    library_of,
    read_column,
    required_table,
)

_OF_A_CLUSTER = "dask.distributed"  # the name of the scheduler of a Client

_DAMAGED = "It may be truncated or damaged: write it again."
_LOADING = "Try to load these rows without open_rows."
_TOO_LARGE = (
    "Let the process use more memory, or write the data in smaller row groups or partitions; a "
    "damaged file may ask for too much, too."
)
# Of files, whatever the format; NotImplementedError is a RuntimeError.
_RAISED = (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError)


@dataclass(kw_only=True, eq=False)
class Reader:
    """Finds the rows of a source; knows nothing of models, labels and weights.

    Nor of the layout: the chunks hold what is needed to find their rows.

    Parameters
    ----------
    find : callable
        Returns what holds some columns of a chunk, given the chunk and the names of the columns:
        frames, mappings from names to arrays or collections of Dask, one after the other.
    fields : mapping from str to Field
        What each column holds.
    kind : str
        For `repr`: ``"Parquet"``.
    noun : str
        What `Piece.file` names: ``"file"``, ``"partition"``; empty for tables in memory.
    divisible : bool
        Whether a large piece may be divided into several chunks.
    in_files : bool
        Whether every process can find the rows by what is pickled.
    """

    find: Callable[[Chunk, Sequence[str]], Iterable[Any]]
    fields: Mapping[str, Field]
    kind: str = ""
    noun: str = ""
    divisible: bool = True
    in_files: bool = False

    def tables(self, chunk: Chunk, names: Sequence[str]) -> list[Table]:
        """Read some columns of a chunk: tables that hold its rows, one after the other."""
        with reading_errors(chunk.where, _DAMAGED if self.in_files else _LOADING):
            return list(map(required_table, computed(list(self.find(chunk, names)))))

    def sent(self, chunk: Chunk, names: Sequence[str], *, to_dask: bool) -> list[Any]:
        """Return what becomes these tables in another process: values, or collections of Dask."""
        with reading_errors(chunk.where, _LOADING):
            found = list(self.find(chunk, names))
            if to_dask and all(map(is_dask, found)):
                return found
            tables = map(required_table, computed(found))
            return [{n: read_column(table[n]) for n in names if n in table} for table in tables]


type Opened = tuple[Reader, Sequence[Piece]]  # and where its rows lie, in order


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
    except CoresetError:
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


# -- Dask ------------------------------------------------------------------------------------------


def is_dask(part: Any) -> bool:  # noqa: ANN401
    """Whether Dask computes a frame, or all columns of a mapping.

    Examples
    --------
    >>> is_dask({"x": [0.5]})
    False
    """
    return all(library_of(each) == "dask" for each in _columns(part))


def computed(parts: list[Any]) -> list[Any]:
    """Compute what is Dask's by the user's scheduler; without one, in the thread that asks.

    Chunks are read by several threads already.  A task of a cluster asks the cluster, which knows
    where persisted partitions lie, and gives up its own place until they have come.

    Examples
    --------
    >>> computed([{"x": [0.5]}])
    [{'x': [0.5]}]
    """
    if not any(library_of(each) == "dask" for part in parts for each in _columns(part)):
        return parts
    import dask.base  # noqa: PLC0415

    scheduler = dask.config.get("scheduler", None) or "synchronous"
    if _in_a_task():
        with sys.modules["distributed"].worker_client() as client:
            return list(dask.base.compute(*parts, scheduler=client))
    if scheduler == _OF_A_CLUSTER:
        from pymc_coresets.rows.clusters import Cluster  # noqa: PLC0415

        Cluster(sys.modules["distributed"].default_client()).await_workers("a Dask collection")
    return list(dask.base.compute(*parts, scheduler=scheduler))


def _columns(part: Any) -> Iterable[Any]:  # noqa: ANN401
    return part.values() if isinstance(part, Mapping) else [part]


def _in_a_task() -> bool:
    distributed = sys.modules.get("distributed")
    try:
        return distributed is not None and bool(distributed.get_worker())
    except ValueError:
        return False
