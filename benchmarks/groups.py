"""Coresets of models with hundreds and thousands of groups: ``python -m benchmarks.groups``.

Logistic regressions with an effect of each group and an unknown scale of the effects.  The
posterior of the coreset is compared with that of all rows, both by nested Laplace approximations,
over all dimensions: largest shifts of means in posterior sd, ratios of sds, and the symmetrised KL
divergence.  Beside it stands a uniform sample of as many rows.

``python -m benchmarks.groups --cases a d --part 0.2`` runs some of the cases on a part of the data.
"""

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table

from pymc_coresets import build_coreset
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.sampling.nested_laplace import NestedLaplace
from pymc_coresets.sampling.reuse import Samplers

N_SLOPES = 4
N_POINTS = 200  # of the shared variables, for the divergence of the groups given these


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table of rows in groups, and whether a slope differs between these, too."""

    name: str
    n_groups: int
    n_rows: int
    uneven: bool = False
    slopes: bool = False


CASES = {
    "a": Case(name="200 groups", n_groups=200, n_rows=100_000),
    "b": Case(name="2 000 groups", n_groups=2_000, n_rows=300_000),
    "c": Case(name="2 to 20 000 rows a group", n_groups=2_000, n_rows=150_000, uneven=True),
    "d": Case(name="intercepts and slopes", n_groups=1_000, n_rows=150_000, slopes=True),
}


def model_of(case: Case, rng: np.random.Generator) -> pm.Model:
    """Draw data, and return the model of them."""
    n_groups = case.n_groups
    if case.uneven:
        shares = rng.pareto(0.9, n_groups) + 0.02
        sizes = np.maximum(2, np.minimum(case.n_rows * shares / shares.sum(), 20_000)).astype(int)
    else:
        sizes = np.full(n_groups, case.n_rows // n_groups)
    group = rng.permutation(np.repeat(np.arange(n_groups), sizes))
    x = rng.normal(size=(len(group), N_SLOPES))
    eta = x @ rng.normal(0, 0.5, N_SLOPES) + rng.normal(-0.5, 0.7, n_groups)[group]
    if case.slopes:
        eta += rng.normal(0, 0.4, n_groups)[group] * x[:, 0]
    y = rng.binomial(1, 1 / (1 + np.exp(-eta)))
    with pm.Model(coords={"group": np.arange(n_groups)}) as model:
        mean, sd = pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 1)
        intercept = pm.Normal("intercept", mean, sd, dims="group")
        predictor = x @ pm.Normal("slopes", 0, 1, shape=N_SLOPES) + intercept[group]
        if case.slopes:
            own = pm.Normal("own_slope", 0, pm.HalfNormal("sd_slope", 1), dims="group")
            predictor = predictor + own[group] * x[:, 0]
        pm.Bernoulli("y", logit_p=predictor, observed=y)
    return model


def gap(one: NestedLaplace, other: NestedLaplace, rng: np.random.Generator) -> float:
    """KL divergence in nats of one approximation from another, over all dimensions."""
    turn = np.linalg.solve(other.spread, one.spread)
    shift = np.linalg.solve(other.spread, one.mode - other.mode)
    shared = (np.square(turn).sum() + shift @ shift - len(shift)) / 2
    shared -= np.linalg.slogdet(turn)[1]
    z = rng.standard_normal((N_POINTS, one.n_shared))
    centre, root = one.given(z)
    centre_of_other, root_of_other = other.given(z @ turn.T + shift)
    # KL of N(a, (K K')^-1) from N(b, (L L')^-1): L' K^-T is triangular, and L'(a - b) a vector.
    ratio = np.swapaxes(np.linalg.solve(root, root_of_other), -1, -2)
    off = (np.swapaxes(root_of_other, -1, -2) @ (centre - centre_of_other)[..., None])[..., 0]
    squares = np.square(ratio).sum(axis=(-2, -1)) + np.square(off).sum(axis=-1)
    logs = np.log(np.abs(np.diagonal(ratio, axis1=-2, axis2=-1))).sum(axis=-1)
    local = (squares - one.n_local) / 2 - logs
    return float(shared + local.sum(axis=1).mean())


def compared(full: NestedLaplace, other: NestedLaplace) -> list[str]:
    """Divergence, shifts and ratios, in words."""
    rng = np.random.default_rng(1)
    shared, local = full.deviations()
    of_shared, of_local = other.deviations()
    nowhere = np.zeros((1, full.n_shared))
    centre = full.given(nowhere)[0][0]
    # At the means of the shared variables, each of its own approximation.
    moved = (other.given(nowhere)[0][0] - centre) / local
    ratios = of_shared / shared, of_local / local
    return [
        f"{gap(full, other, rng) + gap(other, full, rng):.2g}",
        f"{np.abs((other.mode - full.mode) / shared).max():.2g} / {np.abs(moved).max():.2g}",
        " / ".join(f"{r.min():.2f}–{r.max():.2f}" for r in ratios),
    ]


def measured(case: Case, console: Console) -> list[str]:
    """Build a coreset, and return a row of the table."""
    model = model_of(case, np.random.default_rng(1))
    wall, processor = time.perf_counter(), time.process_time()
    coreset = build_coreset(model, method="block_pursuit", random_seed=1, progressbar=False)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    loglik = coreset.loglikelihood
    assert loglik is not None
    sampler = Samplers(loglik, "pymc").by_groups()
    full, rows = sampler.approximation, loglik.source.at(coreset.indices)
    found = compared(full, sampler.approximation_of(rows, coreset.weights))
    scan = loglik.source.scan(coreset.size, key=random_key(np.random.default_rng(1)))
    uniform = compared(full, sampler.approximation_of(scan.rows, scan.weights))
    last = coreset.history.isel(step=-1)
    row = [
        case.name,
        f"{loglik.n_dims:,}, {loglik.n_rows:,}",
        f"{coreset.size:,} ({coreset.size / case.n_groups:.1f})",
        f"{coreset.history.sizes['step']}",
        f"{coreset.objective:.2g}, {float(last['pareto_khat']):.2f}",
        *found,
        uniform[0],
        f"{processor:.0f} ({wall:.0f})",
    ]
    console.print(" | ".join(row))
    return row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--part", type=float, default=1.0, help="of the groups and rows")
    options = parser.parse_args()
    table = Table(
        *("case", "D, N", "rows (a group)", "rounds", "J, k-hat", "sKL", "shift shared / local"),
        *("sd ratio shared / local", "uniform: sKL", "processor s (wall)"),
    )
    console = Console(width=180)
    for name in options.cases:
        case, part = CASES[name], options.part
        case = replace(case, n_groups=round(part * case.n_groups), n_rows=round(part * case.n_rows))
        table.add_row(*measured(case, console))
    console.print(table)


if __name__ == "__main__":
    main()
