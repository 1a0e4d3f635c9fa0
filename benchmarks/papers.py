"""How close coreset posteriors come to the full one on the six data sets of the papers.

``python -m benchmarks.papers`` prints, for every data set, method and size, the median over seeds
of KL(coreset posterior || full posterior) / KL(prior || full posterior). Posteriors are Laplace
approximations, tangent vectors come from draws of the full posterior's. The data are looked for
in the folder that the environment variable PYMC_CORESETS_DATA names, else in ../shared/data.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg import solve_triangular
from scipy.special import expit, gammaln

from pymc_coresets.algorithms import METHODS, Problem, solve

type Array = NDArray[np.float64]

SIZES = (10, 20, 50, 100)
LOGISTIC = ("synth_lr", "ds1", "phishing")
POISSON = ("synth_poiss", "biketrips", "airportdelays")
DATA_SETS = LOGISTIC + POISSON


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A generalised linear model with a standard normal prior: potentials of ``eta = X theta``.

    ``potential`` maps the linear predictor, of shape (n_obs, ...), to log-likelihoods and
    ``derivatives`` to their first and second derivatives.
    """

    features: Array
    potential: Callable[[Array], Array]
    derivatives: Callable[[Array], tuple[Array, Array]]

    def loglik(self, draws: Array) -> Array:
        """Pointwise log-likelihoods, shape (n_obs, n_draws)."""
        return self.potential(self.features @ draws.T)

    def laplace(self, weights: Array) -> "Gaussian":
        """Laplace approximation of the weighted posterior, by damped Newton steps."""
        theta = np.zeros(self.features.shape[1])
        for _ in range(200):
            gradient, precision = self._expand(theta, weights)
            if np.linalg.eigvalsh(precision)[0] <= 0:
                precision = np.eye(len(theta)) * np.abs(np.linalg.eigvalsh(precision)).max()
            direction = np.linalg.solve(precision, gradient)
            step, value = 1.0, self._logp(theta, weights)
            while self._logp(theta + step * direction, weights) < value and step > 1e-10:
                step /= 2
            theta = theta + step * direction
            if np.abs(step * direction).max() < 1e-12:
                break
        return Gaussian(mean=theta, precision=self._expand(theta, weights)[1])

    def _logp(self, theta: Array, weights: Array) -> float:
        return float(weights @ self.potential(self.features @ theta) - theta @ theta / 2)

    def _expand(self, theta: Array, weights: Array) -> tuple[Array, Array]:
        first, second = self.derivatives(self.features @ theta)
        gradient = self.features.T @ (weights * first) - theta
        precision = np.eye(len(theta)) - (self.features.T * (weights * second)) @ self.features
        return gradient, precision


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """A normal distribution by its mean and precision matrix."""

    mean: Array
    precision: Array

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> Array:
        """Draws of shape (n_draws, dimension): ``mean + L^-T z`` for precision ``L L^T``."""
        root = np.linalg.cholesky(self.precision)
        noise = rng.normal(size=(len(self.mean), n_draws))
        draws: Array = self.mean + solve_triangular(root, noise, lower=True, trans="T").T
        return draws

    def kl(self, other: "Gaussian") -> float:
        """KL(self || other) in nats, accurate for near-equal precisions too."""
        root = np.linalg.cholesky(self.precision)
        relative = solve_triangular(root, other.precision - self.precision, lower=True)
        excess = np.linalg.eigvalsh(solve_triangular(root, relative.T, lower=True))
        shift = other.mean - self.mean
        return float((excess - np.log1p(excess)).sum() + shift @ other.precision @ shift) / 2


def logistic(features: Array, y: Array) -> Regression:
    """Logistic regression with y in {-1, 1} (or {0, 1})."""
    sign = np.where(y > 0, 1.0, -1.0)

    def potential(eta: Array) -> Array:
        return np.asarray(-np.logaddexp(0, -(sign * eta.T).T))

    def derivatives(eta: Array) -> tuple[Array, Array]:
        return sign * expit(-sign * eta), -expit(eta) * expit(-eta)

    return Regression(features=features, potential=potential, derivatives=derivatives)


def poisson(features: Array, y: Array) -> Regression:
    """Poisson regression with rate ``log(1 + exp(eta))``."""

    def potential(eta: Array) -> Array:
        rate = np.logaddexp(0, eta)
        return np.asarray((y * np.log(rate).T - rate.T - gammaln(y + 1)).T)

    def derivatives(eta: Array) -> tuple[Array, Array]:
        rate, slope = np.logaddexp(0, eta), expit(eta)
        excess = y / rate - 1
        return excess * slope, excess * slope * (1 - slope) - y * np.square(slope / rate)

    return Regression(features=features, potential=potential, derivatives=derivatives)


def data_folder() -> Path | None:
    """Folder of the data sets, or None where it is absent."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PYMC_CORESETS_DATA", beside))
    return folder if folder.is_dir() else None


def load(name: str, folder: Path) -> Regression:
    """Read one data set and whiten its columns, except the last one, the intercept."""
    with np.load(folder / f"{name}.npz") as file:
        features, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
    centred = features[:, :-1] - features[:, :-1].mean(axis=0)
    root = np.linalg.cholesky(np.atleast_2d(np.cov(centred, rowvar=False)))
    features[:, :-1] = solve_triangular(root, centred.T, lower=True).T
    return logistic(features, y) if name in LOGISTIC else poisson(features, y)


def relative_kl(
    model: Regression, methods: tuple[str, ...], sizes: tuple[int, ...], *, n_draws: int, seed: int
) -> Array:
    """KL of every method and size over the prior's, shape (len(methods), len(sizes))."""
    n_obs, dimension = model.features.shape
    full = model.laplace(np.ones(n_obs))
    prior = Gaussian(mean=np.zeros(dimension), precision=np.eye(dimension))
    rng = np.random.default_rng(seed)
    problem = Problem.from_loglik(model.loglik(full.draw(n_draws, rng=rng)))
    table = np.empty((len(methods), len(sizes)))
    for row, name in enumerate(methods):
        for column, size in enumerate(sizes):
            solution = solve(METHODS[name](), problem, size, rng=rng)
            weights = np.zeros(n_obs)
            weights[solution.indices] = solution.weights
            table[row, column] = model.laplace(weights).kl(full) / prior.kl(full)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    folder = data_folder()
    if folder is None:
        raise SystemExit("No data: let PYMC_CORESETS_DATA name the folder with synth_lr.npz etc.")
    methods = tuple(METHODS)
    table = Table(title=f"KL to the full posterior / that of the prior, {options.draws} draws")
    for heading in ("data (D)", "method", *(f"M = {size}" for size in SIZES)):
        table.add_column(heading, justify="left" if heading in ("data (D)", "method") else "right")
    for name in DATA_SETS:
        model = load(name, folder)
        medians = np.median(
            [
                relative_kl(model, methods, SIZES, n_draws=options.draws, seed=seed)
                for seed in range(options.seeds)
            ],
            axis=0,
        )
        for method, row in zip(methods, medians, strict=True):
            label = f"{name} ({model.features.shape[1]})" if method == methods[0] else ""
            table.add_row(label, method, *(f"{value:.0e}" for value in row))
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
