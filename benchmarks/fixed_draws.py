"""Coresets from fixed draws of the full posterior: how close they come to it, on six data sets."""

import numpy as np

from benchmarks.closed_forms import Array, full_and_prior
from benchmarks.curves import brief
from benchmarks.paper_data import DATA_SETS, load, needed_folder
from benchmarks.problems import problem_of
from benchmarks.regressions import Laplace, Regression
from benchmarks.tables import markdown
from pymc_coresets.methods.exact_or_uniform import Uniform
from pymc_coresets.methods.hilbert import solve
from pymc_coresets.request import known_methods
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Problem

SIZES = (10, 20, 50, 100)
NAMES = ("uniform", "frank_wolfe", "giga", "pursuit", "iht")


def relative_kl(
    model: Regression, methods: tuple[str, ...], sizes: tuple[int, ...], *, n_draws: int, seed: int
) -> Array:
    """Return KL over that of the prior for each method and size, (len(methods), len(sizes))."""
    experiment = Laplace(model)
    full, prior = full_and_prior(experiment)
    rng = np.random.default_rng(seed)
    problem = problem_of(model.loglik(full.draw(n_draws, rng=rng)))
    table = np.empty((len(methods), len(sizes)))
    for row, name in enumerate(methods):
        for column, size in enumerate(sizes):
            chosen = _chosen(name, experiment, problem, size, rng)
            table[row, column] = experiment.gaussian(*chosen).kl(full) / prior.kl(full)
    return table


def _chosen(
    name: str, experiment: Laplace, problem: Problem, size: int, rng: np.random.Generator
) -> tuple[Rows, Array]:
    if name == Uniform.name:
        subsample = experiment.subsample(size, key=random_key(rng))
        return subsample.rows, subsample.weights
    selection = solve(known_methods()[name](), problem, size)
    return experiment.source.take(selection.rows.positions), selection.weights


def fixed_table(*, n_draws: int, n_seeds: int) -> str:
    """Return a table of medians over the seeds, for every data set and method."""
    folder, rows = needed_folder(), []
    for name in DATA_SETS:
        model = load(name, folder)
        results = [
            relative_kl(model, NAMES, SIZES, n_draws=n_draws, seed=seed) for seed in range(n_seeds)
        ]
        for method, medians in zip(NAMES, np.median(results, axis=0), strict=True):
            label = f"{name} ({model.n_dims})" if method == NAMES[0] else ""
            rows.append([label, method, *(brief(value) for value in medians)])
    return markdown(["data (D)", "method", *(f"M = {size}" for size in SIZES)], rows)
