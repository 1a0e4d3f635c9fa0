"""The measured parts of `benchmarks.scale`, each in a process of its own, so that memory is too.

``python -m benchmarks.scale_parts '{"part": "scan", "folder": ..., "n_rows": ...}'`` prints JSON.
"""

import gc
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.scale_cluster import cluster
from benchmarks.scale_data import GROUP, N_COLUMNS, N_USED, TRUTH, Table, draws_near_truth, opened
from benchmarks.scale_data import model_of as model_of_rows
from benchmarks.scale_exact import Gaussian, laplace
from pymc_coresets import CoresetWarning, RowSource, build_coreset
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.methods.job import rows_of_a_quadratic
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import likelihood_of_prototypes
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.streamed import StreamedRows

type Figures = dict[str, float]

ONE_BLAS_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
N_CANDIDATES = 4_000
MB = 1e6


def in_own_process(part: str, table: Table, **options: object) -> Figures:
    """Run a part, and return what it measured."""
    task = vars(table) | {"folder": str(table.folder), "part": part} | options
    command = [sys.executable, "-m", "benchmarks.scale_parts", json.dumps(task)]
    environment = os.environ | ONE_BLAS_THREAD
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def memory(which: str) -> float:
    """Return the resident memory (VmRSS) of this process, or its peak (VmHWM), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(f"{which}:"))


def processor_seconds(function: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    function()
    return time.process_time() - start


def medians(functions: dict[str, Callable[[], object]], repeats: int) -> Figures:
    """Return the median processor seconds of each, which take turns."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            taken[name].append(processor_seconds(function))
    return {name: float(np.median(seconds)) for name, seconds in taken.items()}


# -- reading ---------------------------------------------------------------------------------------


def scan(table: Table, *, n_files: int, repeats: int) -> Figures:
    """Seconds of reading some files: by Arrow alone, as arrays of the model, and with a scan."""
    rows = opened(table, N_COLUMNS, n_files=n_files)
    rows.read(rows.chunks[0])
    found = medians(
        {
            "arrow": lambda: decoded_by_arrow(table, n_files),
            "read": lambda: [rows.read(chunk) for chunk in rows.chunks],
            "scan": rows.check,
        },
        repeats,
    )
    return found | {"n_rows": float(len(rows))}


def decoded_by_arrow(table: Table, n_files: int) -> None:
    names = [*(f"x{j:02}" for j in range(N_COLUMNS)), "y"]
    for path in table.paths[:n_files]:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            columns = file.read_row_group(group, columns=names, use_threads=False)
            for column in columns.columns:
                column.to_numpy()


# -- looks -----------------------------------------------------------------------------------------


def sums(table: Table, *, n_files: int, repeats: int) -> Figures:
    """Seconds of passes over all rows of some files, from Parquet and in memory."""
    rows = opened(table, N_COLUMNS, n_files=n_files)
    loglik = likelihood_of_prototypes(model_of_rows(rows), rows.columns)
    columns = {row.name: row.values.dtype for row in loglik.observations.rows}
    streamed = StreamedRows(rows, columns)
    arrays = [np.concatenate(parts) for parts in zip(*read_arrays(streamed), strict=True)]
    sources = {"parquet": streamed, "memory": InMemoryRows(arrays)}
    found: Figures = {"n_rows": float(len(rows))}
    for n_draws in (100, 500):
        draws = draws_near_truth(n_draws, N_COLUMNS, table.n_rows)
        loglik.sums(draws)  # compiles
        ways = {f"{name} {n_draws}": looking(loglik.reading(source), draws)
                for name, source in sources.items()}  # fmt: skip
        found |= medians(ways, repeats)
    return found


def read_arrays(rows: StreamedRows) -> Iterator[tuple[np.ndarray, ...]]:
    for block in rows.blocks(GROUP):
        yield block.arrays


def looking(
    loglik: LogLikelihood, draws: dict[str, np.ndarray], n_candidates: int = 0
) -> Callable[[], object]:
    return lambda: loglik.sums(draws, n_candidates=n_candidates, scale=1e3, key=1)


# -- builds ----------------------------------------------------------------------------------------


def build(table: Table, *, n_files: int, weighted: bool, seed: int) -> Figures:
    """Build a coreset (D = 11): seconds, memory, looks, readings, and its true divergence."""
    rows = opened(table, N_USED, n_files=n_files, weighted=weighted)
    readings, before = count_readings(rows), memory("VmRSS")
    start, wall = time.process_time(), time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=CoresetWarning):
        coreset = build_coreset(model_of_rows(rows), rows=rows, random_seed=seed, progressbar=False)
    found = {
        "seconds": time.process_time() - start,
        "wall": time.perf_counter() - wall,
        "memory": memory("VmHWM") - before,
        "readings": readings["rows"] / len(rows),
        "n_rows": float(len(rows)),
        "n_effective": float(coreset.n_observations),
        "size": float(coreset.size),
        "looks": float(round(coreset.history["n_passes"].values[-1])),
        "evaluations": float(coreset.history["n_evaluations"].values[-1]) / len(rows),
        "gradients": float(coreset.history.attrs["n_gradients"]),
        "first": float(coreset.history["heldout_objective"].values[0]),
        "objective": float(coreset.objective),
        "khat": float(pareto_smooth(coreset.proposal.log_ratios[None]).pareto_khat),
    }
    found["kl"] = exact(rows).symmetrised_kl(own(coreset.rows))
    n_draws = 2 * rows_of_a_quadratic(N_USED + 1)
    draws = draws_near_truth(n_draws, N_USED, len(rows))
    full_look = looking(coreset.loglikelihood, draws, N_CANDIDATES)
    found["sums"] = processor_seconds(full_look)
    return found


def count_readings(rows: RowSource) -> dict[str, int]:
    """Count the rows that are read from here on."""
    counted = {"rows": 0}

    def counting(read: Callable[..., Any]) -> Callable[..., Any]:
        def reads(chunk: Any, *arguments: Any) -> Any:  # noqa: ANN401
            counted["rows"] += chunk.n_rows
            return read(chunk, *arguments)

        return reads

    for name in ("read", "weighted", "examine"):
        setattr(rows, name, counting(getattr(rows, name)))
    return counted


def exact(rows: RowSource) -> Gaussian:
    """Approximate the posterior of all rows."""

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for chunk in rows.chunks:
            arrays, weights = rows.weighted(chunk)
            yield arrays["X"], arrays["y"], weights

    return laplace(chunks, TRUTH[: N_USED + 1])


def own(kept: Any) -> Gaussian:  # noqa: ANN401
    """Approximate the posterior of a coreset."""
    arrays = kept["data X"].values, kept["data y"].values, kept["weight"].values
    return laplace(lambda: [arrays], TRUTH[: N_USED + 1])


PARTS: dict[str, Callable[..., Figures]] = {
    "scan": scan,
    "sums": sums,
    "build": build,
    "cluster": cluster,
}


def main() -> None:
    task = json.loads(sys.argv[1])
    part = PARTS[task.pop("part")]
    table = Table(folder=Path(task.pop("folder")), **{
        name: task.pop(name) for name in ("n_rows", "dtype", "compression", "n_parts")
    })  # fmt: skip
    print(json.dumps(part(table, **task)))


if __name__ == "__main__":
    main()
