"""A coreset that is kept up to date.

The flights of January and February, and each later month by `extend`; beside it, a coreset of all
rows so far.  J is the symmetrised divergence from the posterior of all rows, at fresh draws of the
coreset's own: those of NUTS, or for coresets that were just built, those of their certificates.
"""

import math
import sys
import tempfile
from functools import partial
from pathlib import Path

import pandas as pd
import pymc as pm

from benchmarks.curves import brief
from benchmarks.example_models import example
from benchmarks.predicted import timed
from benchmarks.tables import markdown
from pymc_coresets import (
    Certificate,
    Check,
    Coreset,
    RiemannianPursuit,
    build_coreset,
    open_rows,
)

flights = example("flights")

FIRST = 2  # months of the first coreset
STRICT = RiemannianPursuit(tolerance=1e-3)  # a tenth of the default
MONTHLY = (
    "rows so far", "updates: rows", "steps combined", "J", "k-hat", "s",
    "strict updates: rows", "steps combined", "J", "k-hat", "s",
    "all at once: rows", "J", "k-hat", "s",
)  # fmt: skip


def judged(coreset: Coreset, seed: int) -> Check:
    idata = coreset.sample(draws=500, chains=2, random_seed=seed, progressbar=False, quiet=True)
    return coreset.check(idata, draws=1_000)


def with_all_rows(coreset: Coreset, model: pm.Model, folder: Path) -> Coreset:
    """Return an extended coreset that can be compared with all rows so far."""
    columns = {v.name: v.get_value() for v in model.data_vars}
    path = folder / "coreset.nc"
    coreset.to_netcdf(path)
    return Coreset.from_netcdf(path, model, rows=open_rows(columns))


def months_table(n_months: int) -> str:
    data = flights.load_flights()
    parts = [part for _, part in data.groupby("month", observed=True)]
    data = pd.concat(parts[:FIRST])
    build = partial(build_coreset, random_seed=1, progressbar=False)
    first = flights.build_model(data)
    updated = {how: build(first, method=how) for how in ("auto", STRICT)}
    rows = []
    for i, part in enumerate(parts[FIRST : FIRST + n_months]):
        data = pd.concat([data, part])
        new, every = flights.build_model(part), flights.build_model(data)
        row = [f"{len(data):,}"]
        for how, before in updated.items():
            extend = partial(before.extend, new, method=how, random_seed=i)
            updated[how], seconds = timed(extend)
            row += _figures_of_update(updated[how], every, seconds, seed=i)
        at_once, of_all = timed(partial(build_coreset, every, random_seed=i, progressbar=False))
        row += [f"{at_once.size}", *_figures(at_once.certificate), f"{of_all:.1f}"]
        rows.append(row)
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return markdown(MONTHLY, rows)


def _figures_of_update(
    coreset: Coreset, every: pm.Model, seconds: float, *, seed: int
) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        check = judged(with_all_rows(coreset, every, Path(folder)), seed)
    steps = coreset.ancestry.combined
    combined = "unknown" if math.isnan(steps) else brief(steps)
    return [f"{coreset.size}", combined, *_figures(check), f"{seconds:.1f}"]


def _figures(check: Certificate | Check | None) -> tuple[str, str]:
    assert check is not None  # the default method certifies what it returns
    return brief(check.symmetrised_kl), f"{check.pareto_khat:.2f}"
