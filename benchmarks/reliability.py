"""How accurate is the reported divergence?  ``python -m benchmarks.reliability [--seeds 5]``.

Forty simulated models, each with several seeds of `build_coreset()`. NUTS samples all rows of each
model once, to the end, and is the judge: of every build, the means of the coreset's draws are
compared with its means, in standard deviations. The divergence is that at 100 fresh draws by
PyMC's own log-densities, the median over the seeds.

*Shift* is the largest difference of a mean, over variables and builds; *noise* is what Monte Carlo
errors of both runs would exceed in one of a thousand comparisons. A build is
*false* where it was called reliable and the fresh divergence is above three times the tolerance.
``--only WORD`` runs models whose name has the word.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

from benchmarks.reliability_models import FORMULAS, MODELS, simulated
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets import Coreset, CoresetError, CoresetWarning, build_coreset

TOLERANCE = 0.01
HEADER = ("model", "rows", "J fresh", "within", "reliable", "false", "largest shift", "noise")
FRESH = 100
OFTEN = 3.29  # standard errors that normal errors exceed once in a thousand times


@dataclass(frozen=True, kw_only=True)
class Found:
    """One build; `shifts` and their `noise` are those of all numbers that the judge knows."""

    size: int
    fresh: float
    reliable: bool
    shifts: np.ndarray
    noise: float


def judged(model: pm.Model) -> tuple[xr.Dataset, bool]:
    """Sample all rows by NUTS; and whether its chains agree."""
    idata = pm.sample(
        draws=1_500,
        chains=4,
        cores=1,
        nuts_sampler="nutpie",
        target_accept=0.95,
        random_seed=1,
        progressbar=False,
        quiet=True,
        model=model,
    )
    posterior = idata["posterior"].to_dataset()
    names = [rv.name for rv in model.free_RVs]
    agree = max(float(az.rhat(posterior[name]).max()) for name in names) < 1.02
    return posterior[names], agree


def measure(model: pm.Model, judge: xr.Dataset, seed: int) -> Found | None:
    """Build a coreset, and compare it with the judge; None where it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)  # the table says it
        try:
            coreset = build_coreset(model, random_seed=seed, progressbar=False)
            idata = coreset.sample(
                draws=1_500, cores=1, random_seed=100 + seed, progressbar=False, quiet=True
            )
            check = coreset.check(idata)
        except CoresetError as error:
            print(f"    seed {seed}: {error}")
            return None
        fresh = coreset.verify(idata, draws=FRESH).by_pymc
    shifts, noise = shifts_of(coreset, idata["posterior"].to_dataset(), judge)
    assert coreset.loglikelihood is not None
    return Found(
        size=coreset.size,
        fresh=fresh,
        reliable=check.reliable and not check.needs_reweighting,
        shifts=shifts,
        noise=noise,
    )


def shifts_of(coreset: Coreset, draws: xr.Dataset, judge: xr.Dataset) -> tuple[np.ndarray, float]:
    """Return differences of means in standard deviations, and what noise exceeds seldom."""
    shifts, variances = [], []
    for rv in coreset.model.free_RVs:
        one, other = draws[rv.name], judge[rv.name]
        sd = other.std(("chain", "draw")).to_numpy()
        means = (one.mean(("chain", "draw")) - other.mean(("chain", "draw"))).to_numpy()
        shifts.append(np.abs(means / sd).ravel())
        of_both = [az.ess(v).to_numpy().ravel() for v in (one, other)]
        variances.append(1 / of_both[0] + 1 / of_both[1])
    return np.concatenate(shifts), OFTEN * float(np.sqrt(np.max(np.concatenate(variances))))


def row(found: list[Found], n_builds: int, *, agree: bool) -> list[str]:
    """Summarise the builds of a model."""
    fresh = np.array([one.fresh for one in found])
    shifts = np.concatenate([one.shifts for one in found])
    false = sum(one.reliable and one.fresh > 3 * TOLERANCE for one in found)
    return [
        f"{np.median([one.size for one in found]):.0f}",
        f"{np.median(fresh):.1e}",
        f"{np.count_nonzero(fresh <= TOLERANCE)} of {n_builds}",
        f"{sum(one.reliable for one in found)} of {n_builds}",
        str(false),
        f"{shifts.max():.3f}" if agree else "NUTS on all rows did not converge",
        f"{max(one.noise for one in found):.3f}" if agree else "",
    ]


def lines(options: argparse.Namespace) -> Iterator[list[str]]:
    """Measure one model after the other."""
    for name in (*MODELS, *FORMULAS):
        if options.only not in name:
            continue
        model = simulated(name, options.n)
        judge, agree = judged(model)
        seeds = range(1, options.seeds + 1)
        found = [one for seed in seeds if (one := measure(model, judge, seed)) is not None]
        yield [name, *row(found, options.seeds, agree=agree)] if found else [name, "refused"]


def main() -> None:
    """Print the table, and save it after each model."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=10_000, help="rows")
    parser.add_argument("--only", default="", help="models whose name has this in it")
    options = parser.parse_args()
    every: list[list[str]] = []
    for line in lines(options):
        print(" | ".join(line), flush=True)
        every.append(line + [""] * (len(HEADER) - len(line)))
        save(options.tables, "reliability", markdown(HEADER, every))


if __name__ == "__main__":
    main()
