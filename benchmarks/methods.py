"""What the Hilbert methods cost: ``python -m benchmarks.methods [--n --draws --size]``.

Every method runs on the same problem, and so does a plain GIGA that follows the paper's formulas.
A pass reads the whole matrix once. The share of bandwidth compares the bytes per second of these
passes, and of the one for the row norms, with those of a plain matrix-vector product on the same
matrix. Uniform sampling does not read the matrix.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems import problem_of
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets.methods.hilbert import HilbertMethod, solve
from pymc_coresets.methods.pursuit import Pursuit
from pymc_coresets.papers.frank_wolfe import FrankWolfe
from pymc_coresets.papers.giga import GIGA
from pymc_coresets.papers.iht import IHT
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.solving.problem import Problem

type Array = NDArray[np.floating[Any]]

PLAIN, UNIFORM = "plain GIGA (two passes per step)", "uniform"
HEADER = ("method", "float64", "float32", "J / J(0)")
RUNS: dict[str, HilbertMethod[Any]] = {
    "frank_wolfe": FrankWolfe(),
    "giga": GIGA(),
    "giga, polish=False": GIGA(polish=False),
    "pursuit": Pursuit(),
    "iht": IHT(),
}


def plain_giga(vectors: Array, target: Array, size: int) -> Array:
    """Return the weights of Algorithm 2 of Campbell and Broderick (2018), as it is written."""
    norms = np.linalg.norm(vectors, axis=1)
    units = vectors / norms[:, None]
    ell = (target / np.linalg.norm(target)).astype(vectors.dtype)
    y, weights = np.zeros_like(ell), np.zeros(len(vectors))
    for _ in range(size):
        towards = ell - (ell @ y) * y
        along = units @ y
        lengths = np.sqrt(np.maximum(1 - along**2, 1e-6))
        scores = (units @ towards - along * (towards @ y)) / lengths
        best = int(np.argmax(scores))
        to_row, to_y, between = ell @ units[best], ell @ y, units[best] @ y
        rise = to_row - to_y * between
        gamma = rise / (rise + to_y - to_row * between)
        y = (1 - gamma) * y + gamma * units[best]
        weights *= 1 - gamma
        weights[best] += gamma
        length = np.linalg.norm(y)
        y, weights = y / length, weights / length
    scaled: Array = weights * (np.linalg.norm(target) * (ell @ y)) / norms
    return scaled


def make_loglik(n_obs: int, n_draws: int, *, rng: np.random.Generator) -> Array:
    """Evaluate a logistic regression in 20 parameters at draws near its mode."""
    features = rng.normal(size=(n_obs, 20)) * np.linspace(2, 0.2, 20)
    draws = 0.3 + rng.normal(size=(20, n_draws)) * (20 / np.sqrt(n_obs))
    signs = np.where(rng.uniform(size=n_obs) < 0.5, -1.0, 1.0)
    loglik: Array = (signs[:, None] * features) @ draws
    np.negative(loglik, out=loglik)
    np.logaddexp(0, loglik, out=loglik)
    np.negative(loglik, out=loglik)
    return loglik


def seconds_of[T](run: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def bandwidth(vectors: Array) -> float:
    """Measure the bytes per second of the best of several streaming reads."""
    direction = np.ones(vectors.shape[1], vectors.dtype)
    return vectors.nbytes / min(seconds_of(lambda: vectors @ direction)[0] for _ in range(7))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One run; its passes do not include the one for the row norms."""

    name: str
    seconds: float
    passes: int
    steps: int
    points: int
    objective: float


def measure_plain(problem: Problem, size: int) -> Measurement:
    seconds, weights = seconds_of(lambda: plain_giga(problem.vectors, problem.target, size))
    residual = problem.target - weights @ problem.vectors
    return Measurement(
        name=PLAIN,
        seconds=seconds,
        passes=2 * size,
        steps=size,
        points=int(np.count_nonzero(weights)),
        objective=float(residual @ residual),
    )


def measure_uniform(problem: Problem, size: int) -> Measurement:
    rows = InMemoryRows([], problem.case_weights, np.arange(len(problem.case_weights)))
    seconds, subsample = seconds_of(lambda: rows.subsample(size, key=1))
    chosen, weights = subsample.rows.positions, subsample.weights
    residual = problem.target - weights @ problem.vectors[chosen]
    return Measurement(
        name=UNIFORM,
        seconds=seconds,
        passes=0,
        steps=0,
        points=len(chosen),
        objective=float(residual @ residual),
    )


def measure(name: str, problem: Problem, size: int) -> Measurement:
    """Run one method on a problem whose norms have not been computed yet."""
    fresh = replace(problem)
    original = Problem.project
    with patch.object(Problem, "project", autospec=True, side_effect=original) as project:
        seconds, selection = seconds_of(lambda: solve(RUNS[name], fresh, size))
    polished = getattr(RUNS[name], "polish", name == "iht")
    return Measurement(
        name=name,
        seconds=seconds,
        passes=project.call_count,
        steps=len(selection.history["size"]) - 1 - polished,
        points=len(selection.rows),
        objective=float(selection.history["objective"][-1]),
    )


def compare(problem: Problem, size: int) -> tuple[float, list[Measurement]]:
    """Return the best bandwidth seen between the runs, and the runs, the plain one first."""
    peaks, runs = [bandwidth(problem.vectors)], [measure_plain(problem, size)]
    runs.append(measure_uniform(problem, size))
    for name in RUNS:
        peaks.append(bandwidth(problem.vectors))
        runs.append(measure(name, problem, size))
    return max(peaks), runs


def cell(run: Measurement, problem: Problem, plain: float, peak: float) -> str:
    """Return seconds, their ratio to the plain method's, and the share of the bandwidth."""
    if not run.passes:
        return f"{run.seconds:.2f}"
    read = (run.passes + 1) * problem.vectors.nbytes
    share = read / run.seconds / peak
    return f"{run.seconds:.2f} / {run.seconds / plain:.2f} / {share:.0%}".replace("%", " %")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="number of rows")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--size", type=int, default=500)
    options = parser.parse_args()
    loglik = make_loglik(options.n, options.draws, rng=np.random.default_rng(1))
    cells, reached = dict[str, list[str]](), dict[str, float]()
    for dtype in (np.float64, np.float32):
        problem = problem_of(loglik.astype(dtype, copy=False))
        peak, runs = compare(problem, options.size)
        print(f"{np.dtype(dtype)}: {peak / 1e9:.0f} GB/s")
        for run in runs:
            line = cells.setdefault(run.name, [])
            line.append(cell(run, problem, runs[0].seconds, peak))
            reached.setdefault(run.name, run.objective / (problem.target @ problem.target))
    table = markdown(HEADER, ([name, *cells[name], f"{reached[name]:.0e}"] for name in cells))
    print(table)
    save(options.tables, "methods", table)


if __name__ == "__main__":
    main()
