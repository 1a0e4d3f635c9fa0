"""Dask frames, one partition at a time."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dask
import dask.base

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.kinds.conversion import table_of
from pymc_coresets.rows.sources.kinds.pandas_tables import PandasTable
from pymc_coresets.rows.sources.layout import Piece, Segment
from pymc_coresets.rows.sources.reader import Key, Lies, Reader, SentRows
from pymc_coresets.rows.sources.tabular import Field, Table

__all__ = ["DaskFrameReader", "computed"]

_OF_A_CLUSTER = "dask.distributed"  # the name of the scheduler of a Client
_REMEDY = "Try to compute it without open_rows."


class DaskFrameReader:
    """A Dask frame, whose partitions are computed by the scheduler that is set up, or right here.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Its partitions are computed once to count their rows.
    """

    kind, noun, divisible, lies = "Dask", "partition", False, Lies.WITH_DASK
    n_bytes: int | None = None

    def __init__(self, frame: Any) -> None:  # noqa: ANN401
        self._names = {str(name): name for name in frame.columns}
        if len(self._names) < len(frame.columns):
            raise InvalidOptionError("Two columns of the frame have the same name: rename one.")
        self._frame = frame
        self.fields: Mapping[str, Field] = PandasTable(frame._meta_nonempty).fields  # noqa: SLF001
        with reading_errors("A partition of the Dask frame", _REMEDY):
            sizes = computed(frame.map_partitions(len))
        self.pieces = tuple(
            Piece(f"partition {i}", f"partition {i}", int(n)) for i, n in enumerate(sizes)
        )

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Compute some columns of partitions, see `Reader.tables`."""
        frame = self._frame[[self._names[name] for name in names]]
        for segment in segments:
            with reading_errors(self.pieces[segment.piece].where, _REMEDY):
                table = table_of(computed(frame.partitions[segment.piece]))
            assert table is not None
            yield table, slice(0, table.n_rows)

    def collections(self, key: Key, names: Sequence[str]) -> list[Any]:
        """Return partitions, see `DaskReader.collections`."""
        frame = self._frame[[self._names[name] for name in names]]
        return [frame.partitions[segment.piece] for segment in key]

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> Reader:
        """Return what some chunks hold, see `Reader.portion`."""
        return SentRows.of(self, keys, names)


def computed(collection: Any) -> Any:  # noqa: ANN401
    """Compute by the user's scheduler; without one, in the thread that asks.

    Chunks are read by several threads already.  A task of a cluster asks the cluster, which knows
    where persisted partitions lie, and gives up its own place until they have come.
    """
    if _in_a_task():
        with sys.modules["distributed"].worker_client() as client:
            return dask.base.compute(collection, scheduler=client)[0]
    scheduler = dask.config.get("scheduler", None) or "synchronous"
    if scheduler == _OF_A_CLUSTER:
        from pymc_coresets.rows.engines.clusters import Cluster  # noqa: PLC0415

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
