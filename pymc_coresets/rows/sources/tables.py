"""Tables in memory: what columns of NumPy, pandas and Arrow hold, with missing values."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import mmap
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError

TEXT = np.dtype(object)


@dataclass(frozen=True)
class Field:
    """What a column of a source holds.

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
        kind = self.refused or ("text" if self.is_text else str(self.dtype))
        return f"{kind} of shape {self.shape}" if self.shape else kind


@dataclass(frozen=True, eq=False)
class Values:
    """What a column holds, whichever library it is of.

    Parameters
    ----------
    data : ndarray
        Numbers with the rows along the first axis, or positions in `categories`.
    missing : ndarray of bool, optional
        Which rows have no value; None where all have one.
    categories : sequence, optional
        The distinct values of text or categories.
    """

    data: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    categories: Sequence[Hashable] | None = None


def array_field(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Field:
    """Say what an array holds, of which each row has the given shape.

    Examples
    --------
    >>> str(array_field(np.dtype("U2"), ())), str(array_field(np.dtype(float), (2,)))
    ('text', 'float64 of shape (2,)')
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


def column_field(column: Any) -> Field:  # noqa: ANN401
    """Say what an array of NumPy, pandas or Arrow holds.

    Examples
    --------
    >>> str(column_field(pd.array([3, None])))
    'int64'
    """
    if isinstance(column, np.ndarray):
        return array_field(column.dtype, column.shape[1:])
    if library_of(column) == "pyarrow":
        return arrow_field(column.type)
    types = pd.api.types
    dtype = column.dtype.subtype if isinstance(column.dtype, pd.SparseDtype) else column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or types.is_string_dtype(dtype):
        return Field(TEXT)
    if getattr(dtype, "numpy_dtype", None) == TEXT:  # as pandas before 3 keeps text
        return Field(TEXT)
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return Field(TEXT, (), "dates or times")
    if types.is_bool_dtype(dtype) or types.is_integer_dtype(dtype) or types.is_float_dtype(dtype):
        return array_field(np.dtype(getattr(dtype, "numpy_dtype", dtype)), ())
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


def column_values(column: Any, field: Field) -> Values:  # noqa: ANN401
    """Return the values of an array of NumPy, pandas or Arrow, or such values themselves.

    Examples
    --------
    >>> column = pd.array([3, None])
    >>> column_values(column, column_field(column))
    Values(data=array([3, 0]), missing=array([False,  True]), categories=None)
    """
    if isinstance(column, Values):
        return column
    if isinstance(column, np.ndarray):
        return _array_values(column)
    if library_of(column) == "pyarrow":
        return _arrow_values(column, field)
    absent = np.asarray(column.isna())
    missing = absent if absent.any() else None
    if isinstance(column, pd.Categorical):
        return Values(column.codes.astype(np.int64), missing, list(column.categories))
    if field.is_text:
        return _array_values(column.to_numpy(object))
    if missing is None:
        return Values(column.to_numpy(field.dtype))
    return Values(column.to_numpy(field.dtype, na_value=field.dtype.type(0)), missing)


def _array_values(array: NDArray[Any]) -> Values:
    """Return the values of an array, with text as positions among its distinct values."""
    mask = np.ma.getmask(array)
    missing = None if mask is np.ma.nomask else mask.reshape(len(array), -1).any(axis=1)
    if isinstance(array, np.ma.MaskedArray):
        array = array.filled(array.dtype.type(0)) if array.dtype.kind in "biuf" else array.data
    if array.dtype.kind not in "OUST":
        return Values(np.asarray(array), missing)
    codes, found = pd.factorize(array.astype(object))
    absent = (codes < 0) if missing is None else (codes < 0) | missing
    return Values(codes, absent if absent.any() else None, list(found))


def _arrow_values(column: Any, field: Field) -> Values:  # noqa: ANN401
    import pyarrow as pa  # noqa: PLC0415

    if not isinstance(column, pa.ChunkedArray):
        column = pa.chunked_array([column])
    missing = np.asarray(column.is_null()) if column.null_count else None
    if field.is_text:
        return _text_of(column, missing)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no chunk at all
        array = pa.array([], column.type)
    return Values(_numbers_of(array, field), missing)


def _text_of(column: Any, missing: NDArray[np.bool_] | None) -> Values:  # noqa: ANN401
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
    return Values(codes, missing, categories)


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


@dataclass(frozen=True, eq=False)
class Table:
    """Some rows in memory, by column.

    Parameters
    ----------
    columns : mapping from str to array
        Arrays of NumPy, extension arrays of pandas or chunked arrays of Arrow, of equal lengths;
        or `Values`, which were read elsewhere.
    fields : mapping from str to Field
    n_rows : int

    Examples
    --------
    >>> table = table_of({"x": np.arange(3.0), "g": np.array(["b", None, "b"], dtype=object)})
    >>> table.values("g")
    Values(data=array([ 0, -1,  0]), missing=array([False,  True, False]), categories=['b'])
    >>> table.part(["x"], slice(1, 3)).values("x").data
    array([1., 2.])
    """

    columns: Mapping[str, Any]
    fields: Mapping[str, Field]
    n_rows: int

    @classmethod
    def of(cls, named: Iterable[tuple[str, Any]]) -> Self:
        """Say what columns hold, each with its name.

        Raises
        ------
        InvalidDataError
            If two have the same name, one has no rows axis, or the lengths differ.
        """
        named = list(named)
        for name, count in Counter(name for name, _ in named).items():
            if count > 1:
                raise InvalidDataError(
                    f"There are two columns {name!r}: rename one of them. Names are compared as "
                    "text."
                )
        columns = dict(named)
        lengths = {name: len(c) if getattr(c, "ndim", 1) else None for name, c in columns.items()}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            raise InvalidDataError(
                "Each array needs the rows along its first axis, and as many of them as the "
                f"others, but the numbers of rows are {lengths}."
            )
        fields = {name: column_field(column) for name, column in columns.items()}
        return cls(columns, fields, next(iter(lengths.values()), 0) or 0)

    @property
    def n_bytes(self) -> int:
        """Size of all columns."""
        return sum(int(column.nbytes) for column in self.columns.values())

    def part(self, names: Sequence[str], rows: slice) -> Self:
        """Return some rows of some columns, which are views of these."""
        columns = {name: self.columns[name][rows] for name in names if name in self.columns}
        return replace(self, columns=columns, n_rows=len(range(*rows.indices(self.n_rows))))

    def values(self, name: str) -> Values:
        """Return what a column holds."""
        return column_values(self.columns[name], self.fields[name])

    def read(self, names: Sequence[str]) -> Self:
        """Return some of the columns as values, which can be sent elsewhere."""
        known = [name for name in names if name in self.columns]
        columns = {name: self.values(name) for name in known}
        return replace(self, columns=columns, fields={name: self.fields[name] for name in known})

    def __getstate__(self) -> dict[str, Any]:
        stored = {name: _mapped_file(column) for name, column in self.columns.items()}
        return vars(self) | {"columns": stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = state.pop("columns").items()
        columns = {n: np.memmap(**c) if isinstance(c, dict) else c for n, c in stored}
        vars(self).update(state, columns=columns)


def table_of(value: Any) -> Table | None:  # noqa: ANN401
    """Return what holds columns in memory as a table, or None if the value is nothing of the kind.

    The columns of a matrix are named ``"0"``, ``"1"``, ...  The index of a frame is left aside.

    Raises
    ------
    InvalidDataError
        If two columns have the same name, or their lengths differ.
    InvalidOptionError
        If it is of polars, and there is no pyarrow.

    Examples
    --------
    >>> table_of(np.zeros((5, 2))).fields.keys()
    dict_keys(['0', '1'])
    >>> table_of(3) is None
    True
    """
    kind = (library_of(value), type(value).__name__)
    if isinstance(value, pd.DataFrame):
        pairs = enumerate(value.columns)
        return Table.of((str(name), _plain(value.iloc[:, j])) for j, name in pairs)
    if isinstance(value, Mapping):
        return Table.of((str(name), _plain(column)) for name, column in value.items())
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return Table.of((str(j), column) for j, column in enumerate(value.T))
    if kind == ("polars", "DataFrame"):
        try:
            return table_of(value.to_arrow())
        except ModuleNotFoundError as error:
            raise InvalidOptionError(
                "A frame of polars needs pyarrow, which is not installed: "
                'pip install "pymc-coresets[parquet]".'
            ) from error
    if kind in {("pyarrow", "Table"), ("pyarrow", "RecordBatch")}:
        return arrow_table(value)
    return None


def arrow_table(value: Any) -> Table:  # noqa: ANN401
    """Return a table or a record batch of Arrow as a table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> arrow_table(pa.table({"x": [1, None]})).values("x").missing
    array([False,  True])
    """
    return Table.of(zip(value.schema.names, value.columns, strict=True))


def _plain(column: Any) -> Any:  # noqa: ANN401
    """Return a column of a mapping as a `Table` holds it."""
    if isinstance(column, pd.Series | pd.Index):
        column = column.array
    if isinstance(column, pd.Categorical) or library_of(column) == "pyarrow":
        return column
    if isinstance(column, pd.api.extensions.ExtensionArray):
        return column.to_numpy() if isinstance(column.dtype, np.dtype) else column
    return np.asanyarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _mapped_file(column: Any) -> Any:  # noqa: ANN401
    """Return how a memory-mapped array is opened again; other columns, and views, themselves."""
    if not isinstance(column, np.memmap) or not isinstance(column.base, mmap):
        return column
    order = "C" if column.flags.c_contiguous else "F"
    return {
        "filename": column.filename, "dtype": column.dtype, "mode": "r",
        "offset": column.offset, "shape": column.shape, "order": order,
    }  # fmt: skip


# -- readers ---------------------------------------------------------------------------------------
