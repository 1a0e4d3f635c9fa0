"""Results of the papers' comparison: saved as CSV, summarised in tables, and judged."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.closed_forms import Array
from benchmarks.tables import markdown

SPARSE_VI, PUBLISHED = "sparse_vi", "sparse_vi, published"
PURSUIT, MATCHED = "riemannian_pursuit", "riemannian_pursuit, same rows"
IN_TABLES = (10, 20, 50, 100, 200, 300)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A method's coreset at one size, and the processor seconds that it took.

    ``support`` is the number of positive weights, ``kl`` is KL(coreset || full) in nats.
    """

    size: int
    support: int
    kl: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Record:
    """A point and the run that it belongs to; ``prior_kl`` is KL(prior || full) in nats."""

    experiment: str
    dimension: int
    prior_kl: float
    schedule: str
    method: str
    trial: int
    size: int
    support: int
    kl: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Quartiles over the trials, medians in the middle row; one column per size: (3, n_sizes)."""

    method: str
    sizes: Array
    support: Array
    kl: Array
    seconds: Array
    n_trials: int

    def at(self, size: int) -> tuple[float, float]:
        """Return the median divergence and the median seconds at a size."""
        column = int(np.flatnonzero(self.sizes == size)[0])
        return float(self.kl[1, column]), float(self.seconds[1, column])


def write(path: Path, records: Iterable[Record]) -> Iterator[Record]:
    """Pass the records on, and write each to the file as it arrives."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(f.name for f in fields(Record))
        for record in records:
            writer.writerow(astuple(record))
            file.flush()
            yield record


def read(path: Path) -> list[Record]:
    """Read the records that `write` saved."""
    with path.open(newline="") as file:
        return [
            Record(**{f.name: f.type(row[f.name]) for f in fields(Record)})  # type: ignore[operator]
            for row in csv.DictReader(file)
        ]


def curves_of(records: list[Record], *, relative: bool) -> list[Curve]:
    """Return one curve per method, in the order of the records.

    Divergences are relative to that of the prior if `relative`, and in nats otherwise.
    """
    curves = []
    for method in dict.fromkeys(r.method for r in records):
        own = [r for r in records if r.method == method]
        sizes = sorted({r.size for r in own})
        at_size = [[r for r in own if r.size == size] for size in sizes]
        curves.append(
            Curve(
                method=method,
                sizes=np.array(sizes),
                support=_quartiles([[r.support for r in rs] for rs in at_size]),
                kl=_quartiles(
                    [[r.kl / (r.prior_kl if relative else 1) for r in rs] for rs in at_size]
                ),
                seconds=_quartiles([[r.seconds for r in rs] for rs in at_size]),
                n_trials=len({r.trial for r in own}),
            )
        )
    return curves


def _quartiles(values: list[list[float]]) -> Array:
    return np.array([np.quantile(v, (0.25, 0.5, 0.75)) for v in values]).T


# -- tables ----------------------------------------------------------------------------------------


def table_of(curves: list[Curve]) -> str:
    """Return a table of medians and quartiles of the divergence, rows of the coreset, and cost."""
    sizes = sorted({int(s) for c in curves for s in c.sizes} & set(IN_TABLES))
    rows = []
    for curve in curves:
        cells = [_cell(curve, size) for size in sizes]
        largest = f"{curve.support[1, -1]:.0f}", f"{curve.seconds[1, -1]:.2f}"
        rows.append([curve.method, *cells, *largest])
    largest_size = f"at M = {sizes[-1]}"
    headings = ["method", *(f"M = {s}" for s in sizes), f"rows {largest_size}", "seconds"]
    return markdown(headings, rows)


def _cell(curve: Curve, size: int) -> str:
    if size not in curve.sizes:
        return ""
    low, middle, high = curve.kl[:, int(np.flatnonzero(curve.sizes == size)[0])]
    return f"{brief(middle)} ({brief(low)}, {brief(high)})"


def brief(value: float) -> str:
    """Format with one significant digit, and with the shortest exponent: 5e-5, 0.3, 20."""
    if 0.01 <= abs(value) < 95:
        return f"{float(f'{value:.0e}'):g}"
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}e{int(exponent)}"


# -- targets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How many times lower pursuit's divergence and time are than SparseVI's on one data set."""

    experiment: str
    at_50: float
    at_100: float
    time: float


def gains_of(records: list[Record], experiments: Iterable[str], pursuit: str) -> list[Gain]:
    """Return SparseVI's medians over those of Riemannian pursuit, for each experiment.

    `pursuit` is a label.  Runs of equal size are compared with SparseVI as in the published code,
    where that was run; runs with equal numbers of rows are compared with our SparseVI.
    """
    gains = []
    for name in experiments:
        curves = curves_of([r for r in records if r.experiment == name], relative=True)
        by_method = {c.method: c for c in curves}
        published = PUBLISHED if pursuit == PURSUIT and PUBLISHED in by_method else SPARSE_VI
        theirs, ours = by_method[published], by_method[pursuit]
        (kl_50, _), (kl_100, seconds) = theirs.at(50), theirs.at(100)
        (own_50, _), (own_100, own_seconds) = ours.at(50), ours.at(100)
        gains.append(
            Gain(
                experiment=name,
                at_50=kl_50 / own_50,
                at_100=kl_100 / own_100,
                time=seconds / own_seconds,
            )
        )
    return gains


def judged(gains: list[Gain]) -> str:
    """Return a table of the gains, and verdicts on the targets."""
    rows = [[g.experiment, brief(g.at_50), brief(g.at_100), f"{g.time:.0f}"] for g in gains]
    headings = ["data", "KL, M = 50", "KL, M = 100", "seconds, M = 100"]
    lines = [
        verdict("10 times lower at M = 100 on all", [g.at_100 >= 10 for g in gains]),
        verdict("1000 times lower at M = 100", [g.at_100 >= 1000 for g in gains], needed=3),
        verdict("never worse at M = 50", [g.at_50 >= 1 for g in gains]),
        verdict("at most 1/50 of the time", [g.time >= 50 for g in gains]),
    ]
    return markdown(headings, rows) + "\n\n" + "\n".join(lines)


def verdict(what: str, met: list[bool], *, needed: int | None = None) -> str:
    """Return a line that says pass or fail."""
    enough = sum(met) >= (len(met) if needed is None else needed)
    asked = f" ({needed} needed)" if needed is not None else ""
    return f"- {'pass' if enough else 'FAIL'}: {what}: {sum(met)} of {len(met)}{asked}"
