"""Dask frames, one partition at a time."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import dask
import dask.base

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.layout import Chunk, Piece
from pymc_coresets.rows.sources.tables import Location, Opened, Reader, Table, table_of

_OF_A_CLUSTER = "dask.distributed"  # the name of the scheduler of a Client
_REMEDY = "Try to compute it without open_rows."


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
            with reading_errors(segment.piece.where, _REMEDY):
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
    with reading_errors("A partition of the Dask frame", _REMEDY):
        sizes = list(computed(frame.map_partitions(len)))
    names = [f"partition {i}" for i in range(len(sizes))]
    return reader, [Piece(n, n, int(sizes[i]), held=i) for i, n in enumerate(names)]


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
