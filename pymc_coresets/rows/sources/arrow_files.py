"""Files that Arrow reads: Parquet by row groups and blocks, others by Arrow's own scanner."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice, pairwise

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from pymc_coresets.compat.pyarrow_api import filter_of, unfiltered
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.columns import Field, arrow_field, required_table
from pymc_coresets.rows.sources.finders import Cursor, Recent, open_columns
from pymc_coresets.rows.sources.readers import (
    BLOCK_ROWS,
    Chunk,
    Opened,
    Piece,
    Reader,
    cuts_of,
    reading_errors,
)


@dataclass(frozen=True, eq=False)
class FilePart:
    """A file, or a row group of one, that Arrow's scanner reads.

    Parameters
    ----------
    path : str
    fragment : pyarrow.dataset.Fragment
    """

    path: str
    fragment: ds.Fragment


@dataclass(frozen=True, eq=False)
class RowGroup:
    """A row group of a Parquet file, with the file's state at the time of opening.

    Parameters
    ----------
    path : str
    number : int
    keys : mapping from str to object
        Columns given by the names of the folders.
    size : int
        Of the file, in bytes.
    modified : int
        When the file was last written, in nanoseconds.
    """

    path: str
    number: int
    keys: Mapping[str, object]
    size: int
    modified: int


class Files:
    """Finds parts of files: small ones together, and large ones block by block, in one stream.

    Parameters
    ----------
    batches : callable
        Returns record batches of at most so many rows of some parts of one file, given the parts,
        the names of columns, the number of rows, and the number of bytes per column that are read
        ahead at most; 0 if there is no limit.
    """

    def __init__(self, batches: Callable[..., Iterator[pa.RecordBatch]]) -> None:
        self._batches = batches
        # Streams that are read at the same time, about the number of threads of a laptop.
        self._cursors: Recent[tuple[FilePart | RowGroup | str, ...], Cursor[pa.Table]] = Recent(8)

    def __call__(self, chunk: Chunk, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield tables that hold some columns of a chunk."""
        for (path, whole), group in groupby(chunk.pieces, key=lambda p: (p.held.path, p.is_whole)):
            pieces = list(group)
            with reading_errors(path):
                if whole:
                    n_rows = sum(piece.n_rows for piece in pieces)
                    batches = self._batches([piece.held for piece in pieces], names, n_rows, 0)
                    yield from _tables_of_sizes(batches, [n_rows])
                else:
                    # Too few rows are left if some were removed.
                    yield from [table for piece in pieces for table in self._block(piece, names)]

    def _block(self, piece: Piece, names: Sequence[str]) -> list[pa.Table]:
        """Return a block of a stream that is read from its start, by cursors that threads share."""
        cuts = cuts_of(piece.n_stored or piece.n_rows, BLOCK_ROWS)

        def start() -> Iterator[pa.Table]:
            batches = self._batches([piece.held], names, cuts[1], 2**18)
            return _tables_of_sizes(batches, [b - a for a, b in pairwise(cuts)])

        make = partial(Cursor, start, n_items=len(cuts) - 1)
        return self._cursors.get((piece.held, *names), make).item(piece.origin // cuts[1])


def scanned_batches(
    schema: pa.Schema,
    chosen: ds.Expression | None,
    parts: Sequence[FilePart],
    names: Sequence[str],
    size: int,
    _: int,
) -> Iterator[pa.RecordBatch]:
    """Read chosen rows of files of any kind, by Arrow's scanner, which holds a whole row group."""
    for part in parts:
        yield from part.fragment.to_batches(
            schema=schema,
            columns=list(names),
            filter=chosen,
            batch_size=size,
            use_threads=False,
        )


def parquet_batches(
    fields: Mapping[str, Field],
    filesystem: pyarrow.fs.FileSystem,
    footers: Recent[str, pq.FileMetaData],
    parts: Sequence[RowGroup],
    names: Sequence[str],
    size: int,
    buffer: int,
) -> Iterator[pa.RecordBatch]:
    """Read row groups of a file, if it has not changed since its footer was read."""
    file, numbers = parts[0], [part.number for part in parts]
    stored = [name for name in names if name not in file.keys]
    keys = {name: file.keys[name] for name in names if name in file.keys}
    local = isinstance(filesystem, pyarrow.fs.LocalFileSystem)
    with filesystem.open_input_file(file.path) as handle:
        info = filesystem.get_file_info(file.path)
        if (info.size, info.mtime_ns) != (file.size, file.modified):
            raise InvalidDataError(
                f"{file.path} was replaced or changed after it had been opened: open the files "
                "again with open_rows.",
                topic="rows-and-files",
            )
        opened = pq.ParquetFile(
            handle,
            metadata=footers.get(file.path, lambda: pq.read_metadata(handle)),
            read_dictionary=[name for name in stored if fields[name].is_text],
            buffer_size=buffer,
            pre_buffer=not local and not buffer,
            page_checksum_verification=True,
        )
        options = {"row_groups": numbers, "columns": stored, "use_threads": False}
        for batch in opened.iter_batches(size, **options):
            repeated = [pa.repeat(key, batch.num_rows) for key in keys.values()]
            both = [*batch.schema.names, *keys]
            yield pa.RecordBatch.from_arrays([*batch.columns, *repeated], names=both)


# -- opening ---------------------------------------------------------------------------------------


def open_files(files: str | Sequence[str], **options: object) -> Opened:
    """Return the reader of files, or of an address; see `pyarrow.dataset.dataset` for the options.

    Raises
    ------
    InvalidDataError
        If they cannot be read, or differ in their columns.
    """
    with reading_errors(files if isinstance(files, str) else files[0]):
        dataset = ds.dataset(files, partitioning="hive", **options)
    return open_dataset(dataset)


def open_dataset(dataset: ds.Dataset) -> Opened:
    """Return the reader of an Arrow dataset, and the pieces that hold its rows.

    Raises
    ------
    InvalidOptionError
        If there are no files.
    InvalidDataError
        If the files differ in their columns, or one cannot be read.
    """
    if isinstance(dataset, ds.InMemoryDataset):
        return open_columns(required_table(dataset.to_table()), "Arrow dataset")
    chosen = filter_of(dataset)
    fragments = list(unfiltered(dataset).get_fragments())
    if not fragments:
        raise InvalidOptionError("The dataset has no files.")
    if chosen is None and all(isinstance(f, ds.ParquetFileFragment) and f.path for f in fragments):
        fields, pieces = _row_groups_of(fragments)
        footers = Recent[str, pq.FileMetaData](64)  # of wide files, a megabyte each
        read = partial(parquet_batches, fields, fragments[0].filesystem, footers)
        return Reader(find=Files(read), fields=fields, kind="Parquet", in_files=True), pieces
    fields = _fields(dataset.schema)
    words = "" if chosen is None else "filtered"
    scan = partial(_scanned, chosen=chosen, fields=fields, end=words and f", {words}")
    pieces = [piece for fragment in fragments for piece in scan(fragment)]
    kind = f"{words} Arrow dataset".strip()
    read = partial(scanned_batches, dataset.schema, chosen)
    return Reader(find=Files(read), fields=fields, kind=kind, in_files=True), pieces


def _scanned(
    fragment: ds.Fragment,
    *,
    chosen: ds.Expression | None,
    fields: Mapping[str, Field],
    end: str,
) -> list[Piece]:
    """Count the rows of a fragment, which reads the columns of `chosen`."""
    path = getattr(fragment, "path", "") or "a table in memory"
    parquet = isinstance(fragment, ds.ParquetFileFragment)
    pieces = []
    with reading_errors(path):
        keys = ds.get_partition_keys(fragment.partition_expression)
        found = {n: f for n, f in _fields(fragment.physical_schema).items() if n not in keys}
        for name in fields.keys() & found.keys():  # Arrow casts numbers to the types of the dataset
            if found[name].is_text != fields[name].is_text:
                _require_equal(path, name, found[name], "the dataset", fields[name])
        for part in fragment.split_by_row_group() if parquet else [fragment]:
            group = f", row group {part.row_groups[0].id}" if parquet else ""
            n_rows = part.count_rows(filter=chosen)
            pieces.append(Piece(f"{path}{group}{end}", n_rows, held=FilePart(path, part)))
    return pieces


def _row_groups_of(
    fragments: Sequence[ds.ParquetFileFragment],
) -> tuple[dict[str, Field], list[Piece]]:
    """Return the column types of Parquet files, and their row groups."""
    infos = fragments[0].filesystem.get_file_info([fragment.path for fragment in fragments])
    pieces: list[Piece] = []
    fields: dict[str, Field] = {}
    first = ""
    for fragment, info in zip(fragments, infos, strict=True):
        path = fragment.path
        with reading_errors(path):
            keys = ds.get_partition_keys(fragment.partition_expression)
            of_keys = {name: arrow_field(pa.scalar(value).type) for name, value in keys.items()}
            found = _fields(fragment.physical_schema) | of_keys
            n_rows = {group.id: group.num_rows for group in fragment.row_groups}
        for number, n in n_rows.items():
            part = RowGroup(path, number, keys, info.size, info.mtime_ns)
            pieces.append(Piece(f"{path}, row group {number}", n, held=part))
        if not sum(n_rows.values()):
            continue  # an empty file may have no types
        if not fields:
            fields, first = found, path
        for name, field_ in fields.items():
            _require_equal(path, name, found.get(name), first, field_)
    return fields or found, pieces


def _require_equal(path: str, name: str, found: Field | None, first: str, field: Field) -> None:
    if found is None:
        raise InvalidDataError(
            f"{path} has no column {name!r}, which {first} has: write the column to all files.",
            topic="rows-and-files",
        )
    if found != field:
        raise InvalidDataError(
            f"{path} has {name!r} as {found}, and {first} as {field}: write the column with one "
            "type to all files.",
            topic="rows-and-files",
        )


def _tables_of_sizes(batches: Iterator[pa.RecordBatch], sizes: Sequence[int]) -> Iterator[pa.Table]:
    """Join and divide record batches into tables of the given sizes, copying nothing.

    The last table is shorter if there are not enough rows.

    Examples
    --------
    >>> batches = pa.table({"x": range(5)}).to_batches(max_chunksize=2)
    >>> [table["x"].to_pylist() for table in _tables_of_sizes(iter(batches), [3, 2])]
    [[0, 1, 2], [3, 4]]
    """
    held: list[pa.RecordBatch] = []
    for size in sizes:
        n_lacking = size - sum(batch.num_rows for batch in held)
        while n_lacking > 0 and (more := list(islice(batches, 1))):
            held += more
            n_lacking -= more[0].num_rows
        if not held:
            return
        table = pa.Table.from_batches(held)
        yield table.slice(0, size)
        held = table.slice(size).to_batches()


def _fields(schema: pa.Schema) -> dict[str, Field]:
    """Return the type of each column of an Arrow schema.

    Examples
    --------
    >>> _fields(pa.schema({"x": pa.int8()}))["x"].dtype
    dtype('int8')
    """
    for name in schema.names:
        if len(schema.get_all_field_indices(name)) > 1:
            raise InvalidDataError(
                f"There are two columns {name!r}: rename one of them.", topic="rows-and-files"
            )
    return {column.name: arrow_field(column.type) for column in schema}
