"""The README's example with a million rows, both ways to the end: ``benchmarks.first_example``.

``pmc.sample()``, and ``pm.sample()`` on all rows by nutpie and by PyMC's own NUTS, each in a
process of its own, with four chains. Seconds are of the processor, from the model to the draws,
with compilation and with the check: with an empty folder of compiled functions and, if that takes
less than a minute, with a filled one. Shifts are differences of posterior means from those of the
first way that ends, in standard deviations. ``--ways nutpie,ours,pymc`` chooses the ways,
``--rows N`` and ``--limit SECONDS`` the size, and when a way is given up.
"""

import resource

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

import pymc_coresets as pmc
from benchmarks.isolation import NotDoneError, twice
from benchmarks.tables import markdown, parser_of, save

WAYS = {"nutpie": "NUTS on all rows (nutpie)", "ours": "`pmc.sample()`", "pymc": "NUTS on all rows"}
COLUMNS = ("way", "rows", "processor, s, empty cache", "processor, s", "ESS", "shift", "noise")


def model_of(n_rows: int) -> pm.Model:
    """Return the model of the README, with as many rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 5))
    log_odds = x @ [1, -0.5, 0.3, 0, 0.2] - 1
    clicked = rng.binomial(1, 1 / (1 + np.exp(-log_odds)))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        slopes = pm.Normal("slopes", 0, 1, shape=5)
        pm.Bernoulli("clicked", logit_p=intercept + x @ slopes, observed=clicked)
    return model


def measured(sampler: str, n_rows: int) -> tuple[float, int, xr.Dataset]:
    """Sample in one way: seconds of the processor, rows of the model, and draws."""
    model = model_of(n_rows)
    used = _processor()
    if sampler != "ours":
        idata = pm.sample(
            model=model, chains=4, nuts_sampler=sampler, random_seed=1, progressbar=False
        )
        n_used = n_rows
    else:
        idata = pmc.sample(model, random_seed=1, progressbar=False)
        n_used = pmc.coreset_of(idata, model).size
    return _processor() - used, n_used, idata["posterior"].to_dataset()


def _processor() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    """Print the table in Markdown."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--limit", type=float, default=7_200)
    parser.add_argument("--ways", default="nutpie,ours")
    options = parser.parse_args()
    judge, lines = None, list[list[str]]()
    for sampler in options.ways.split(","):
        way = WAYS[sampler]
        try:
            first, found = twice(measured, lambda one: one[0], options.limit, sampler, options.rows)
        except NotDoneError as error:
            lines.append([way, f"{options.rows:,}", str(error), *[""] * 4])
            continue
        processor, n_used, draws = found
        names = ["intercept", "slopes"]
        least = min(float(az.ess(draws)[name].min()) for name in names)
        judge = draws if judge is None else judge
        sd = judge.std(("chain", "draw"))
        shift = abs(draws.mean(("chain", "draw")) - judge.mean(("chain", "draw"))) / sd
        noise = np.sqrt(2 / least)
        shown = max(float(shift[name].max()) for name in names)
        cells = f"{n_used:,}", f"{first[0]:.1f}", f"{processor:.1f}", f"{least:,.0f}"
        lines.append([way, *cells, f"{shown:.3f}", f"{noise:.3f}"])
    print(markdown(COLUMNS, lines))
    save(options.tables, "first-example", markdown(COLUMNS, lines))


if __name__ == "__main__":
    main()
