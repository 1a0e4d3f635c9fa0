"""`open_rows`: the kind of a source, and the arrays made from its columns."""

import inspect
import math
import os
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.columns import (
    Field,
    is_arrow,
    is_lazy,
    library_of,
    required_pyarrow,
    table_of,
)
from pymc_coresets.rows.sources.finders import (
    dataset_columns,
    open_columns,
    open_iterable,
    open_partitions,
    open_stream,
)
from pymc_coresets.rows.sources.readers import Opened, chunks_of, reading_errors
from pymc_coresets.rows.sources.row_source import ColumnMapping, RowSource

if TYPE_CHECKING:
    import xarray as xr

_ZARR = ".zarr"


def open_rows(
    source: object,
    *,
    columns: Mapping[str, str | int | Sequence[str | int]] | None = None,
    labels: Mapping[str, Collection[object]] | None = None,
    weight: str | int | None = None,
    dim: str | None = None,
) -> RowSource:
    """Open a table of rows that need not fit into memory.

    Opening reads the layout of the source: footers of files, lengths of partitions.  The rows
    are read in chunks of about 130,000 when they are needed.

    Parameters
    ----------
    source : object
        One of:

        - a path, a folder, a pattern such as ``"flights/*.parquet"`` or a list of paths, of files
          of one kind: Parquet, Arrow IPC (Feather), ORC, CSV with a header, or JSON with one object
          per line, where the first megabyte decides the types of the columns; a
          `pyarrow.dataset.Dataset` with other options, filtered or not;
        - a mapping from names to arrays: NumPy's, memory-mapped ones too, or those of Dask, Zarr,
          h5py or xarray, which are read by slices;
        - a frame of pandas or Dask; or, where pyarrow is installed, whatever passes on its columns
          by Arrow's C interface: a table of Arrow, a frame of polars, a relation of DuckDB, a table
          of Ibis.  A query is run again for each reading, and must return its rows in one order;
        - an `xarray.Dataset`, or the path of a Zarr or NetCDF store;
        - an iterable that can be read repeatedly (a data loader of pymc-extras, for instance), or a
          function without arguments that returns an iterator.  Each item is a chunk: a
          mapping from names to arrays, a frame, or a matrix, whose columns are known by their
          numbers.  All chunks are read once to count their rows.
    columns : mapping, optional
        From the name of an array in the model to a column of the source, or to a list of columns
        that are stacked along a trailing axis: ``{"X": ["distance", "hour"], "late": "late"}``.
        By default, every column under its own name.
    labels : mapping, optional
        From the name of an array in the model to the labels that its column may hold: text,
        categories, whole numbers or truth values.  The array holds their positions in this list,
        as int64; the codes of the source's own categories are not used.
    weight : str or int, optional
        A column of case weights: how often each row counts, finite and >= 0.
    dim : str, optional
        The dimension of the rows of an `xarray.Dataset`; not needed if it has only one.

    Returns
    -------
    RowSource

    Raises
    ------
    InvalidOptionError
        If the source is of an unknown kind, can be read only once, or has no such column; if a
        column of text has no labels.
    InvalidDataError
        If files cannot be read or differ in their columns, a column holds what no array can (dates,
        lists of differing lengths), or there are no rows.

    Notes
    -----
    Chunks follow the layout of the source: small row groups and partitions are joined, and row
    groups of more than 131,072 rows are divided, and still read only once if their parts are asked
    for in order.  Rows are numbered in the order of the source; files of a folder are in
    the order of their names.

    Values that cannot be used are found by `RowSource.check`, which reads all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets import open_rows
    >>> rows = open_rows(
    ...     {"hour": np.array([5.0, 9.0]), "carrier": np.array(["UA", "AA"])},
    ...     labels={"carrier": ["AA", "UA"]},
    ... )
    >>> rows.head(2)
    {'hour': array([5., 9.]), 'carrier': array([1, 0])}
    """
    return _source(_opened(source, dim), columns, labels, weight)


def open_columns_of(source: object, names: Collection[str]) -> RowSource:
    """Open those columns of a source that have some names; without any, all that hold numbers.

    Examples
    --------
    >>> table = {"price": np.array([5.0, 9.0]), "shop": np.array(["Oslo", "Rome"])}
    >>> open_columns_of(table, ["price", "hour"]).head(2)
    {'price': array([5., 9.])}
    """
    opened = _opened(source, None)
    fields = opened[0].fields
    found = [name for name in fields if name in names]
    found = found or [n for n, field in fields.items() if not (field.refused or field.is_text)]
    return _source(opened, {name: name for name in found} or None, None, None)


def _source(opened: Opened, columns: object, labels: object, weight: object) -> RowSource:
    reader, pieces = opened
    mappings = mappings_of(reader.fields, columns, labels, weight)
    types = [mapping.column for mapping in mappings.values()]
    row_bytes = sum(math.prod(type_.shape) * type_.dtype.itemsize for type_ in types)
    chunks = chunks_of(pieces, divide=reader.divisible, row_bytes=row_bytes)
    if not chunks:
        raise InvalidDataError("The source has no rows.", topic="rows-and-files")
    return RowSource(reader, mappings, weight_mapping(reader.fields, weight), chunks)


def required_source(rows: object) -> RowSource:
    """Return the user's ``rows=...``, if it is a source of rows.

    Raises
    ------
    InvalidOptionError
        If it is not a source.

    Examples
    --------
    >>> required_source({"x": [0.5, 1.5]})
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: rows is a dict, but must be what open_rows(...)
    returns. (docs: troubleshooting#arguments)
    """
    if not isinstance(rows, RowSource):
        raise InvalidOptionError(
            f"rows is a {type(rows).__name__}, but must be what open_rows(...) returns."
        )
    return rows


def _opened(source: Any, dim: str | None) -> Opened:  # noqa: ANN401 - of many libraries
    grids = {_ZARR, ".nc", ".nc4", ".h5netcdf"}
    if isinstance(source, str | Path) and (suffix := Path(source).suffix.lower()) in grids:
        source = _opened_by_xarray(_without_tilde(source), is_zarr=suffix == _ZARR)
    library, kind = library_of(source), type(source).__name__
    if library == "xarray":
        return open_columns(dataset_columns(source, dim), "xarray.Dataset")
    if dim is not None:
        raise InvalidOptionError(
            f"dim={dim!r} belongs to an xarray.Dataset; the rows of other sources are along the "
            "first axis."
        )
    if _are_paths(source) or (library == "pyarrow" and hasattr(source, "get_fragments")):
        return _opened_by_arrow(source)
    if library == "dask" and hasattr(source, "partitions") and hasattr(source, "columns"):
        return open_partitions(source)
    held = isinstance(source, pd.DataFrame) or library in {"polars", "pyarrow"}
    if is_arrow(source) and not held:
        return open_stream(source)
    if (table := table_of(source)) is not None:
        lazy = any(map(is_lazy, table.values()))
        return open_columns(table, "arrays read by slices" if lazy else kind)
    _require_chunks(source)
    return open_iterable(source)


def _without_tilde(path: str | Path) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - which never fails


def _opened_by_xarray(path: str, *, is_zarr: bool) -> "xr.Dataset":
    import xarray as xr  # noqa: PLC0415

    if not Path(path).exists() and not _is_address(path):
        raise InvalidOptionError(f"There is nothing at {path}.")
    with reading_errors(path):
        return xr.open_zarr(path, chunks=None) if is_zarr else xr.open_dataset(path)


def _are_paths(source: object) -> bool:
    items = source if isinstance(source, list | tuple) else [source]
    return all(isinstance(item, str | Path) for item in items)


def _opened_by_arrow(source: Any) -> Opened:  # noqa: ANN401
    required_pyarrow("This source")
    from pymc_coresets.rows.sources.arrow_files import open_dataset, open_files  # noqa: PLC0415

    if not _are_paths(source):
        return open_dataset(source)
    if _is_address(source):
        return open_files(source, format="parquet")
    given = source if isinstance(source, list | tuple) else [source]
    paths = [_without_tilde(path) for path in given]
    root = paths[0] if len(paths) == 1 and Path(paths[0]).is_dir() else None
    files = [file for path in paths for file in _files_at(path)]
    if not files:
        raise InvalidOptionError(
            f"There is no file at {', '.join(paths) or '[]'}: pass a file, a folder of "
            "Parquet files, a pattern such as 'flights/*.parquet', or a list of files."
        )
    known = {  # to pyarrow.dataset
        ".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc",
        ".csv": "csv", ".json": "json", ".orc": "orc",
    }  # fmt: skip
    formats = [known.get(Path(file).suffix.lower()) for file in files]
    if None in formats or len(set(formats)) > 1:
        other = files[formats.index(None) if None in formats else -1]
        raise InvalidOptionError(
            f"{other} is not of a kind that open_rows reads from a path (Parquet, Arrow IPC, CSV, "
            "JSON, ORC, Zarr, NetCDF; one kind at a time). Name the files of one kind, or pass "
            "what another library reads from it: a frame, or a mapping from names to arrays, such "
            "as those of numpy.load or h5py.File."
        )
    return open_files(files, format=formats[0], partition_base_dir=root)


def _require_chunks(source: object) -> None:
    """Raise for sources that can be read only once, and for functions with required arguments."""
    if isinstance(source, Iterator):
        raise InvalidOptionError(
            f"A {type(source).__name__} can be read only once, and the rows are read at least "
            "twice: pass a function that makes a new iterator each time, such as the generator "
            "function itself, without calling it."
        )
    try:
        if callable(source):
            inspect.signature(source).bind()
    except TypeError:
        raise InvalidOptionError(
            f"open_rows calls {getattr(source, '__name__', source)} without arguments, but it "
            "needs some: pass a function that needs none, such as lambda: chunks_of(path)."
        ) from None
    except ValueError:  # written in C, without a signature
        pass


def _is_address(source: object) -> bool:
    """Whether a source is the address of files on another machine."""
    return isinstance(source, str) and "://" in source


def _files_at(path: str) -> Iterator[str]:
    """Yield the files of a folder, of a pattern, or the file itself, by name."""
    if Path(path).is_dir():
        found, no_data = list[str](), (".", "_")
        for folder, folders, names in Path(path).walk():
            folders[:] = [name for name in folders if not name.startswith(no_data)]
            found += [f"{folder / name}" for name in names if not name.startswith(no_data)]
        yield from sorted(found)
    elif has_magic(path) and not Path(path).exists():
        for match in sorted(glob(path, recursive=True)):  # noqa: PTH207 - absolute ones too
            yield from _files_at(match)
    elif Path(path).exists():
        yield path


# -- which arrays are made of the columns ----------------------------------------------------------


def mappings_of(
    fields: Mapping[str, Field],
    columns: object,  # as users pass them
    labels: object,
    weight: object,
) -> dict[str, ColumnMapping]:
    """Return how each array is made, by its name in the model.

    Raises
    ------
    InvalidOptionError
        If `columns`, `labels` or `weight` do not fit each other or the source.
    InvalidDataError
        If a column holds what no array can.

    Examples
    --------
    >>> fields = {"a": Field(np.dtype(float)), "b": Field(np.dtype("f4"))}
    >>> mappings_of(fields, {"X": ["b", "a"]}, None, None)["X"].column
    Field(dtype=dtype('float64'), shape=(2,), refused='')
    """
    if columns is None:
        # By "__index_level_", pandas names an index without a name in a file.
        own = (name for name in fields if not name.startswith("__index_level_"))
        columns = {name: name for name in own if name != str(weight)}
        if not columns:
            raise InvalidOptionError("The source has no column besides the weights.")
    example = "{'X': ['distance', 'hour'], 'late': 'late'}"
    parts = _required_mapping("columns", columns, "columns", example)
    if not parts or not all(isinstance(name, str) for name in parts):
        raise InvalidOptionError(f"columns={columns!r}: each name must be that of a variable.")
    example = "{'carrier': ['AA', 'B6', 'DL']}"
    lists = _required_mapping(
        "labels", {} if labels is None else labels, "lists of labels", example
    )
    if unknown := [name for name in lists if name not in parts]:
        raise InvalidOptionError(
            f"labels: there is no array {unknown[0]!r}. There are {', '.join(parts)}."
        )
    coded = {name: _distinct(name, values) for name, values in lists.items()}
    return {name: _mapping(name, value, fields, coded.get(name)) for name, value in parts.items()}


def weight_mapping(fields: Mapping[str, Field], weight: object) -> list[ColumnMapping]:
    """Return how the case weights are made, or None if there are none.

    Raises
    ------
    InvalidOptionError
        If `weight` is not a column of numbers.
    """
    if weight is None:
        return []
    mapping = _mapping("weight", weight, fields, None)
    if mapping.column.shape:
        raise InvalidOptionError(f"weight={weight!r} must name a column of numbers.")
    return [replace(mapping, name="(weight)", column=Field(np.dtype(float)))]


def _required_mapping(option: str, value: object, to: str, example: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidOptionError(
            f"{option}={value!r} must map names in the model to {to}, as in {example}."
        )
    return value


def _parts(
    option: str,
    value: object,
    items: Sequence[object],
    fields: Mapping[str, Field],
) -> dict[str, Field]:
    """Return columns by their names; those of a matrix may be given by number."""
    if not items or any(not isinstance(i, str | int) or isinstance(i, bool) for i in items):
        raise InvalidOptionError(
            f"{option}={value!r} must name a column of the source, or list some of them."
        )
    missing = [item for item in items if str(item) not in fields]
    if missing:
        raise InvalidOptionError(
            f"{option}={value!r}: the source has no column {missing[0]!r}. "
            f"It has {', '.join(fields)}."
        )
    return {str(item): fields[str(item)] for item in items}


def _distinct(name: str, values: object) -> tuple[Hashable, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidOptionError(f"labels: {name!r} needs a list of labels, not {values!r}.")
    items = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    usable = all(isinstance(v, str | bytes | int) for v in items)
    if not items or not usable or len({type(v) for v in items}) > 1 or len(set(items)) < len(items):
        raise InvalidOptionError(
            f"labels: those of {name!r} must be text, whole numbers or truth values, all of one "
            f"type and each given once, not {list(items)!r}."
        )
    return items


def _mapping(
    name: str,
    value: object,
    fields: Mapping[str, Field],
    labels: tuple[Hashable, ...] | None,
) -> ColumnMapping:
    items: list[object] = [value]
    is_single = isinstance(value, str) or getattr(value, "shape", None) == ()  # no axis to iterate
    if stacked := isinstance(value, Collection) and not is_single:
        items = list(value)
    used = _parts(f"columns: {name}", value, items, fields)
    for part, field in used.items():
        _require_usable(name, part, field, labels)
    shapes = {field.shape for field in used.values()}
    if stacked and shapes != {()}:
        raise InvalidDataError(
            f"{name!r}: columns {', '.join(used)} cannot be stacked, because not all of them "
            "hold single numbers. Give each an array of its own.",
            topic="rows-and-files",
        )
    dtypes = [np.dtype(np.int64) if labels else field.dtype for field in used.values()]
    column = Field(np.result_type(*dtypes), (len(used),) if stacked else next(iter(shapes)))
    return ColumnMapping(name=name, fields=used, column=column, stacked=stacked, labels=labels)


def _require_usable(
    name: str, part: str, field: Field, labels: tuple[Hashable, ...] | None
) -> None:
    if field.refused:
        raise InvalidDataError(
            f"Column {part!r} holds {field}, which no array of a model can: leave it out by "
            "columns=, or turn it into numbers, as dates into days since the first.",
            topic="rows-and-files",
        )
    if labels is None:
        if not field.is_text:
            return
        raise InvalidOptionError(
            f"Column {part!r} holds text or categories: list the labels in open_rows, in the order "
            f"of their codes, as in labels={{{name!r}: ['a', 'b']}}, or leave it out by columns=. "
            "Numbers that are stored as Python objects become numbers by astype(float)."
        )
    if field.dtype.kind == "f" or field.shape:
        raise InvalidOptionError(
            f"labels: column {part!r} holds {field}. Labels are found by value among text, "
            "categories, whole numbers or truth values: turn the column into whole numbers."
        )
