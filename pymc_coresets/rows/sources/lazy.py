"""Sources that are computed or read when they are asked: Dask frames, and arrays by slices."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pymc_coresets.compat.xarray_api import lies_in_memory
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.readers import (
    BLOCK_ROWS,
    Chunk,
    Location,
    Opened,
    Piece,
    Reader,
    reading_errors,
)
from pymc_coresets.rows.sources.tables import Table, array_field, library_of, table_of

_OF_A_CLUSTER = "dask.distributed"  # the name of the scheduler of a Client
_COMPUTING = "Try to compute it without open_rows."
_LOADING = "Try to load these rows without open_rows."


class DaskFrameReader(Reader):
    """A Dask frame, whose partitions are computed by the scheduler that is set up, or right here.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    """

    kind, noun, divisible, location = "Dask", "partition", False, Location.WITH_DASK

    def __init__(self, frame: Any) -> None:  # noqa: ANN401
        self._names = {str(name): name for name in frame.columns}
        if len(self._names) < len(frame.columns):
            raise InvalidOptionError("Two columns of the frame have the same name: rename one.")
        self._frame = frame
        table = table_of(frame._meta_nonempty)  # noqa: SLF001
        assert table is not None
        self.fields = table.fields

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Compute some columns of partitions, see `Reader.tables`."""
        for segment, partition in zip(chunk.segments, self.collections(chunk, names), strict=True):
            with reading_errors(segment.piece.where, _COMPUTING):
                table = table_of(computed(partition))
            assert table is not None
            yield table

    def collections(self, chunk: Chunk, names: Sequence[str]) -> list[Any]:
        """Return partitions, see `Reader.collections`."""
        frame = self._frame[[self._names[name] for name in names]]
        return [frame.partitions[segment.piece.held] for segment in chunk.segments]


def open_frame(frame: Any) -> Opened:  # noqa: ANN401
    """Return the reader of a Dask frame, whose partitions are computed once to count their rows."""
    reader = DaskFrameReader(frame)
    with reading_errors("A partition of the Dask frame", _COMPUTING):
        sizes = list(computed(frame.map_partitions(len)))
    names = [f"partition {i}" for i in range(len(sizes))]
    return reader, [Piece(n, n, int(sizes[i]), held=i) for i, n in enumerate(names)]


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


def is_lazy(value: Any) -> bool:  # noqa: ANN401
    """Whether a value is an array that is read by slices.

    Examples
    --------
    >>> is_lazy(np.zeros(3))
    False
    """
    return library_of(value) in {"dask", "zarr", "h5py", "xarray", "netCDF4"}


class LazyArrays(Reader):
    """Arrays that are read by slices along their first axis.

    Parameters
    ----------
    arrays : mapping from str to array-like
    kind : str
        See `Reader`.

    Raises
    ------
    InvalidDataError
        If the numbers of rows differ.
    InvalidOptionError
        If Dask does not know the sizes of the blocks of an array.
    """

    divisible = False

    def __init__(self, arrays: Mapping[str, Any], kind: str) -> None:
        self.kind, self._arrays = kind, arrays
        if all(library_of(array) == "dask" for array in arrays.values()):
            self.location = Location.WITH_DASK
        elif all(map(_is_stored, arrays.values())):
            self.location = Location.IN_FILES
        lengths = {name: a.shape[0] if a.shape else None for name, a in arrays.items()}
        if any(n is None or np.isnan(n) for n in lengths.values()):
            raise InvalidOptionError(
                f"The numbers of rows of the arrays are {lengths}: call compute_chunk_sizes() of "
                "Dask arrays of unknown length, and leave out single numbers."
            )
        if len(set(lengths.values())) > 1:
            raise InvalidDataError(f"The arrays differ in their numbers of rows: {lengths}.")
        self.fields = {n: array_field(np.dtype(a.dtype), a.shape[1:]) for n, a in arrays.items()}
        sizes = (math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in arrays.values())
        self.n_bytes = sum(sizes)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Read slices, see `Reader.tables`."""
        rows = _rows_of(chunk)
        with reading_errors(f"rows {rows.start} to {rows.stop - 1}", _LOADING):
            arrays = _loaded({name: self._arrays[name][rows] for name in names})
        yield Table.of(arrays.items())

    def collections(self, chunk: Chunk, names: Sequence[str]) -> list[Any]:
        """Return slices of Dask arrays, see `Reader.collections`."""
        return [{name: self._arrays[name][_rows_of(chunk)] for name in names}]


def open_arrays(arrays: Mapping[str, Any], kind: str) -> Opened:
    """Return the reader of arrays, some of which are read by slices, and how these are divided."""
    arrays = {
        name: _rows_first(array, array.dims[0]) if library_of(array) == "xarray" else array
        for name, array in arrays.items()
    }
    reader = LazyArrays(arrays, kind)
    cuts = np.cumsum([0, *_blocks_of_rows(list(arrays.values()))])
    return reader, [Piece("", "", int(b - a), int(a)) for a, b in pairwise(cuts)]


def _rows_of(chunk: Chunk) -> slice:
    first, last = chunk.segments[0], chunk.segments[-1]
    return slice(first.piece.origin + first.start, last.piece.origin + last.stop)


def dataset_arrays(dataset: Any, dim: str | None) -> dict[str, Any]:  # noqa: ANN401
    """Return the variables of an xarray dataset that have the dimension of the rows, as first one.

    Raises
    ------
    InvalidOptionError
        If `dim` is no dimension, or not given where there are several.

    Examples
    --------
    >>> import xarray as xr
    >>> dataset = xr.Dataset({"y": ("row", np.zeros(3)), "m": ("feature", np.zeros(2))})
    >>> list(dataset_arrays(dataset, "row"))
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
    return {name: _rows_first(array, dim) for name, array in found.items()}


def _is_stored(array: Any) -> bool:  # noqa: ANN401
    """Whether the pickle of an array holds the path of a file, and no data."""
    if isinstance(array, _RowsFirst):
        return not array.in_memory
    return library_of(array) == "zarr" and hasattr(array.store, "root")


class _RowsFirst:
    """A variable of xarray with the dimension of the rows first.

    Transposing a variable that lies in a file would make xarray read it element by element.
    """

    def __init__(self, variable: Any, dim: str) -> None:  # noqa: ANN401
        self._variable, self._axis = variable, variable.dims.index(dim)
        others = [n for d, n in zip(variable.dims, variable.shape, strict=True) if d != dim]
        self.shape, self.dtype = (variable.sizes[dim], *others), variable.dtype
        stored = variable.encoding.get("preferred_chunks", {}).get(dim)
        self.chunks = (stored,) if stored else None
        self.in_memory = lies_in_memory(variable)

    def __getitem__(self, rows: slice) -> np.ndarray[Any, Any]:
        where = (slice(None),) * self._axis + (rows,)
        return np.moveaxis(self._variable[where].values, self._axis, 0)


def _rows_first(array: Any, dim: str) -> Any:  # noqa: ANN401
    """Leave aside the coordinates of an array of xarray, and xarray itself where Dask computes."""
    if array.chunks is not None:
        return array.variable.transpose(dim, ...).data
    return _RowsFirst(array.variable, dim)


def _loaded(arrays: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Load slices; those of Dask arrays all at once, because they may have work in common."""
    if not any(library_of(array) == "dask" for array in arrays.values()):
        return {name: np.asarray(array) for name, array in arrays.items()}
    return {name: np.asarray(array) for name, array in computed(dict(arrays)).items()}


def _blocks_of_rows(arrays: Sequence[Any]) -> list[int]:
    """Return numbers of rows that are stored together, as far as the arrays tell."""
    n_rows = arrays[0].shape[0]
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
