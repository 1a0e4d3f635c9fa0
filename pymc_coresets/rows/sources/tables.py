"""Tables: columns of NumPy, pandas, Arrow and arrays read by slices, and what they hold."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.compat.xarray_api import lies_in_memory
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError

TEXT = np.dtype(object)


@dataclass(frozen=True)
class Field:
    """What a column of a source holds, or an array that is made of some.

    Parameters
    ----------
    dtype : numpy.dtype
        Of numbers and truth values; `TEXT` for text and categories.
    shape : tuple of int
        Shape of one row.
    refused : str
        Why the column cannot be used: ``"dates or times"``; empty if it can.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    refused: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it holds text or categories, or nothing that can be used."""
        return self.dtype == TEXT

    def __str__(self) -> str:
        sizes = "".join(f"[{size}]" for size in self.shape)
        return self.refused or ("text" if self.is_text else f"{self.dtype}{sizes}")


@dataclass(frozen=True, eq=False)
class Column:
    """Values of some rows, whichever library they came from; pickles and sends well.

    Parameters
    ----------
    field : Field
    data : ndarray
        Numbers with the rows along the first axis, or positions in `categories`.
    missing : ndarray of bool, optional
        Which rows have no value; None where all have one.
    categories : sequence, optional
        The distinct values of text or categories.
    """

    field: Field
    data: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    categories: Sequence[Hashable] | None = None

    def __len__(self) -> int:
        return len(self.data)


#: Columns of equal lengths by their names: arrays of NumPy, extension arrays of pandas, arrays of
#: Arrow, arrays that are read by slices, or a `Column` that was read elsewhere.
type Table = Mapping[str, Any]


def array_field(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Field:
    """Say what an array holds, of which each row has the given shape.

    Examples
    --------
    >>> str(array_field(np.dtype("U2"), ())), str(array_field(np.dtype(float), (2,)))
    ('text', 'float64[2]')
    """
    if dtype.kind in "OUST":
        return Field(TEXT, shape, "text of several columns" if shape else "")
    if dtype.kind in "Mm":
        return Field(TEXT, shape, "dates or times")
    if dtype.kind not in "biuf":
        return Field(TEXT, shape, f"{dtype} values")
    return Field(dtype.newbyteorder("="), shape)


def library_of(value: Any) -> str:  # noqa: ANN401
    """Return the package that a value's class comes from, without importing it.

    Examples
    --------
    >>> library_of(pd.DataFrame()), library_of([])
    ('pandas', 'builtins')
    """
    return type(value).__module__.partition(".")[0]


def is_lazy(value: Any) -> bool:  # noqa: ANN401
    """Whether a value is an array that is read by slices.

    Examples
    --------
    >>> is_lazy(np.zeros(3))
    False
    """
    sliced = {"dask", "zarr", "h5py", "xarray", "netCDF4"}
    return isinstance(value, RowsFirst) or library_of(value) in sliced


class RowsFirst:
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

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        where = (slice(None),) * self._axis + (rows,)
        return np.moveaxis(self._variable[where].values, self._axis, 0)


def rows_first(array: Any, dim: str) -> Any:  # noqa: ANN401
    """Leave aside the coordinates of an array of xarray, and xarray itself where Dask computes."""
    if array.chunks is not None:
        return array.variable.transpose(dim, ...).data
    return RowsFirst(array.variable, dim)


def column_field(column: Any) -> Field:  # noqa: ANN401
    """Say what a column of a table holds.

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
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return Field(TEXT, (), "dates or times")
    plain = getattr(dtype, "numpy_dtype", dtype)
    if isinstance(plain, np.dtype):
        return array_field(plain, ())
    return Field(TEXT, (), f"values of type {dtype}")


def arrow_field(type_: Any) -> Field:  # noqa: ANN401
    """Say what an Arrow column of a type holds.

    Examples
    --------
    >>> import pyarrow as pa
    >>> str(arrow_field(pa.int16())), str(arrow_field(pa.dictionary(pa.int8(), pa.string())))
    ('int16', 'text')
    >>> arrow_field(pa.date32()).refused
    'dates or times'
    """
    import pyarrow as pa  # noqa: PLC0415

    text = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_dictionary,
    )  # fmt: skip
    if any(is_text(type_) for is_text in text):
        return Field(TEXT)
    if pa.types.is_temporal(type_):
        return Field(TEXT, (), "dates or times")
    if pa.types.is_decimal(type_):
        return Field(np.dtype(np.float64))
    if pa.types.is_fixed_size_list(type_) and not arrow_field(type_.value_type).shape:
        inner = arrow_field(type_.value_type)
        refused = inner.refused or ("lists of text" if inner.is_text else "")
        return Field(inner.dtype, (type_.list_size,), refused)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return Field(np.dtype(type_.to_pandas_dtype()))
    return Field(TEXT, (), f"values of Arrow's type {type_}")


def read_column(column: Any) -> Column:  # noqa: ANN401
    """Return the values of a column of a table.

    Examples
    --------
    >>> read_column(pd.array([3, None]))
    Column(field=Field(dtype=dtype('int64'), shape=(), refused=''), data=array([3, 0]),
           missing=array([False,  True]), categories=None)
    """
    if isinstance(column, Column):
        return column
    if is_lazy(column):
        column = np.asanyarray(column[:])
    field = column_field(column)
    if isinstance(column, np.ndarray):
        return _of_array(column, field)
    if library_of(column) == "pyarrow":
        return _of_arrow(column, field)
    absent = np.asarray(column.isna())
    missing = absent if absent.any() else None
    if isinstance(column, pd.Categorical):
        return Column(field, column.codes.astype(np.int64), missing, list(column.categories))
    if field.is_text:
        return _of_array(column.to_numpy(object), field)
    filled = {} if missing is None else {"na_value": field.dtype.type(0)}
    return Column(field, column.to_numpy(field.dtype, **filled), missing)


def _of_array(array: NDArray[Any], field: Field) -> Column:
    """Return the values of an array, with text as positions among its distinct values."""
    mask = np.ma.getmask(array)
    missing = None if mask is np.ma.nomask else mask.reshape(len(array), -1).any(axis=1)
    if isinstance(array, np.ma.MaskedArray):
        array = array.filled(array.dtype.type(0)) if array.dtype.kind in "biuf" else array.data
    if array.dtype.kind not in "OUST":
        return Column(field, np.asarray(array), missing)
    codes, found = pd.factorize(array.astype(object))
    absent = (codes < 0) if missing is None else (codes < 0) | missing
    return Column(field, codes, absent if absent.any() else None, list(found))


def _of_arrow(column: Any, field: Field) -> Column:  # noqa: ANN401
    import pyarrow as pa  # noqa: PLC0415

    if not isinstance(column, pa.ChunkedArray):
        column = pa.chunked_array([column])
    missing = np.asarray(column.is_null()) if column.null_count else None
    if field.is_text:
        return _text_of(column, field, missing)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no chunk at all
        array = pa.array([], column.type)
    return Column(field, _numbers_of(array, field), missing)


def _text_of(column: Any, field: Field, missing: NDArray[np.bool_] | None) -> Column:  # noqa: ANN401
    """Return text as positions in one dictionary; each chunk of a file may have its own."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    codes = pc.fill_null(array.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    categories = array.dictionary.to_pylist()
    if None in categories:  # a null may be a category as well
        null = np.array([category is None for category in [*categories, None]])[codes]
        missing = null if missing is None else missing | null
    return Column(field, codes, missing, categories)


def _numbers_of(array: Any, field: Field) -> NDArray[Any]:  # noqa: ANN401
    """Return the numbers of an Arrow array, without a copy where they can be written to."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if field.shape:
        if array.null_count:  # the values under a null may be absent
            array = pa.array(array.to_pylist(), array.type)
            array = pc.if_else(
                array.is_valid(), array, pa.scalar([0] * array.type.list_size, array.type)
            )
        return _numbers_of(array.flatten(), Field(field.dtype)).reshape(-1, *field.shape)
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(0).cast(array.type))
    if pa.types.is_boolean(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    buffer = array.buffers()[1]
    if buffer is None:
        return np.empty(0, field.dtype)
    numbers: NDArray[Any] = np.frombuffer(buffer, field.dtype)
    return numbers[array.offset : array.offset + len(array)]


def named_columns(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Return columns, each with its name, as a table.

    Raises
    ------
    InvalidDataError
        If two have the same name, one has no rows axis, or the lengths differ.
    InvalidOptionError
        If Dask does not know the length of one.
    """
    pairs = list(pairs)
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise InvalidDataError(
                f"There are two columns {name!r}: rename one of them. Names are compared as text."
            )
    columns = dict(pairs)
    lengths = {name: _length(column) for name, column in columns.items()}
    if any(n is not None and np.isnan(n) for n in lengths.values()):
        raise InvalidOptionError(
            f"The numbers of rows of the arrays are {lengths}: call compute_chunk_sizes() of Dask "
            "arrays of unknown length."
        )
    if len(set(lengths.values())) > 1 or None in lengths.values():
        raise InvalidDataError(
            "Each array needs the rows along its first axis, and the arrays must not differ in "
            f"their numbers of rows, but the numbers of rows are {lengths}."
        )
    return columns


def n_rows_of(table: Table) -> int:
    """Return the number of rows; 0 if there are no columns."""
    return next((_length(column) or 0 for column in table.values()), 0)


def fields_of(table: Table) -> dict[str, Field]:
    """Say what each column of a table holds."""
    return {name: column_field(column) for name, column in table.items()}


def read_columns(table: Table, names: Iterable[str]) -> dict[str, Column]:
    """Return some columns of a table, as far as it has them, as values."""
    return {name: read_column(table[name]) for name in names if name in table}


def _length(column: Any) -> int | None:  # noqa: ANN401
    shape = getattr(column, "shape", None)
    if shape is None:
        return len(column)
    return shape[0] if shape else None


def table_of(value: Any) -> Table | None:  # noqa: ANN401
    """Return what holds columns as a table, or None if the value is nothing of the kind.

    Whatever passes columns through Arrow's C interface is taken over without a copy.  The columns
    of a matrix are named ``"0"``, ``"1"``, ...  The index of a frame is left aside.

    Raises
    ------
    InvalidDataError
        If two columns have the same name, or their lengths differ.
    InvalidOptionError
        If it needs pyarrow, and there is none.

    Examples
    --------
    >>> table_of(np.zeros((5, 2))).keys()
    dict_keys(['0', '1'])
    >>> table_of(3) is None
    True
    """
    if isinstance(value, pd.DataFrame | Mapping):
        return named_columns((str(name), _plain(column)) for name, column in value.items())
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return named_columns((str(j), column) for j, column in enumerate(value.T))
    if is_arrow(value):
        pa = required_pyarrow(f"A table of {library_of(value)}")
        # The interface of polars passes views of text, which older pyarrow cannot encode.
        arrow = value.to_arrow() if library_of(value) == "polars" else pa.table(value)
        return named_columns(zip(arrow.schema.names, arrow.columns, strict=True))
    return None


def is_arrow(value: Any) -> bool:  # noqa: ANN401
    """Whether a value passes on its columns through Arrow's C interface.

    Examples
    --------
    >>> is_arrow(pd.DataFrame()), is_arrow(pd.Series())
    (True, False)
    """
    return hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")


def is_streamed(value: Any) -> bool:  # noqa: ANN401
    """Whether a value passes on columns that it need not hold in memory itself.

    Examples
    --------
    >>> is_streamed(pd.DataFrame())
    False
    """
    held = isinstance(value, pd.DataFrame) or library_of(value) in {"polars", "pyarrow"}
    return is_arrow(value) and not held


def required_pyarrow(what: str) -> Any:  # noqa: ANN401
    """Import pyarrow.

    Parameters
    ----------
    what : str
        Which source needs it, for messages.

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


def _plain(column: Any) -> Any:  # noqa: ANN401
    """Return a column of a mapping as a table holds it."""
    if isinstance(column, pd.Series | pd.Index):
        column = column.array
    if library_of(column) == "xarray":
        return rows_first(column, column.dims[0])
    if is_lazy(column) or isinstance(column, Column | pd.Categorical):
        return column
    if library_of(column) == "pyarrow":
        return column
    if isinstance(column, pd.api.extensions.ExtensionArray):
        return column.to_numpy() if isinstance(column.dtype, np.dtype) else column
    return np.asanyarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
