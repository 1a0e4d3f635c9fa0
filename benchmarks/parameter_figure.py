"""J against the number of rows, with and without the quadratic: what the picture is drawn from.

Logistic regressions of 10^5 rows and correlated columns.  With the quadratic: two averages of it,
and then rows twice.  Rows alone: rounds of pursuit, where D and the number of rows are small enough
for them to end within minutes.  J is the symmetrised KL divergence at draws that chose nothing.
"""

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pymc as pm

from benchmarks.many_parameters import dense_columns
from benchmarks.tables import markdown
from pymc_coresets import ControlVariates, CoresetWarning, RiemannianPursuit, build_coreset

__all__ = ["measured", "table_of_points"]

HEADER = ("D", "rows at most", "quadratic", "rows", "J, nats", "J by PyMC", "CPU s")
N_ROWS, COLUMNS = 100_000, (50, 100, 200, 400, 1_000)
SIZES = (30, 300, 3_000, 10_000)
#: Rows alone: D, and the sizes of which a build ends within minutes.
ALONE = {50: (100, 300, 1_000), 100: (300, 1_000)}
_TINY = 1e-9  # nats: a tolerance that no build meets, so that each takes all rows that it may
_OPINION_AT = 3_000  # rows: there PyMC's own densities are asked, too


@dataclass(frozen=True, kw_only=True)
class Point:
    """One coreset, with or without the quadratic."""

    columns: int
    asked: int
    quadratic: bool
    rows: int
    divergence: float
    by_pymc: float
    seconds: float


def point(model: pm.Model, columns: int, size: int, *, quadratic: bool) -> Point:
    """Build a coreset of so many rows, and measure it."""
    method = ControlVariates(tolerance=_TINY, max_rounds=2) if quadratic else RiemannianPursuit()
    started = time.process_time()
    coreset = build_coreset(model, method=method, size=size, random_seed=1, progressbar=False)
    seconds, by_pymc = time.process_time() - started, np.nan
    if size == _OPINION_AT:
        idata = coreset.sample(draws=250, chains=2, cores=1, random_seed=1, progressbar=False)
        by_pymc = coreset.verify(idata, draws=100).by_pymc
    return Point(
        columns=columns,
        asked=size,
        quadratic=quadratic,
        rows=coreset.size,
        divergence=coreset.objective,
        by_pymc=by_pymc,
        seconds=seconds,
    )


def measured() -> Iterator[Point]:
    """Measure one coreset after the other."""
    for columns in COLUMNS:
        with pm.Model() as model:
            dense_columns(np.random.default_rng(1), N_ROWS, columns)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoresetWarning)  # the figure says it
            for size in SIZES:
                yield point(model, columns, size, quadratic=True)
            for size in ALONE.get(columns, ()):
                yield point(model, columns, size, quadratic=False)


def table_of_points(points: Iterable[Point]) -> str:
    """Return a table with one line for each coreset."""
    return markdown(HEADER, ([
        f"{p.columns:,}",
        f"{p.asked:,}",
        "yes" if p.quadratic else "no",
        f"{p.rows:,}",
        f"{p.divergence:.2g}",
        "" if np.isnan(p.by_pymc) else f"{p.by_pymc:.2g}",
        f"{p.seconds:.0f}",
    ] for p in points))  # fmt: skip
