"""Monthly updates, and many priors: ``python -m benchmarks.updates [--rows 50000] [--priors 20]``.

A logistic regression.  Ten months of rows are added one by one with `extend`; beside the bound of
their ancestry stands the divergence from all rows, as `check` finds it where all are at hand.  Then
as many priors are tried on one coreset, with `with_model`, as on coresets that are built anew.
"""

import argparse
import time
import warnings

import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table

from pymc_coresets import Coreset, CoresetWarning, build_coreset

MONTHS, SLOPES = 10, np.array([0.5, -0.3, 0.2, 0.0])
_QUIET = {"progressbar": False, "quiet": True}


def month(rng: np.random.Generator, n: int, number: int) -> dict[str, np.ndarray]:
    """Covariates drift a little from month to month."""
    x = rng.normal(0.03 * number, 1.0, size=(n, len(SLOPES)))
    return {"x": x, "late": rng.binomial(1, 1 / (1 + np.exp(1 - x @ SLOPES)))}


def logistic(data: dict[str, np.ndarray], prior_sd: float = 1.0) -> pm.Model:
    with pm.Model() as model:
        x, late = pm.Data("x", data["x"]), pm.Data("late", data["late"])
        base = pm.Normal("base", 0, prior_sd)
        slope = pm.Normal("slope", 0, prior_sd, shape=len(SLOPES))
        pm.Bernoulli("likelihood", logit_p=base + x @ slope, observed=late)
    return model


def divergence(coreset: Coreset, whole: Coreset) -> float:
    """J of a coreset: the variance of log r at draws of its posterior, with all rows at hand."""
    idata = coreset.sample(draws=250, chains=2, cores=1, random_seed=1, **_QUIET)
    own = coreset.weights @ whole.loglikelihood.matrix(idata, coreset._rows())  # noqa: SLF001
    full = whole.loglikelihood.look(idata).total
    return float(np.var(full - own))


def updates(n: int, months: int) -> Table:
    rng = np.random.default_rng(1)
    data = [month(rng, n, i) for i in range(months)]
    table = Table("month", "rows so far", "size", "J of the step", "bound", "J of all", "seconds")
    coreset: Coreset | None = None
    for i, rows in enumerate(data):
        start = time.process_time()
        if coreset is None:
            coreset = build_coreset(logistic(rows), random_seed=1, progressbar=False)
        else:
            coreset = coreset.extend(logistic(rows), random_seed=i)
        seconds = time.process_time() - start
        so_far = {name: np.concatenate([d[name] for d in data[: i + 1]]) for name in rows}
        whole = build_coreset(
            logistic(so_far), size=2, method="uniform", random_seed=1, progressbar=False
        )
        table.add_row(
            f"{i + 1}",
            f"{coreset.n_observations:,}",
            f"{coreset.size}",
            f"{coreset.objective:.1e}",
            f"{coreset.ancestry.bound:.1e}",
            f"{divergence(coreset, whole):.1e}",
            f"{seconds:.1f}",
        )
    return table


def priors(n: int, number: int) -> str:
    data = month(np.random.default_rng(1), n, 0)
    models = [logistic(data, sd) for sd in np.geomspace(0.02, 5.0, number)]
    start = time.process_time()
    coreset = build_coreset(models[-1], random_seed=1, progressbar=False)
    once = time.process_time() - start
    others = [coreset.with_model(model) for model in models]
    reused = time.process_time() - start
    start = time.process_time()
    built = [build_coreset(model, random_seed=1, progressbar=False) for model in models]
    anew = time.process_time() - start
    some = slice(None, None, max(1, number // 4))
    worst = [max(divergence(each, coreset) for each in found[some]) for found in (others, built)]
    return (
        f"{number} priors, N = {n:,}: one coreset {once:.1f} processor seconds, with_model for all "
        f"{reused - once:.1f} ({(reused - once) / number:.2f} each); {number} coresets {anew:.1f}. "
        f"Largest J {worst[0]:.1e} by with_model, {worst[1]:.1e} by building."
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=50_000)
    arguments.add_argument("--months", type=int, default=MONTHS)
    arguments.add_argument("--priors", type=int, default=20)
    options = arguments.parse_args()
    warnings.simplefilter("ignore", CoresetWarning)
    console = Console(width=120)
    console.print(updates(options.rows, options.months))
    console.print(priors(options.rows, options.priors))


if __name__ == "__main__":
    main()
