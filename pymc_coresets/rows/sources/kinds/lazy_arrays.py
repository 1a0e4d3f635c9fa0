"""Arrays that are read by slices: of Dask, Zarr, HDF5, and the variables of an xarray dataset."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np

from pymc_coresets.compat.xarray_api import lies_in_memory
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.kinds.conversion import library_of
from pymc_coresets.rows.sources.layout import BLOCK_ROWS, Piece, Segment
from pymc_coresets.rows.sources.reader import Key, Lies, Pieces, Reader, SentRows
from pymc_coresets.rows.sources.tabular import ArrayTable, Field, Table, array_field

__all__ = ["LazyArrays", "dataset_arrays", "is_lazy"]

_REMEDY = "Try to load these rows without open_rows."


def is_lazy(value: Any) -> bool:  # noqa: ANN401
    """Whether a value is an array that is read by slices.

    Examples
    --------
    >>> is_lazy(np.zeros(3))
    False
    """
    return library_of(value) in {"dask", "zarr", "h5py", "xarray", "netCDF4"}


class LazyArrays:
    """Arrays that are read by slices along their first axis.

    Parameters
    ----------
    arrays : mapping from str to array-like
    kind : str
        For `repr`.

    Raises
    ------
    InvalidDataError
        If the numbers of rows differ.
    InvalidOptionError
        If Dask does not know the sizes of the blocks of an array.
    """

    noun, divisible = "", False

    def __init__(self, arrays: Mapping[str, Any], kind: str) -> None:
        self._arrays = {
            name: _rows_first(array, array.dims[0]) if library_of(array) == "xarray" else array
            for name, array in arrays.items()
        }
        self.kind = kind
        dask = all(library_of(array) == "dask" for array in self._arrays.values())
        stored = all(map(_is_stored, self._arrays.values()))
        self.lies = Lies.WITH_DASK if dask else Lies.IN_FILES if stored else Lies.HERE
        lengths = {name: a.shape[0] if a.shape else None for name, a in self._arrays.items()}
        if any(n is None or np.isnan(n) for n in lengths.values()):
            raise InvalidOptionError(
                f"The numbers of rows of the arrays are {lengths}: call compute_chunk_sizes() of "
                "Dask arrays of unknown length, and leave out single numbers."
            )
        if len(set(lengths.values())) > 1:
            raise InvalidDataError(f"The arrays differ in their numbers of rows: {lengths}.")
        self.fields: Mapping[str, Field] = {
            name: array_field(np.empty((0, *array.shape[1:]), array.dtype))
            for name, array in self._arrays.items()
        }
        n_rows = int(next(iter(lengths.values())) or 0)
        self.n_bytes: int | None = sum(
            int(np.prod(a.shape)) * np.dtype(a.dtype).itemsize for a in self._arrays.values()
        )
        cuts = np.cumsum([0, *_blocks_of_rows(list(self._arrays.values()), n_rows)])
        self.pieces: Pieces = tuple(
            Piece("", "", int(stop - start), int(start)) for start, stop in pairwise(cuts)
        )

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Read slices, see `Reader.tables`."""
        rows = self._rows(segments)
        with reading_errors(f"rows {rows.start} to {rows.stop - 1}", _REMEDY):
            table = ArrayTable(_loaded({name: self._arrays[name][rows] for name in names}))
        yield table, slice(0, table.n_rows)

    def collections(self, key: Key, names: Sequence[str]) -> list[Any]:
        """Return slices of Dask arrays, see `DaskReader.collections`."""
        return [{name: self._arrays[name][self._rows(key)] for name in names}]

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> Reader:
        """Return the arrays that lie in files; what some chunks hold of others."""
        if self.lies is not Lies.IN_FILES:
            return SentRows.of(self, keys, names)
        portion = copy(self)
        vars(portion).update(
            _arrays={name: self._arrays[name] for name in names},
            pieces={s.piece: self.pieces[s.piece] for key in keys for s in key},
        )
        return portion

    def _rows(self, segments: Sequence[Segment]) -> slice:
        first, last = self.pieces[segments[0].piece], self.pieces[segments[-1].piece]
        return slice(first.origin + segments[0].start, last.origin + segments[-1].stop)


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
    from pymc_coresets.rows.sources.kinds.dask_frames import computed  # noqa: PLC0415

    return {name: np.asarray(array) for name, array in computed(dict(arrays)).items()}


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
