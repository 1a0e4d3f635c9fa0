"""What rows from files reach: ``python -m benchmarks.scale [--rows 10000000 --folder ...]``.

Writes the rows of a logistic regression to Parquet files, and prints targets with what was
measured: reading, looks, builds with their memory and their true divergence, and clusters.  Each
part runs in a process of its own.  Ratios are those of processor seconds; memory needs Linux.
``--more 1e8`` builds of so many rows, too.
"""

import shutil
import statistics
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.scale_data import N_COLUMNS, N_FILES, N_USED, Table
from benchmarks.scale_parts import MB, Figures, in_own_process
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets.methods.job import rows_of_a_quadratic
from pymc_coresets.rows.memory import TASK_ROWS

TOLERANCE = 0.01
COMPARED = 2_000_000  # rows, at least a tenth: of these, the seconds of reading and looks
MOST_TASKS, CLUSTER_DRAWS = 8, 500
NS = 1e9
PARTS = ("looks", "cluster", "builds", "weighted")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure, and what it should not exceed."""

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def cells(self) -> list[str]:
        verdict = "pass" if self.value <= self.limit else "FAIL"
        return [self.what, f"{self.value:.3g}{self.unit}", f"{self.limit:.3g}{self.unit}", verdict]


def reading_targets(scan: Figures) -> list[Target]:
    return [
        Target(
            what="scan / reading the same columns", value=scan["scan"] / scan["read"], limit=1.25
        )
    ]


def look_targets(sums: Figures) -> list[Target]:
    limits = {500: 1.15, 100: 1.5}
    return [
        Target(
            what=f"look from Parquet / in memory, S = {n_draws}",
            value=sums[f"parquet {n_draws}"] / sums[f"memory {n_draws}"],
            limit=limit,
        )
        for n_draws, limit in limits.items()
    ]


def build_targets(builds: Mapping[str, Figures]) -> list[Target]:
    tenth, whole = builds["a tenth"], builds["all"]
    n_draws = 2 * rows_of_a_quadratic(N_USED + 1)
    before = 4 * 4 * n_draws  # four looks of four draws for each row wanted
    gigabytes = whole["memory"] / 1e9
    return [
        Target(what="peak memory of a build, above import", value=gigabytes, limit=1.0, unit=" GB"),
        Target(what="the same, N / (N / 10)", value=whole["memory"] / tenth["memory"], limit=1.1),
        Target(what="full looks", value=whole["looks"], limit=3),
        Target(
            what=f"log-likelihoods per row / {before:,}",
            value=whole["evaluations"] / before,
            limit=0.25,
        ),
        Target(
            what=f"build / a pass of 2 K = {n_draws} draws",
            value=whole["seconds"] / whole["sums"],
            limit=3.8,
        ),
        *(
            Target(
                what=f"true symmetrised KL, N = {figures['n_effective']:.0e}, nats",
                value=figures["kl"],
                limit=3 * TOLERANCE,
            )
            for figures in builds.values()
        ),
    ]


def cluster_targets(cluster: Figures) -> list[Target]:
    limit = 1.5 * cluster["2 wall"] + 10
    return [
        Target(
            what="look by 2 Dask workers / by threads",
            value=cluster["2 seconds"] / cluster["threads"],
            limit=1.2,
        ),
        Target(
            what="look, the busier of 2 workers / 1 worker",
            value=cluster["2 busiest"] / cluster["1 busiest"],
            limit=1 / 1.8,
        ),
        Target(
            what="look while a worker is killed, wall time",
            value=cluster["killed wall"],
            limit=limit,
            unit=" s",
        ),
        Target(
            what="sums with other bits, of three looks by workers",
            value=3 - sum(v for name, v in cluster.items() if name.endswith("same bits")),
            limit=0,
        ),
    ]


def looks_on_clusters(table: Table) -> Figures:
    """Measure looks at tasks of equal size: an even number, in files of their own."""
    n_tasks = 2 * max(1, min(round(table.n_rows / TASK_ROWS), MOST_TASKS) // 2)
    n_rows = n_tasks * TASK_ROWS
    own = replace(table, folder=table.folder / "tasks", n_rows=n_rows, n_parts=n_tasks)
    own.write()
    found = in_own_process("cluster", own, n_draws=CLUSTER_DRAWS)
    shutil.rmtree(own.folder)
    print(
        f"look at {n_rows:,} rows, {CLUSTER_DRAWS} draws, load {found['load']:.0f}: 1 worker "
        f"{found['1 wall']:.0f} s, 2 workers {found['2 wall']:.0f} s by the clock\n",
        flush=True,
    )
    return found


def measured_builds(table: Table, *, weighted: bool, repeats: int, seed: int) -> dict[str, Figures]:
    """Build of a tenth of the files and of all of them.

    The memory of a tenth is the median of several seeds: what the allocator keeps varies by 10 %.
    """
    tenth = [in_own_process("build", table, n_files=1, weighted=False, seed=seed + i)
             for i in range(repeats)]  # fmt: skip
    memory = statistics.median(figures["memory"] for figures in tenth)
    whole = partial(in_own_process, "build", table, n_files=N_FILES, seed=seed)
    found = {"a tenth": tenth[0] | {"memory": memory}, "all": whole(weighted=False)}
    return found | {"weighted": whole(weighted=True)} if weighted else found


def builds_table(builds: Iterable[Figures]) -> str:
    headings = ["N", "N with case weights", "rows", "k-hat", "J after one pass", "J", "true KL",
                "looks", "gradients", "readings", "CPU s", "wall s", "MB"]  # fmt: skip
    rows = [
        [
            f"{b['n_rows']:.0e}", f"{b['n_effective']:.0e}", f"{b['size']:.0f}",
            f"{b['khat']:.2f}", f"{b['first']:.1e}", f"{b['objective']:.1e}", f"{b['kl']:.1e}",
            f"{b['looks']:.0f}", f"{b['gradients']:.0f}", f"{b['readings']:.1f}",
            f"{b['seconds']:.0f}", f"{b['wall']:.0f}", f"{b['memory'] / MB:.0f}",
        ]
        for b in builds
    ]  # fmt: skip
    return markdown(headings, rows)


def nanoseconds_table(scan: Figures, sums: Figures) -> str:
    per_row = {"Arrow alone": "arrow", "as the model's arrays": "read", "with a scan": "scan"}
    rows = [[f"reading, {what}", f"{NS * scan[name] / scan['n_rows']:.0f}"]
            for what, name in per_row.items()]  # fmt: skip
    for n_draws in (100, 500):
        for where in ("memory", "parquet"):
            each = NS * sums[f"{where} {n_draws}"] / sums["n_rows"]
            rows.append(
                [f"look, S = {n_draws}, {where}", f"{each:.0f} ({each / n_draws:.1f} a draw)"]
            )
    return markdown([f"CPU, p = {N_COLUMNS}", "ns per row"], rows)


def run(table: Table, parts: Collection[str], *, repeats: int, seed: int) -> dict[str, str]:
    """Measure the parts that are wanted, print what they say, and return the tables."""
    table.write()
    size = sum(path.stat().st_size for path in table.paths)
    print(f"\n{table.n_rows:,} rows of {N_COLUMNS} columns, {table.dtype}, "
          f"{table.compression}: {size / 1e9:.2f} GB in {N_FILES} files\n", flush=True)  # fmt: skip
    n_files = max(1, min(N_FILES, round(N_FILES * COMPARED / table.n_rows)))
    targets, found = list[Target](), dict[str, str]()
    if "looks" in parts:
        scan = in_own_process("scan", table, n_files=n_files, repeats=repeats)
        sums = in_own_process("sums", table, n_files=n_files, repeats=repeats)
        found["nanoseconds"] = nanoseconds_table(scan, sums)
        targets += [*reading_targets(scan), *look_targets(sums)]
    if "cluster" in parts:
        targets += cluster_targets(looks_on_clusters(table))
    if "builds" in parts:
        builds = measured_builds(table, weighted="weighted" in parts, repeats=repeats, seed=seed)
        found["builds"] = builds_table(builds.values())
        targets += build_targets(builds)
    found["targets"] = markdown(["target", "measured", "hold to", ""], [t.cells for t in targets])
    for text in found.values():
        print(text, end="\n\n", flush=True)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--more", type=lambda text: int(float(text)), help="rows of more builds")
    parser.add_argument("--folder", type=Path, help="for the files; a temporary one by default")
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--compression", choices=["zstd", "none"], default="zstd")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="(all)")
    options = parser.parse_args()
    if "weighted" in options.parts and "builds" not in options.parts:
        parser.error("--parts weighted needs builds, with which its figures are compared")
    with tempfile.TemporaryDirectory(prefix="scale_") as temporary:
        table = Table(
            folder=options.folder or Path(temporary),
            n_rows=options.rows,
            dtype=options.dtype,
            compression=options.compression,
        )
        measured = partial(run, repeats=options.repeats, seed=options.seed)
        tables = measured(table, options.parts)
        if options.more:
            more = measured(replace(table, n_rows=options.more), ("builds",))
            tables["targets-more"] = more["targets"]
            tables["builds"] += "\n" + more["builds"].splitlines()[-1]
    for name, text in tables.items():
        save(options.tables, f"scale-{name}", text)


if __name__ == "__main__":
    main()
