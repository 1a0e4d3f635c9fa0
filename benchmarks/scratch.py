"""Coresets from scratch: methods that draw from their own posteriors, against fixed draws.

``python -m benchmarks.scratch`` repeats the experiments of Campbell and Beronov (2019). Section
5.1, a Gaussian mean in 200 parameters: KL(coreset posterior || full posterior) in nats, exact. The
six regressions of Section 5.3: the same over KL(prior || full posterior), for Laplace
approximations. "optimal" tangent vectors come from draws of the full posterior, "realistic" ones
from a rough guess of it. Medians over the trials; ``--trials 10 --steps 500`` are the paper's.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.papers import DATA_SETS, Array, Gaussian, Regression, data_folder, load
from pymc_coresets.algorithms import GIGA, Problem, RiemannianPursuit, Solution, Uniform, solve
from pymc_coresets.algorithms.adaptive import AdaptiveMethod, solve_adaptively
from pymc_coresets.algorithms.posterior import CoresetPosterior, Indices
from pymc_coresets.algorithms.quasi_newton import QuasiNewton
from pymc_coresets.algorithms.sparse_vi import SparseVI

HILBERT_DRAWS = 500
LOWEST = -500.0  # linear predictor
GAUSSIAN_SIZES, REGRESSION_SIZES = (50, 100, 200), (50, 100)


class Experiment(CoresetPosterior[Array], Protocol):
    """A coreset posterior that is Gaussian, so that divergences are known."""

    def gaussian(self, weights: Array) -> Gaussian:
        """The posterior of all rows with these weights."""

    def potentials(self, parameters: Array) -> Array:
        """Potentials of all rows at parameters of shape (n_draws, dimension)."""


type Run = Callable[[Experiment, int, np.random.Generator], Solution]


@dataclass(frozen=True, kw_only=True)
class Location:
    """``theta ~ N(0, I)``, ``x_n ~ N(theta, I)``: exact posteriors."""

    data: Array

    @property
    def n_obs(self) -> int:
        return len(self.data)

    @property
    def base_weights(self) -> Array:
        return np.ones(self.n_obs)

    def gaussian(self, weights: Array) -> Gaussian:
        precision = 1 + weights.sum()
        mean = weights @ self.data / precision
        return Gaussian(mean=mean, precision=precision * np.eye(len(mean)))

    def potentials(self, parameters: Array) -> Array:
        return self.loglik(parameters)

    def draw(
        self, indices: Indices, weights: Array, n_draws: int, *, rng: np.random.Generator
    ) -> Array:
        precision = 1 + weights.sum()
        mean = weights @ self.data[indices] / precision
        draws: Array = mean + rng.normal(size=(n_draws, len(mean))) / np.sqrt(precision)
        return draws

    def loglik(self, draws: Array, rows: Indices | None = None) -> Array:
        """Up to ``-|x_n|^2 / 2``, a constant."""
        data = self.data if rows is None else self.data[rows]
        potentials: Array = data @ draws.T - np.square(draws).sum(axis=1) / 2
        return potentials

    def total(self, draws: Array) -> Array:
        total: Array = draws @ self.data.sum(axis=0)
        return total - self.n_obs * np.square(draws).sum(axis=1) / 2

    def moments(self, draws: Array) -> tuple[Array, Array]:
        return self.total(draws), self.loglik(draws).std(axis=1)


class Laplace:
    """Laplace approximations of a regression's coreset posteriors.

    Its draws are the potentials of all rows at parameters drawn, for every method needs their sum.
    Regressions here are log-concave: damped Newton steps from the last mode find the next one.
    """

    def __init__(self, model: Regression) -> None:
        self._model = replace(
            model,  # a posterior that missed the data may reach where Poisson rates underflow
            potential=lambda eta: model.potential(np.maximum(eta, LOWEST)),
            derivatives=lambda eta: model.derivatives(np.maximum(eta, LOWEST)),
        )
        self._mode = np.zeros(model.features.shape[1])
        self.n_obs = len(model.features)
        self.base_weights = np.ones(self.n_obs)

    def gaussian(self, weights: Array) -> Gaussian:
        return self._model.laplace(weights)

    def draw(
        self, indices: Indices, weights: Array, n_draws: int, *, rng: np.random.Generator
    ) -> Array:
        dense = np.zeros(self.n_obs)
        dense[indices] = weights
        return self.potentials(self._approximation(dense).draw(n_draws, rng=rng))

    def potentials(self, parameters: Array) -> Array:
        return self._model.loglik(parameters)

    def loglik(self, draws: Array, rows: Indices | None = None) -> Array:
        return draws if rows is None else draws[rows]

    def total(self, draws: Array) -> Array:
        total: Array = draws.sum(axis=0)
        return total

    def moments(self, draws: Array) -> tuple[Array, Array]:
        return self.total(draws), draws.std(axis=1)

    def _approximation(self, weights: Array) -> Gaussian:
        features, theta, support = self._model.features, self._mode, weights > 0
        for _ in range(200):
            first, second = self._model.derivatives(features @ theta)
            gradient = weights[support] @ (first[:, None] * features)[support] - theta
            curvature = np.where(support, -weights * second, 0.0)
            precision = np.eye(len(theta)) + (features.T * curvature) @ features
            move = np.linalg.solve(precision, gradient)
            if np.abs(move).max() < 1e-6:
                break
            value = self._logp(theta, weights, support)
            while not self._logp(theta + move, weights, support) >= value - 1e-9 * abs(value):
                move = move / 2
            theta = theta + move
        self._mode = theta
        return Gaussian(mean=theta, precision=precision)

    def _logp(self, theta: Array, weights: Array, support: NDArray[np.bool_]) -> float:
        potentials = self._model.potential(self._model.features @ theta)
        return float(weights[support] @ potentials[support] - theta @ theta / 2)


def uniform(experiment: Experiment, size: int, rng: np.random.Generator) -> Solution:
    nothing = np.zeros((experiment.n_obs, 1))
    problem = Problem(vectors=nothing, target=np.zeros(1), base_weights=experiment.base_weights)
    return solve(Uniform(), problem, size, rng=rng)


def giga(guess: Callable[[Experiment, np.random.Generator], Gaussian]) -> Run:
    """GIGA with draws from the guess of the posterior."""

    def run(experiment: Experiment, size: int, rng: np.random.Generator) -> Solution:
        parameters = guess(experiment, rng).draw(HILBERT_DRAWS, rng=rng)
        problem = Problem.from_loglik(experiment.potentials(parameters))
        return solve(GIGA(), problem, size, rng=rng)

    return run


def optimal(experiment: Experiment, _: np.random.Generator) -> Gaussian:
    return experiment.gaussian(experiment.base_weights)


def realistic(experiment: Experiment, rng: np.random.Generator) -> Gaussian:
    """A random point between prior and posterior, 75 % off."""
    full, share = optimal(experiment, rng), rng.uniform()
    mean, covariance = share * full.mean, share * np.linalg.inv(full.precision)
    covariance += (1 - share) * np.eye(len(mean))
    noise = rng.normal(size=mean.shape) / np.sqrt(len(mean))
    mean = mean + 0.75 * np.linalg.norm(mean) * noise
    scale = np.exp(-2 * 0.75 * abs(rng.normal()))
    return Gaussian(mean=mean, precision=np.linalg.inv(scale * covariance))


def adaptive(method: AdaptiveMethod[Any]) -> Run:
    return lambda experiment, size, rng: solve_adaptively(method, experiment, size, rng=rng)


def riemannian(experiment: Experiment, size: int, rng: np.random.Generator) -> Solution:
    """From a uniform coreset of 50 rows: fewer than the data have."""
    method = RiemannianPursuit(tolerance=1e-12, start_size=50, n_draws=500)
    return method.construct(experiment, size, rng=rng)


def runs(n_steps: int, paper_step: float) -> dict[str, Run]:
    """What is compared; a further method is a further entry."""
    return {
        "uniform": uniform,
        "giga, optimal": giga(optimal),
        "giga, realistic": giga(realistic),
        "sparse_vi": adaptive(SparseVI(n_steps=n_steps)),
        "sparse_vi, paper's step": adaptive(SparseVI(n_steps=n_steps, step_size=paper_step)),
        "sparse_vi, quadratic": adaptive(SparseVI(update="quadratic", n_draws=500, n_steps=5)),
        "quasi_newton": adaptive(QuasiNewton()),
        "riemannian_pursuit": riemannian,
    }


def measure(run: Run, experiment: Experiment, size: int, seed: int) -> tuple[float, float]:
    """KL(coreset posterior || full posterior) in nats, and seconds."""
    rng, began = np.random.default_rng(seed), time.perf_counter()
    solution = run(experiment, size, rng)
    seconds = time.perf_counter() - began
    weights = np.zeros(experiment.n_obs)
    weights[solution.indices] = solution.weights
    full = experiment.gaussian(experiment.base_weights)
    return experiment.gaussian(weights).kl(full), seconds


def add_rows(
    table: Table,
    name: str,
    experiments: list[Experiment],
    sizes: tuple[int, ...],
    methods: dict[str, Run],
    *,
    relative: bool,
) -> None:
    """A row a method: the median divergence at every size, and the seconds of the last."""
    first = experiments[0]
    full, prior = (first.gaussian(w) for w in (first.base_weights, 0 * first.base_weights))
    unit = prior.kl(full) if relative else 1.0
    for label, run in methods.items():
        results = np.array(
            [
                [measure(run, experiment, size, seed) for size in sizes]
                for seed, experiment in enumerate(experiments)
            ]
        )
        divergences, seconds = np.median(results, axis=0).T
        cells = [f"{value / unit:.0e}" for value in divergences]
        table.add_row(name if run is uniform else "", label, *cells, f"{seconds[-1]:.2f}")
    table.add_section()


def gaussian_table(trials: int, n_steps: int) -> Table:
    table = Table(title="Gaussian mean, d = 200, N = 1000: KL in nats")
    for heading in ("", "method", *(f"M = {size}" for size in GAUSSIAN_SIZES), "seconds"):
        table.add_column(heading)
    experiments: list[Experiment] = [
        Location(data=np.random.default_rng([1, seed]).normal(size=(1000, 200)))
        for seed in range(trials)
    ]
    methods = runs(n_steps, paper_step=1.0)
    add_rows(table, "gaussian", experiments, GAUSSIAN_SIZES, methods, relative=False)
    return table


def regression_table(trials: int, n_steps: int) -> Table | None:
    folder = data_folder()
    if folder is None:
        return None
    table = Table(title="Regressions, Laplace: KL over that of the prior")
    for heading in ("data (D)", "method", *(f"M = {size}" for size in REGRESSION_SIZES), "seconds"):
        table.add_column(heading)
    for name in DATA_SETS:
        model = load(name, folder)
        experiments: list[Experiment] = [Laplace(model) for _ in range(trials)]
        label = f"{name} ({model.features.shape[1]})"
        methods = runs(n_steps, paper_step=0.5)
        add_rows(table, label, experiments, REGRESSION_SIZES, methods, relative=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30, help="weight updates of SparseVI a step")
    options = parser.parse_args()
    console = Console(width=100)
    console.print(gaussian_table(options.trials, options.steps))
    table = regression_table(options.trials, options.steps)
    if table is None:
        raise SystemExit("No data: let PYMC_CORESETS_DATA name the folder with synth_lr.npz etc.")
    console.print(table)


if __name__ == "__main__":
    main()
