"""Looks on a local Dask cluster against threads: processor seconds, workers, a worker that dies."""

import os
import signal
import time
import warnings
from collections.abc import Callable
from threading import Timer

import numpy as np

from benchmarks.scale_data import N_COLUMNS, Table, draws_near_truth, opened
from benchmarks.scale_data import model_of as template_of
from pymc_coresets.potentials.from_rows import template_of_rows
from pymc_coresets.rows.engines.executor_choice import engine_of
from pymc_coresets.rows.streamed import StreamedRows

N_DRAWS = 500


def cluster(table: Table, *, n_files: int) -> dict[str, float]:
    """Seconds of a look with threads, with one and two workers, and with one that is killed."""
    from distributed import Client, LocalCluster  # noqa: PLC0415

    look = looks_at(table, n_files)
    expected, wall, own = timed(look, None)
    found = {"threads": own, "threads wall": wall}
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a port that another cluster uses
        for n_workers in (1, 2):
            with LocalCluster(n_workers=n_workers, **options) as some, Client(some) as client:
                look(client)  # imports and compiles
                before = workers_seconds(client)
                total, wall, own = timed(look, client)
                found[f"{n_workers} wall"] = wall
                found[f"{n_workers} seconds"] = own + workers_seconds(client) - before
                found[f"{n_workers} same bits"] = float(np.array_equal(total, expected))
                if n_workers == 2:
                    killed_after(client, wall / 3)
                    total, found["killed wall"], _ = timed(look, client)
                    found["killed same bits"] = float(np.array_equal(total, expected))
    return found


def looks_at(table: Table, n_files: int) -> Callable[[object], np.ndarray]:
    """Return the function that looks at all rows of some files, with an executor or threads."""
    rows = opened(table, N_COLUMNS, n_files=n_files)
    template = template_of_rows(template_of(rows), rows.columns)
    columns = {row.name: row.values.dtype for row in template.observations.rows}
    draws = draws_near_truth(N_DRAWS, N_COLUMNS, table.n_rows)
    template.look(draws)  # compiles

    def look(executor: object) -> np.ndarray:
        source = StreamedRows(rows, columns, engine=engine_of(executor))
        total: np.ndarray = template.reading(source).look(draws).total
        return total

    return look


def timed(
    look: Callable[[object], np.ndarray], executor: object
) -> tuple[np.ndarray, float, float]:
    """Return sums, wall seconds, and this process's processor seconds."""
    wall, own = time.perf_counter(), time.process_time()
    total = look(executor)
    return total, time.perf_counter() - wall, time.process_time() - own


def workers_seconds(client: object) -> float:
    return sum(client.run(time.process_time).values())  # type: ignore[attr-defined]


def killed_after(client: object, seconds: float) -> None:
    """Kill a worker's process in a while."""
    victim = next(iter(client.run(os.getpid).values()))  # type: ignore[attr-defined]
    Timer(seconds, os.kill, (victim, signal.SIGKILL)).start()
