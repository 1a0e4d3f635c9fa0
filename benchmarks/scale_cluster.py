"""Looks on a local Dask cluster against threads: processor seconds, workers, a worker that dies.

Ratios are those of processor seconds: two workers on two cores that others use, too, are no test of
the clock.  That of the clock is reported beside them, with the load.
"""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Timer
from typing import Any

import numpy as np

from benchmarks.scale_data import N_COLUMNS, Table, draws_near_truth, opened
from benchmarks.scale_data import model_of as model_of_rows
from pymc_coresets.rowlogp.of_model import likelihood_of_prototypes
from pymc_coresets.rows.executors import engine_of
from pymc_coresets.rows.streamed import StreamedRows

FEW_DRAWS = 10  # of a pass that makes all workers compile
PATIENCE = "300s"  # for workers to start, on a busy machine

type PassSums = Callable[[object, int], np.ndarray]


def cluster(table: Table, *, n_draws: int) -> dict[str, float]:
    """Seconds of a pass with threads, two workers, two of which one is killed, and one."""
    import dask  # noqa: PLC0415
    from distributed import Client, LocalCluster  # noqa: PLC0415

    sums = looks_at(table)
    sums(None, FEW_DRAWS)
    expected, wall, own = timed(sums, None, n_draws)
    found = {"threads": own, "threads wall": wall, "n_rows": float(table.n_rows)}
    said(f"{table.n_rows:,} rows at {n_draws} draws, threads: {own:.1f} CPU s, {wall:.1f} s")
    dask.config.set({"distributed.comm.timeouts.connect": PATIENCE})
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a port that another cluster uses
        with LocalCluster(n_workers=2, **options) as some, Client(some, timeout=PATIENCE) as client:
            found |= measured("2", sums, client, expected, n_draws)
            killed_after(client, found["2 wall"] / 3)
            total, found["killed wall"], _ = timed(sums, client, n_draws)
            found["killed same bits"] = float(np.array_equal(total, expected))
            said(f"one of two killed: {found['killed wall']:.1f} s")
            some.scale(1)
            while len(client.nthreads()) != 1:
                time.sleep(0.1)
            found |= measured("1", sums, client, expected, n_draws)
    return found | {"load": os.getloadavg()[0]}


def measured(
    name: str,
    sums: PassSums,
    client: Any,  # noqa: ANN401
    expected: np.ndarray,
    n_draws: int,
) -> dict[str, float]:
    """Seconds of all processes together, of the busiest worker, and by the clock."""
    client.run(import_module, "pymc_coresets")  # so that none has yet to, when tasks are given out
    sums(client, FEW_DRAWS)
    before = client.run(time.process_time)
    total, wall, own = timed(sums, client, n_draws)
    each = [s - before[worker] for worker, s in client.run(time.process_time).items()]
    said(f"{name} of Dask: {own:.1f} + {spelled(each)} CPU s, {wall:.1f} s")
    return {
        f"{name} wall": wall,
        f"{name} seconds": own + sum(each),
        f"{name} busiest": max(each),
        f"{name} same bits": float(np.array_equal(total, expected)),
    }


def looks_at(table: Table) -> PassSums:
    """Return the function that passes over all rows, with an executor or threads."""
    rows = opened(table, N_COLUMNS, n_files=table.n_parts)
    loglik = likelihood_of_prototypes(model_of_rows(rows), rows.columns)
    columns = {row.name: row.values.dtype for row in loglik.observations.rows}

    def sums(executor: object, n_draws: int) -> np.ndarray:
        draws = draws_near_truth(n_draws, N_COLUMNS, table.n_rows)
        source = StreamedRows(rows, columns, engine=engine_of(executor))
        total: np.ndarray = loglik.reading(source).sums(draws).total
        return total

    return sums


def timed(sums: PassSums, executor: object, n_draws: int) -> tuple[np.ndarray, float, float]:
    """Return sums, wall seconds, and this process's processor seconds."""
    wall, own = time.perf_counter(), time.process_time()
    total = sums(executor, n_draws)
    return total, time.perf_counter() - wall, time.process_time() - own


def killed_after(client: Any, seconds: float) -> None:  # noqa: ANN401
    """Kill a worker's process in a while."""
    victim = next(iter(client.run(os.getpid).values()))
    Timer(seconds, os.kill, (victim, signal.SIGKILL)).start()


def said(text: str) -> None:
    """Say how far it is: this may take minutes."""
    print(f"  {text} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)


def spelled(seconds: Sequence[float]) -> str:
    return " + ".join(f"{s:.1f}" for s in seconds)
