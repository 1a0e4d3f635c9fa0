"""Which engine belongs to what users pass as an executor."""

from concurrent.futures import Executor
from typing import Any

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.rows.engines.executors import Engine, Pool, Threads

_ACCEPTED = (
    "a concurrent.futures.Executor, such as a ProcessPoolExecutor, or a dask.distributed.Client"
)


def engine_of(executor: Any) -> Engine:  # noqa: ANN401 - what users pass
    """Return the engine of what users pass as ``executor=``.

    Raises
    ------
    InvalidOptionError
        If it is no executor and no client of a Dask cluster.

    Examples
    --------
    >>> type(engine_of(None)).__name__
    'Threads'
    >>> engine_of(4)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: executor=4 must be a concurrent.futures.Executor,
    such as a ProcessPoolExecutor, or a dask.distributed.Client. (docs: troubleshooting#arguments)
    """
    if executor is None:
        return Threads()
    if type(executor).__module__.partition(".")[0] == "distributed":
        from pymc_coresets.rows.engines.clusters import cluster_of  # noqa: PLC0415

        cluster = cluster_of(executor)
        if cluster is not None:
            return cluster
    if isinstance(executor, type) or not isinstance(executor, Executor):
        raise InvalidOptionError(f"executor={executor!r} must be {_ACCEPTED}.")
    return Pool(executor)


def no_rows_for(executor: object) -> InvalidOptionError:
    """Return the error where there is an executor, but no ``rows=``."""
    return InvalidOptionError(
        f"executor={executor!r}: only rows=open_rows(...) are read and evaluated elsewhere. The "
        "data of the model itself are evaluated by threads of this process; leave executor out."
    )
