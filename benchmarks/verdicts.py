"""Is "reliable" true?  ``python -m benchmarks.verdicts [--builds 60]``.

Builds of varied quality by control variates: six kinds of models, from sizes and tolerances that
serve to such that do not.  Each is sampled and checked.  The truth is J, the symmetrised KL
divergence, by PyMC's own log-densities of both models at later draws.  "Reliable" promises a KL
divergence below 0.01 nats, and is false where J is above three times that by more than two Monte
Carlo errors; "reliable once re-weighted" promises weights that serve, and is false where those of
four times as many fresh draws do not.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import xarray as xr
from rich.console import Console

from benchmarks.parameter_models import crossed, rare
from benchmarks.reliability_models import logistic, regression
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets import (
    ControlVariates,
    Coreset,
    CoresetError,
    CoresetWarning,
    Level,
    build_coreset,
)
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE
from pymc_coresets.diagnostics.judging import TOLERANCE

HEADER = ("verdict", "builds", "J by PyMC: smallest", "median", "largest", "false")
_CHECKED, _JUDGED = 500, 200
_CHAINS = {"tune": 300, "chains": 2, "cores": 1, "progressbar": False}

type Kind = Callable[[np.random.Generator, int, int], None]


def poisson(rng: np.random.Generator, n: int, p: int) -> None:
    _, truth, eta = regression(rng, n, p, 0.7)
    pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(truth)))


def normal(rng: np.random.Generator, n: int, p: int) -> None:
    _, truth, eta = regression(rng, n, p)
    pm.Normal("y", eta, pm.HalfNormal("s"), observed=rng.normal(truth, 0.7))


def student(rng: np.random.Generator, n: int, p: int) -> None:
    _, truth, eta = regression(rng, n, p)
    y = truth + 0.5 * rng.standard_t(3, size=n)
    pm.StudentT("y", nu=pm.Gamma("nu", 2, 0.1), mu=eta, sigma=pm.HalfNormal("s"), observed=y)


KINDS: Mapping[str, Kind] = {
    "logistic": lambda rng, n, p: logistic(p)(rng, n),
    "poisson": poisson,
    "normal": normal,
    "crossed": lambda rng, n, p: crossed(rng, n, (2 * p // 3, p // 3)),
    "rare": rare,
    "student": student,
}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One build: the verdict, J in nats at other draws, and whether the verdict was false."""

    level: Level
    divergence: float
    false: bool


def part_of(idata: xr.DataTree, draws: slice) -> xr.DataTree:
    """Return some draws of each chain."""
    return idata.isel(draw=draws, missing_dims="ignore")


def judged(coreset: Coreset, seed: int) -> Judged:
    """Check draws of a coreset at the default tolerance; find out whether the verdict is true."""
    coreset = replace(coreset, certificate=None)  # which has the tolerance of the build
    idata = coreset.sample(draws=5 * _CHECKED, random_seed=seed, **_CHAINS)
    check = coreset.check(part_of(idata, slice(_CHECKED)))
    fresh = part_of(idata, slice(_CHECKED, None))
    opinion = coreset.verify(fresh, draws=_JUDGED)
    level = check.verdict.level
    low = opinion.by_pymc * (1 - 2 * np.sqrt(2 / opinion.n_draws))
    if level is Level.RELIABLE:
        false = low > 3 * TOLERANCE
    else:
        false = check.reliable and coreset.check(fresh).pareto_khat >= KHAT_RELIABLE
    return Judged(level=level, divergence=opinion.by_pymc, false=bool(false))


def build(seed: int) -> tuple[str, Coreset]:
    """Build a coreset of a model, of a quality, that depend on the seed alone."""
    rng = np.random.default_rng(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    n, p = int(rng.choice([2_000, 5_000, 15_000, 50_000])), int(rng.choice([25, 50, 100, 150]))
    size, tolerance = int(rng.integers(20, 300)), float(rng.choice([0.01, 0.1, 1.0, 10.0]))
    method = ControlVariates(tolerance=tolerance, max_rounds=int(rng.integers(1, 3)))
    with pm.Model() as model:
        KINDS[kind](rng, n, p)
    words = f"{kind} | {n:,} rows | {p} columns | size {size} | tolerance {tolerance:g}"
    return words, build_coreset(
        model, method=method, size=size, random_seed=seed, progressbar=False
    )


def table_of(found: list[Judged]) -> str:
    """Return a table with one line for each verdict."""
    lines = []
    for level in sorted({one.level for one in found}, reverse=True):
        own = [one for one in found if one.level is level]
        quantiles = np.quantile([one.divergence for one in own], (0, 0.5, 1))
        promises = level.reliable
        lines.append([
            str(level),
            str(len(own)),
            *(f"{q:.2g}" for q in quantiles),
            str(sum(one.false for one in own)) if promises else "",
        ])  # fmt: skip
    return markdown(HEADER, lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--builds", type=int, default=60)
    options = parser.parse_args()
    console, found = Console(width=200), list[Judged]()
    for seed in range(1, options.builds + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoresetWarning)  # the verdict says it
            try:
                words, coreset = build(seed)
                found.append(judged(coreset, seed))
            except CoresetError as error:
                console.print(seed, type(error).__name__, error)
                continue
        console.print(seed, words, found[-1], sep=" | ")
    console.print(table_of(found))
    save(options.tables, "verdicts", table_of(found))


if __name__ == "__main__":
    main()
