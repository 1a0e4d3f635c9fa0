"""PASS-GLM of rows in files: ``python -m benchmarks.pass_scale``.

Two parts, both by default. ``--reading``: processor seconds of the pass over a Parquet file,
compared with reading the same columns and doing nothing. ``--workers``: many columns, summed by one
and by two processes, each of which reads its own files; what comes back adds up.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
from threadpoolctl import threadpool_limits

from benchmarks.curves import verdict
from benchmarks.glm_judge import seconds_of
from pymc_coresets import open_rows
from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.papers.polynomial.parts_of_data import PredictorRows
from pymc_coresets.papers.polynomial.statistics import PolynomialStatistics
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_rows
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import StreamedRows

type Dtype = Literal["float64", "float32"]

PARTS = ("reading", "workers")
ASKED_RATIO, ASKED_SPEED_UP = 1.5, 1.8
REPEATS, GROUP, N_FILES = 3, 2**17, 8
_GROUP = 2**12  # rows of a group of many columns


def write_rows(
    path: Path,
    n_rows: int,
    n_columns: int,
    seed: int,
    group: int = GROUP,
    dtype: Dtype = "float64",
) -> None:
    """Write a logistic regression's rows, zstd, without dictionaries."""
    rng = np.random.default_rng(seed)
    effects = np.linspace(-1, 1, n_columns) / np.sqrt(n_columns)
    names = [f"x{i}" for i in range(n_columns)]
    number = pa.from_numpy_dtype(np.dtype(dtype))
    schema = pa.schema([*((name, number) for name in names), ("y", pa.int8())])
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for start in range(0, n_rows, group):
            X = rng.standard_normal((min(group, n_rows - start), n_columns), dtype=dtype)
            y = rng.random(len(X)) < 1 / (1 + np.exp(-X @ effects))
            columns = [pa.array(column) for column in np.ascontiguousarray(X.T)]
            columns.append(pa.array(y.astype(np.int8)))
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=group)


def opened(paths: Sequence[Path], n_columns: int) -> RowSource:
    columns = {"X": [f"x{i}" for i in range(n_columns)], "y": "y"}
    return open_rows([str(path) for path in paths], columns=columns)


def predictor_of(rows: RowSource, n_columns: int) -> PredictorRows:
    head = rows.head(100)
    with pm.Model() as model:
        X, y = pm.Data("X", head["X"]), pm.Data("y", head["y"])
        beta = pm.Normal("beta", 0, 1, shape=n_columns)
        pm.Bernoulli("likelihood", logit_p=X @ beta, observed=y)
    loglik = likelihood_of_rows(model, RowsToRead(rows=rows), rng=np.random.default_rng(1))
    return PredictorRows(seen_rows_of(loglik, find_linear_predictor), loglik)


# -- reading ---------------------------------------------------------------------------------------


def read_all(rows: RowSource) -> None:
    for chunk in rows.chunks:
        rows.read(chunk)


def reading_report(n_rows: int, n_columns: int) -> str:
    """Compare the pass with reading the same columns, in turn, on one thread of BLAS."""
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "rows.parquet"
        write_rows(path, n_rows, n_columns, seed=1)
        rows = opened([path], n_columns)
        fixed, part = seconds_of(lambda: predictor_of(rows, n_columns))
        runs: dict[str, Callable[[], object]] = {
            "reading": lambda: read_all(rows),
            "scan": rows.check,
            "pass": lambda: part.statistics(2, 4.0),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(REPEATS):
            for name, run in runs.items():
                seconds[name].append(seconds_of(run)[0])
        size = path.stat().st_size
    typical = {name: median(values) for name, values in seconds.items()}
    ratio = typical["pass"] / typical["reading"]
    each = {name: f"{1e9 * value / n_rows:.0f} ns" for name, value in typical.items()}
    return "\n".join(
        [
            (
                f"N = {n_rows:,}, p = {n_columns}, {size / 1e6:.0f} MB, processor time per row: "
                f"reading {each['reading']}, scan {each['scan']}, pass {each['pass']}; ratio of "
                f"the pass to reading {ratio:.2f}"
            ),
            f"(model, scan and comparison with PyMC before the pass: {fixed:.1f} s in all)",
            "",
            verdict(f"the pass takes at most {ASKED_RATIO} times reading", [ratio <= ASKED_RATIO]),
        ]
    )


# -- workers ---------------------------------------------------------------------------------------


@cache
def _prepared(path: Path, n_columns: int) -> PredictorRows:
    """One predictor for each process; its sums are those of any file."""
    threadpool_limits(1)
    return predictor_of(opened([path], n_columns), n_columns)


def _prepare(path: Path, n_columns: int) -> float:
    return seconds_of(lambda: _prepared(path, n_columns))[0]


def _summed(
    first: Path, paths: Sequence[Path], n_columns: int
) -> tuple[float, PolynomialStatistics]:
    part = _prepared(first, n_columns)
    names = {row.name: row.values.dtype for row in part.observations.rows}
    source = StreamedRows(opened(paths, n_columns), names)
    part = replace(part, loglikelihood=part.loglikelihood.reading(source))
    return seconds_of(lambda: part.statistics(2, 4.0))


def workers_report(n_rows: int, n_columns: int, dtype: Dtype) -> str:
    """Sum files by one and by two processes; say what 22 would take."""
    walls, busiest, sums = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"part-{i}.parquet" for i in range(N_FILES)]
        for i, path in enumerate(paths):
            write_rows(path, n_rows // N_FILES, n_columns, seed=i, group=_GROUP, dtype=dtype)
        n_bytes = sum(path.stat().st_size for path in paths)
        for n_workers in (1, 2):
            shares = [tuple(paths[i::n_workers]) for i in range(n_workers)]
            with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
                ready = [pool.submit(_prepare, paths[0], n_columns) for _ in shares]
                fixed = max(job.result() for job in ready)
                began = time.perf_counter()
                jobs = [pool.submit(_summed, paths[0], share, n_columns) for share in shares]
                results = [job.result() for job in jobs]
                first, *others = (statistics for _, statistics in results)
                sums[n_workers] = sum(others, start=first)
                walls[n_workers] = time.perf_counter() - began
                busiest[n_workers] = max(seconds for seconds, _ in results)
    adding, _ = seconds_of(lambda: [sums[1] + sums[2] for _ in range(10)])
    what = f"{n_rows:,} rows of {n_columns:,} {dtype} columns, {n_bytes / 1e9:.1f} GB"
    return _speed_ups(what, walls, busiest, sums, fixed, adding / 10)


def _speed_ups(
    what: str,
    walls: dict[int, float],
    busiest: dict[int, float],
    sums: dict[int, PolynomialStatistics],
    fixed: float,
    adding: float,
) -> str:
    one, two = busiest[1], busiest[2]
    same = np.allclose(sums[1].moments[2], sums[2].moments[2], rtol=1e-10, atol=1e-9)
    size = sums[1].moments[2].nbytes
    many = [k * one / 22 + 22 * adding for k in (1, 100)]
    clock = f"{walls[1]:.1f} s by the clock", f"{walls[2]:.1f} s", f"{walls[1] / walls[2]:.2f}"
    lines = (
        f"{what} in {N_FILES} Parquet files.",
        f"- one process: {one:.2f} processor seconds ({clock[0]})",
        f"- the busier of two: {two:.2f} ({clock[1]}); speed-up {one / two:.2f} ({clock[2]})",
        f"- the sums are {'equal' if same else 'NOT equal'}",
        f"- a worker returns {size / 1e6:.1f} MB; adding two takes {1e3 * adding:.0f} ms",
        f"- a worker starts in {fixed:.1f} processor seconds (model, scan of a file, comparison)",
        (
            f"- 22 workers with a core each: {one:.2f} / 22 + 22 x {adding:.3f} = {many[0]:.2f} s, "
            f"a speed-up of {one / many[0]:.1f}; with 100 times the rows {100 * one / many[1]:.1f}"
        ),
        "",
        verdict(
            f"speed-up by two processes at least {ASKED_SPEED_UP}, in processor seconds",
            [one / two >= ASKED_SPEED_UP],
        ),
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--n", type=int, default=1_000_000, help="rows, for --reading")
    parser.add_argument("--p", type=int, default=20, help="columns, for --reading")
    parser.add_argument("--wide-n", type=int, default=2**14, help="rows, for --workers")
    parser.add_argument("--wide-p", type=int, default=1_000, help="columns, for --workers")
    parser.add_argument("--wide-dtype", choices=("float64", "float32"), default="float64")
    options = parser.parse_args()
    chosen = [part for part in PARTS if getattr(options, part)] or PARTS
    reports: dict[str, Callable[[], str]] = {
        "reading": lambda: reading_report(options.n, options.p),
        "workers": lambda: workers_report(options.wide_n, options.wide_p, options.wide_dtype),
    }
    for part in chosen:
        print(f"### {part.capitalize()}\n\n{reports[part]()}\n", flush=True)


if __name__ == "__main__":
    main()
