"""Columns of any library: their types, and their values as NumPy arrays."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.compat.xarray_api import lies_in_memory
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa
    import xarray as xr

TEXT = np.dtype(object)


@dataclass(frozen=True)
class Field:
    """Type of a column of a source, or of an array made from columns.

    Parameters
    ----------
    dtype : numpy.dtype
        Of numbers and truth values; `TEXT` for text and categories.
    shape : tuple of int
        Shape of one row.
    refused : str
        Type of a column that cannot be used: ``"datetime64[ns]"``; empty if it can.
    """

    dtype: np.dtype
    shape: tuple[int, ...] = ()
    refused: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it holds text, categories or unusable values."""
        return self.dtype == TEXT

    def __str__(self) -> str:
        sizes = "".join(f"[{size}]" for size in self.shape)
        refused = self.refused and f"values of type {self.refused}"
        return refused or ("text" if self.is_text else f"{self.dtype}{sizes}")


@dataclass(frozen=True, eq=False)
class Column:
    """Values of some rows, independent of their library, and cheap to pickle.

    Parameters
    ----------
    field : Field
    data : ndarray
        Numbers with the rows along the first axis, or positions in `categories`, with -1 for
        missing categories.
    missing : ndarray of int64
        Numbers of the rows that have no value, in increasing order.
    categories : sequence, optional
        The distinct values of text or categories.
    """

    field: Field
    data: np.ndarray
    missing: NDArray[np.int64]
    categories: Sequence[Hashable] | None = None

    def __len__(self) -> int:
        return len(self.data)


#: An array of NumPy, an extension array of pandas, an array of Arrow, an array that is read by
#: slices, or a `Column` that was read elsewhere.
type AnyColumn = Any
#: Columns of equal lengths by their names.
type Table = Mapping[str, AnyColumn]


def library_of(value: object) -> str:
    """Return the package that a value's class comes from, without importing it.

    Examples
    --------
    >>> library_of(pd.DataFrame()), library_of([])
    ('pandas', 'builtins')
    """
    return type(value).__module__.partition(".")[0]


# -- arrays that are read by slices ----------------------------------------------------------------


class RowsFirst:
    """A variable of xarray with the dimension of the rows first.

    Transposing a variable that lies in a file would make xarray read it element by element.
    """

    def __init__(self, variable: "xr.Variable", dim: str) -> None:
        self._variable, self._axis = variable, variable.dims.index(dim)
        others = [n for d, n in zip(variable.dims, variable.shape, strict=True) if d != dim]
        self.shape, self.dtype = (variable.sizes[dim], *others), variable.dtype
        stored = variable.encoding.get("preferred_chunks", {}).get(dim)
        self.chunks = (stored,) if stored else None
        self.in_files = not lies_in_memory(variable)

    def __getitem__(self, rows: slice) -> np.ndarray:
        where = (slice(None),) * self._axis + (rows,)
        return np.moveaxis(self._variable[where].values, self._axis, 0)


class MemoryMap:
    """A memory-mapped array, of which a pickle holds the path.

    Parameters
    ----------
    array : numpy.memmap
        Not a view of another one.
    """

    in_files = True

    def __init__(self, array: np.memmap) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._array[rows]

    def __reduce__(self) -> tuple[object, ...]:
        array = self._array
        order = "C" if array.flags.c_contiguous else "F"
        return _mapped, (array.filename, array.dtype, "r", array.offset, array.shape, order)


def _mapped(*how: Any) -> MemoryMap:  # noqa: ANN401
    return MemoryMap(np.memmap(*how))


def is_lazy(value: object) -> bool:
    """Whether a value is an array that is read by slices.

    Examples
    --------
    >>> is_lazy(np.zeros(3))
    False
    """
    sliced = {"dask", "zarr", "h5py", "xarray", "netCDF4"}
    return isinstance(value, RowsFirst | MemoryMap) or library_of(value) in sliced


def rows_first(array: "xr.DataArray", dim: str) -> AnyColumn:
    """Drop the coordinates of an xarray array, and xarray itself if Dask computes it."""
    if array.chunks is not None:
        return array.variable.transpose(dim, ...).data
    return RowsFirst(array.variable, dim)


# -- what columns hold -----------------------------------------------------------------------------


def array_field(dtype: np.dtype, shape: tuple[int, ...] = ()) -> Field:
    """Return the type of an array, each row of which has the given shape.

    Examples
    --------
    >>> str(array_field(np.dtype("U2"))), str(array_field(np.dtype(float), (2,)))
    ('text', 'float64[2]')
    """
    if dtype.kind in "biuf":
        return Field(dtype.newbyteorder("="), shape)
    return Field(TEXT, shape, "" if dtype.kind in "OUST" and not shape else str(dtype))


def column_field(column: AnyColumn) -> Field:
    """Return the type of a column of a table.

    Examples
    --------
    >>> str(column_field(pd.array([3, None])))
    'int64'
    """
    if isinstance(column, Column):
        return column.field
    if isinstance(column, np.ndarray) or is_lazy(column):
        return array_field(np.dtype(column.dtype), column.shape[1:])
    if library_of(column) == "pyarrow":
        return arrow_field(column.type)
    dtype = column.dtype.subtype if isinstance(column.dtype, pd.SparseDtype) else column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(dtype):
        return Field(TEXT)
    own = getattr(dtype, "numpy_dtype", dtype)
    return array_field(own) if isinstance(own, np.dtype) else Field(TEXT, (), str(dtype))


def arrow_field(type_: "pa.DataType") -> Field:
    """Return the type of an Arrow column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> str(arrow_field(pa.int16())), str(arrow_field(pa.dictionary(pa.int8(), pa.string())))
    ('int16', 'text')
    >>> str(arrow_field(pa.date32()))
    'values of type date32[day]'
    """
    from pyarrow import types  # noqa: PLC0415

    texts = {"string", "large_string", "string_view", "binary", "large_binary"}
    if types.is_dictionary(type_) or str(type_) in texts:
        return Field(TEXT)
    if types.is_decimal(type_):
        return Field(np.dtype(np.float64))
    if types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_):
        return Field(np.dtype(type_.to_pandas_dtype()))
    if types.is_fixed_size_list(type_):
        inner = arrow_field(type_.value_type)
        if not (inner.is_text or inner.shape):
            return Field(inner.dtype, (type_.list_size,))
    return Field(TEXT, (), str(type_))


# -- their values ----------------------------------------------------------------------------------


def read_column(column: AnyColumn) -> Column:
    """Return the values of a column of a table.

    Examples
    --------
    >>> read_column(pd.array([3, None]))
    Column(field=Field(dtype=dtype('int64'), shape=(), refused=''), data=array([3, 0]),
           missing=array([1]), categories=None)
    """
    if isinstance(column, Column):
        return column
    if is_lazy(column):
        column = np.asanyarray(column[:])
    field, none = column_field(column), np.empty(0, np.int64)
    if library_of(column) == "pyarrow":
        return _of_arrow(column, field)
    if field.is_text:
        return _of_text(column, field)
    if isinstance(column, np.ndarray):
        mask = np.ma.getmask(column)
        if mask is np.ma.nomask:
            return Column(field, np.asarray(column), none)
        missing = np.flatnonzero(mask.reshape(len(column), -1).any(axis=1))
        return Column(field, np.asarray(np.ma.filled(column, column.dtype.type(0))), missing)
    missing = np.flatnonzero(column.isna())
    if not missing.size:
        return Column(field, column.to_numpy(field.dtype), none)
    return Column(field, column.to_numpy(field.dtype, na_value=field.dtype.type(0)), missing)


def _of_text(values: object, field: Field) -> Column:
    """Return text or categories as positions among their distinct values."""
    if isinstance(values, np.ndarray):
        mask, values = np.ma.getmaskarray(values), np.ma.getdata(values).astype(object)
        values[mask] = None
    codes, found = pd.factorize(values)
    return Column(field, codes, np.flatnonzero(codes < 0), list(found))


def _of_arrow(values: "pa.Array | pa.ChunkedArray", field: Field) -> Column:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if not isinstance(values, pa.ChunkedArray):
        values = pa.chunked_array([values])
    missing = np.flatnonzero(values.is_null()) if values.null_count else np.empty(0, np.int64)
    if field.is_text:  # each chunk of a file may have its own dictionary
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        array = _in_one(encoded.unify_dictionaries())
        codes = pc.fill_null(array.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        return Column(field, codes, missing, array.dictionary.to_pylist())
    array = _in_one(values)
    if not field.shape:
        return Column(field, _numbers_of(array, field.dtype), missing)
    inside = _without_null_lists(array, field).flatten()
    if inside.null_count:  # a list that lacks a number is missing
        lacks = np.asarray(inside.is_null()).reshape(-1, *field.shape).any(axis=1)
        missing = np.union1d(missing, np.flatnonzero(lacks))
    return Column(field, _numbers_of(inside, field.dtype).reshape(-1, *field.shape), missing)


def _without_null_lists(array: "pa.Array", field: Field) -> "pa.Array":
    """Return lists of nothing for those that are null, as the values under these may be absent."""
    import pyarrow as pa  # noqa: PLC0415

    if not array.null_count:
        return array
    empty = [None] * field.shape[0]
    return pa.array([empty if one is None else one for one in array.to_pylist()], array.type)


def _in_one(values: "pa.ChunkedArray") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415

    chunks = values.chunks or [pa.array([], values.type)]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _numbers_of(array: "pa.Array", dtype: np.dtype) -> np.ndarray:
    """Return numbers, zero where they are null."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    array = array.cast(pa.from_numpy_dtype(dtype))  # decimals
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(0).cast(array.type))
    if pa.types.is_boolean(array.type) or not len(array):
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype)
    numbers: np.ndarray = np.frombuffer(array.buffers()[1], dtype)  # may be writeable
    return numbers[array.offset : array.offset + len(array)]


# -- tables ----------------------------------------------------------------------------------------


def table_of(value: Any) -> Table | None:  # noqa: ANN401
    """Return an object with columns as a table, or None if the value is not tabular.

    Objects with Arrow's C interface are converted without a copy.  The columns of a matrix are
    named ``"0"``, ``"1"``, ...  The index of a frame is ignored.

    Raises
    ------
    InvalidDataError
        If two columns have the same name, or their lengths differ or are not known.
    InvalidOptionError
        If it needs pyarrow, which is not installed.

    Examples
    --------
    >>> table_of(np.zeros((5, 2))).keys()
    dict_keys(['0', '1'])
    >>> table_of(3) is None
    True
    """
    if isinstance(value, pd.DataFrame | Mapping):
        return _named((str(name), _as_held(column)) for name, column in value.items())
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return _named((str(j), column) for j, column in enumerate(value.T))
    if is_arrow(value):
        pa = required_pyarrow(f"A table of {library_of(value)}")
        # The interface of polars passes views of text, which older pyarrow cannot encode.
        arrow = value.to_arrow() if library_of(value) == "polars" else pa.table(value)
        return _named(zip(arrow.schema.names, arrow.columns, strict=True))
    return None


def required_table(value: object) -> Table:
    """Return a chunk as a table.

    Raises
    ------
    InvalidOptionError
        If it holds no columns.
    """
    table = table_of(value)
    if table is None:
        raise InvalidOptionError(
            f"The source yields a {type(value).__name__}: each chunk must be a mapping from names "
            "to arrays, a frame, or a matrix with one row for each row of the data."
        )
    return table


def n_rows_of(table: Table) -> int:
    """Return the number of rows; 0 if there are no columns."""
    return next((_length(column) or 0 for column in table.values()), 0)


def fields_of(table: Table) -> dict[str, Field]:
    """Return the type of each column of a table."""
    return {name: column_field(column) for name, column in table.items()}


def is_arrow(value: object) -> bool:
    """Whether a value has Arrow's C interface.

    Examples
    --------
    >>> is_arrow(pd.DataFrame()), is_arrow(pd.Series())
    (True, False)
    """
    return hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")


def required_pyarrow(what: str) -> Any:  # noqa: ANN401
    """Import pyarrow.

    Parameters
    ----------
    what : str
        The source that needs it, for messages.

    Raises
    ------
    InvalidOptionError
        If it is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InvalidOptionError(
            f"{what} needs {error.name}, which is not installed: "
            'pip install "pymc-coresets[parquet]".'
        ) from error
    return pa


def _named(pairs: Iterable[tuple[str, object]]) -> Table:
    """Return columns, each with its name, as a table."""
    pairs = list(pairs)
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise InvalidDataError(
                f"There are two columns {name!r}: rename one of them. Names are compared as text.",
                topic="rows-and-files",
            )
    columns = dict(pairs)
    lengths = {name: _length(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or not all(isinstance(n, int) for n in lengths.values()):
        raise InvalidDataError(
            "Each array needs the rows along its first axis, and the arrays must not differ in "
            f"their numbers of rows, but the numbers of rows are {lengths}. For unknown numbers of "
            "Dask, call compute_chunk_sizes().",
            topic="rows-and-files",
        )
    return columns


def _length(column: AnyColumn) -> int | None:
    if not hasattr(column, "shape"):
        return len(column)
    return column.shape[0] if column.shape else None


def _as_held(column: AnyColumn) -> AnyColumn:
    """Return a column of a mapping as a table holds it."""
    if library_of(column) == "xarray":
        return rows_first(column, column.dims[0])
    if isinstance(column, pd.Series | pd.Index):
        column = column.array
    if isinstance(column, np.memmap) and isinstance(column.base, mmap):
        return MemoryMap(column)
    if is_lazy(column) or isinstance(column, Column) or library_of(column) == "pyarrow":
        return column
    if isinstance(column, pd.api.extensions.ExtensionArray):
        return column.to_numpy() if isinstance(column.dtype, np.dtype) else column
    return np.asanyarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
