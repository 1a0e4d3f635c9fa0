"""How close coreset posteriors come to the full one from fixed draws of it, on six data sets."""

import numpy as np

from benchmarks.closed_forms import Array, full_and_prior
from benchmarks.curves import brief, markdown
from benchmarks.paper_data import DATA_SETS, load, needed_folder
from benchmarks.regressions import Laplace, Regression
from pymc_coresets.methods.register import METHODS
from pymc_coresets.solving.loop import solve
from pymc_coresets.solving.problem import Problem

SIZES = (10, 20, 50, 100)


def relative_kl(
    model: Regression, methods: tuple[str, ...], sizes: tuple[int, ...], *, n_draws: int, seed: int
) -> Array:
    """KL of every method and size over the prior's, shape (len(methods), len(sizes))."""
    experiment = Laplace(model)
    full, prior = full_and_prior(experiment)
    rng = np.random.default_rng(seed)
    problem = Problem.from_loglik(model.loglik(full.draw(n_draws, rng=rng)))
    table = np.empty((len(methods), len(sizes)))
    for row, name in enumerate(methods):
        for column, size in enumerate(sizes):
            solution = solve(METHODS[name](), problem, size, rng=rng)
            weights = np.zeros(experiment.n_obs)
            weights[solution.indices] = solution.weights
            table[row, column] = experiment.gaussian(weights).kl(full) / prior.kl(full)
    return table


def fixed_table(*, n_draws: int, n_seeds: int) -> str:
    """Medians over the seeds, for every data set and method."""
    folder, methods, rows = needed_folder(), tuple(METHODS), []
    for name in DATA_SETS:
        model = load(name, folder)
        results = [
            relative_kl(model, methods, SIZES, n_draws=n_draws, seed=seed)
            for seed in range(n_seeds)
        ]
        for method, medians in zip(methods, np.median(results, axis=0), strict=True):
            label = f"{name} ({model.n_dims})" if method == methods[0] else ""
            rows.append([label, method, *(brief(value) for value in medians)])
    return markdown(["data (D)", "method", *(f"M = {size}" for size in SIZES)], rows)
