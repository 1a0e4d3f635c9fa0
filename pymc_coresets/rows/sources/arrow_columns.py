"""Columns of Arrow: numbers and text, with missing values."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.columns import TEXT, Field, Values

_TEXT = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_dictionary,
)  # fmt: skip


def arrow_field(type_: Any) -> Field:  # noqa: ANN401
    """Say what an Arrow column of a type holds.

    Examples
    --------
    >>> str(arrow_field(pa.int16())), str(arrow_field(pa.dictionary(pa.int8(), pa.string())))
    ('int16', 'text')
    >>> arrow_field(pa.date32()).refused
    'dates or times'
    """
    if any(is_text(type_) for is_text in _TEXT):
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


def schema_fields(schema: Any) -> dict[str, Field]:  # noqa: ANN401
    """Say what each column of an Arrow schema holds.

    Raises
    ------
    InvalidDataError
        If two columns have the same name.

    Examples
    --------
    >>> schema_fields(pa.schema({"x": pa.int8()}))["x"].dtype
    dtype('int8')
    """
    for name in schema.names:
        if len(schema.get_all_field_indices(name)) > 1:
            raise InvalidDataError(f"There are two columns {name!r}: rename one of them.")
    return {field.name: arrow_field(field.type) for field in schema}


def tables_of_sizes(batches: Iterator[Any], sizes: Sequence[int]) -> Iterator[Any]:
    """Join and divide record batches into tables of the given sizes, copying nothing.

    The last table is shorter where there are not enough rows.

    Examples
    --------
    >>> batches = pa.table({"x": range(5)}).to_batches(max_chunksize=2)
    >>> [table["x"].to_pylist() for table in tables_of_sizes(iter(batches), [3, 2])]
    [[0, 1, 2], [3, 4]]
    """
    held: list[Any] = []
    for size in sizes:
        while sum(batch.num_rows for batch in held) < size:
            batch = next(batches, None)
            if batch is None:
                break
            held.append(batch)
        if not held:
            return
        table = pa.Table.from_batches(held)
        yield table.slice(0, size)
        held = table.slice(size).to_batches()


def named_columns(table: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Return the columns of an Arrow table or record batch, each with its name.

    Examples
    --------
    >>> [(name, column.null_count) for name, column in named_columns(pa.table({"x": [1, None]}))]
    [('x', 1)]
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    return list(zip(table.column_names, table.columns, strict=True))


def arrow_values(column: Any, field: Field) -> Values:  # noqa: ANN401
    """Return what a column of Arrow holds.

    Examples
    --------
    >>> column = pa.chunked_array([[1.5, None]])
    >>> arrow_values(column, arrow_field(column.type)).missing
    array([False,  True])
    """
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
    if field.shape:
        if array.null_count:  # the values under a null may be absent
            array = pa.array(array.to_pylist(), array.type)
            array = pc.if_else(array.is_valid(), array, _zeros(array.type))
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


def _zeros(type_: Any) -> Any:  # noqa: ANN401
    return pa.scalar([0] * type_.list_size, type_)
