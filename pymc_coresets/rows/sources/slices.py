"""Tables whose columns are read by slices: in memory, in files, or computed by Dask."""

import math
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from mmap import mmap
from typing import Any

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.rows.sources.readers import (
    BLOCK_ROWS,
    Chunk,
    Location,
    Opened,
    Piece,
    Reader,
    reading_errors,
)
from pymc_coresets.rows.sources.tables import (
    RowsFirst,
    Table,
    column_field,
    fields_of,
    is_lazy,
    library_of,
    n_rows_of,
    named_columns,
    rows_first,
)

_OF_A_CLUSTER = "dask.distributed"  # the name of the scheduler of a Client
_LOADING = "Try to load these rows without open_rows."


class ColumnsReader(Reader):
    """A table, of which slices along the first axis are read.

    Parameters
    ----------
    table : Table
    kind : str
        See `Reader`.
    """

    def __init__(self, table: Table, kind: str) -> None:
        self._table, self.kind, self.fields = table, kind, fields_of(table)
        self.divisible = not any(map(is_lazy, table.values()))
        if all(library_of(column) == "dask" for column in table.values()):
            self.location = Location.WITH_DASK
        elif all(map(_is_stored, table.values())):
            self.location = Location.IN_FILES
        self.n_bytes = sum(map(_size, table.values()))

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Read slices, see `Reader.tables`; those of Dask at once, for they may share work."""
        rows = _rows_of(chunk)
        with reading_errors(f"rows {rows.start} to {rows.stop - 1}", _LOADING):
            some = {name: self._table[name][rows] for name in names}
            if any(library_of(column) == "dask" for column in some.values()):
                some = computed(some)
        yield named_columns(some.items())

    def collections(self, chunk: Chunk, names: Sequence[str]) -> list[Any]:
        """Return slices of Dask arrays, see `Reader.collections`."""
        return [{name: self._table[name][_rows_of(chunk)] for name in names}]

    def __getstate__(self) -> dict[str, Any]:
        stored = {name: _mapped_file(column) for name, column in self._table.items()}
        return vars(self) | {"_table": stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = state.pop("_table").items()
        table = {n: np.memmap(**c) if isinstance(c, dict) else c for n, c in stored}
        vars(self).update(state, _table=table)


def open_columns(table: Table, kind: str) -> Opened:
    """Return the reader of a table, and how its rows are divided."""
    reader, n_rows = ColumnsReader(table, kind), n_rows_of(table)
    if reader.divisible:
        return reader, [Piece("", "", n_rows)]
    cuts = np.cumsum([0, *_blocks_of_rows(list(table.values()), n_rows)])
    return reader, [Piece("", "", int(b - a), int(a)) for a, b in pairwise(cuts)]


def _rows_of(chunk: Chunk) -> slice:
    first, last = chunk.pieces[0], chunk.pieces[-1]
    return slice(first.origin, last.origin + last.n_rows)


def dataset_columns(dataset: Any, dim: str | None) -> Table:  # noqa: ANN401
    """Return the variables of an xarray dataset that have the dimension of the rows, as a table.

    Raises
    ------
    InvalidOptionError
        If `dim` is no dimension, or not given where there are several.

    Examples
    --------
    >>> import xarray as xr
    >>> dataset = xr.Dataset({"y": ("row", np.zeros(3)), "m": ("feature", np.zeros(2))})
    >>> list(dataset_columns(dataset, "row"))
    ['y']
    """
    if not hasattr(dataset, "data_vars"):
        raise InvalidOptionError(
            "An xarray.DataArray has no columns: pass {'name': array}, or an xarray.Dataset."
        )
    dims = [str(d) for d in dataset.dims]
    if dim is None and len(dims) == 1:
        dim = dims[0]
    if dim not in dims:
        raise InvalidOptionError(
            f"dim={dim!r} must name the dimension of the rows, one of {', '.join(dims)}."
        )
    found = {str(n): v for n, v in dataset.data_vars.items() if dim in v.dims}
    if not found:
        raise InvalidOptionError(f"dim={dim!r}: no variable of the dataset has this dimension.")
    return {name: rows_first(array, dim) for name, array in found.items()}


def _is_stored(array: Any) -> bool:  # noqa: ANN401
    """Whether the pickle of an array holds the path of a file, and no data."""
    if isinstance(array, RowsFirst):
        return not array.in_memory
    return library_of(array) == "zarr" and hasattr(array.store, "root")


def _size(column: Any) -> int:  # noqa: ANN401
    """Return the size in bytes, as far as the column tells."""
    if is_lazy(column):
        return int(math.prod(column.shape)) * column_field(column).dtype.itemsize
    return int(column.nbytes)


def _mapped_file(column: Any) -> Any:  # noqa: ANN401
    """Return how a memory-mapped array is opened again; other columns, and views, themselves."""
    if not isinstance(column, np.memmap) or not isinstance(column.base, mmap):
        return column
    order = "C" if column.flags.c_contiguous else "F"
    return {
        "filename": column.filename, "dtype": column.dtype, "mode": "r",
        "offset": column.offset, "shape": column.shape, "order": order,
    }  # fmt: skip


def _blocks_of_rows(arrays: Sequence[Any], n_rows: int) -> list[int]:
    """Return numbers of rows that are stored together, as far as the arrays tell."""
    for array in arrays:
        if library_of(array) == "dask":
            return list(array.chunks[0])
    size = max(map(_stored_rows, arrays), default=0) or BLOCK_ROWS
    size *= max(1, BLOCK_ROWS // size)
    return [min(size, n_rows - start) for start in range(0, n_rows, size)]


def _stored_rows(array: Any) -> int:  # noqa: ANN401
    """Return the number of rows of a block of an array in a file; 0 if it is not known."""
    chunks = getattr(array, "chunks", None)
    return int(chunks[0]) if isinstance(chunks, tuple) and chunks else 0


# -- Dask ------------------------------------------------------------------------------------------


def computed(collection: Any) -> Any:  # noqa: ANN401
    """Compute by the user's scheduler; without one, in the thread that asks.

    Chunks are read by several threads already.  A task of a cluster asks the cluster, which knows
    where persisted partitions lie, and gives up its own place until they have come.
    """
    import dask.base  # noqa: PLC0415

    if _in_a_task():
        with sys.modules["distributed"].worker_client() as client:
            return dask.base.compute(collection, scheduler=client)[0]
    scheduler = dask.config.get("scheduler", None) or "synchronous"
    if scheduler == _OF_A_CLUSTER:
        from pymc_coresets.rows.clusters import Cluster  # noqa: PLC0415

        client = sys.modules["distributed"].default_client()
        Cluster(client).await_workers("a Dask collection")
    return dask.base.compute(collection, scheduler=scheduler)[0]


def _in_a_task() -> bool:
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True
