"""Rows that are seen once: ``python -m benchmarks.streams [--n 262144 --columns 8 --seeds 1]``.

A logistic regression in chunks of 4,096 rows.  A tree of coresets that are merged and reduced, a
stream (exact sums at draws of the first chunk's posterior, and rows to choose from), and one build
with all rows at hand.  J is the variance of log r at fresh draws of the posterior of all rows; the
means are compared at the same draws, re-weighted, so that the difference has little noise.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from rich.console import Console

from benchmarks.curves import brief
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets import CoresetStream, CoresetWarning, build_coreset, open_rows
from pymc_coresets.methods.job import candidates_to_keep
from pymc_coresets.methods.pursuit import pursue
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import likelihood_of_prototypes
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.solution import Solution

CHUNK, SIZES, N_FRESH, TOLERANCE = 4_096, (50, 100, 200), 500, 1e-4
HEADER = ("M", "way", "rows", "J", "mean off / sd", "processor s")

type Arrays = dict[str, np.ndarray]
type Way = Callable[[pm.Model, Arrays, int, int], tuple[np.ndarray, np.ndarray]]


def simulate(n: int, n_columns: int, seed: int) -> tuple[pm.Model, Arrays]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_columns))
    chance = 1 / (1 + np.exp(-x @ rng.normal(0, 0.5, size=n_columns)))
    data = {"x": x, "y": (rng.random(n) < chance).astype(float)}
    with pm.Model() as model:
        design = pm.Data("x", x[:100])
        observed = pm.Data("y", data["y"][:100])
        slopes = pm.Normal("b", 0, 2, shape=n_columns)
        pm.Bernoulli("likelihood", logit_p=design @ slopes, observed=observed)
    return model, data


# -- three ways, each to positions and weights -----------------------------------------------------


def by_stream(model: pm.Model, data: Arrays, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    chunks = [
        {n: a[i : i + CHUNK] for n, a in data.items()} for i in range(0, len(data["y"]), CHUNK)
    ]
    stream = CoresetStream(model, pilot=chunks[0], size=size, tolerance=TOLERANCE, random_seed=seed)
    for chunk in chunks[1:]:
        stream.update(chunk)
    coreset = stream.coreset()
    return coreset.indices, coreset.weights


def by_build(model: pm.Model, data: Arrays, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    coreset = build_coreset(
        model, rows=open_rows(data), size=size, tolerance=TOLERANCE, random_seed=seed,
        progressbar=False,
    )  # fmt: skip
    return coreset.indices, coreset.weights


def by_tree(model: pm.Model, data: Arrays, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Reduce pairs of weighted sets of rows, two at a time, with one sampler for all."""
    of_prototypes = loglik_of(model, data)
    sampler, rng = CoresetSampler(of_prototypes), np.random.default_rng(seed)
    everything = InMemoryRows([data[row.name] for row in of_prototypes.observations.rows]).all
    level = [reduced(sampler, leaf, size, rng) for leaf in everything.blocks(CHUNK)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [reduced(sampler, joined(pair), size, rng) for pair in pairs]
    return level[0].positions, level[0].case_weights


def reduced(sampler: CoresetSampler, rows: Rows, size: int, rng: np.random.Generator) -> Rows:
    """Choose among weighted rows at draws of their posterior; the case weights are the new ones."""
    sampler.loglikelihood = sampler.loglikelihood.reading(
        InMemoryRows(rows.arrays, rows.case_weights, rows.positions)
    )
    n_draws = max(2 * size, 200)
    draws = sampler.draw(rows, rows.case_weights, n_draws, rng=rng)
    scale = float(rows.case_weights @ sampler.loglik(draws, rows).std(axis=1))
    sums = sampler.sums(
        draws, n_candidates=candidates_to_keep(sampler.n_dims, size, n_draws), scale=scale,
        key=random_key(rng),
    )  # fmt: skip
    loglik = sampler.loglik(draws, sums.candidates)
    chosen: Solution = pursue(loglik, sums, sums.total, size, tolerance=TOLERANCE, rng=rng)
    return Rows(chosen.rows.positions, chosen.weights, chosen.rows.arrays)


def joined(pair: tuple[Rows, Rows]) -> Rows:
    return Rows.joined(list(pair))


def loglik_of(model: pm.Model, data: Arrays) -> LogLikelihood:
    return likelihood_of_prototypes(model, {name: array[0] for name, array in data.items()})


WAYS: dict[str, Way] = {
    "merge-and-reduce tree": by_tree,
    "stream": by_stream,
    "all rows at hand": by_build,
}


# -- the posterior of all rows ---------------------------------------------------------------------


@dataclass(frozen=True)
class Judge:
    """Fresh draws of the posterior of all rows, and the sum of all rows there."""

    loglik: LogLikelihood
    draws: Draws
    total: np.ndarray
    rows: Rows

    @classmethod
    def of(cls, model: pm.Model, data: Arrays, seed: int) -> "Judge":
        of_prototypes = loglik_of(model, data)
        source = InMemoryRows([data[row.name] for row in of_prototypes.observations.rows])
        loglik = of_prototypes.reading(source)
        rng = np.random.default_rng([seed, 99])
        draws = CoresetSampler(loglik).draw(source.all, np.ones(source.n_rows), N_FRESH, rng=rng)
        return cls(loglik, draws, loglik.sums(draws).total, source.all)

    def measure(self, positions: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        """Return J, and how far off the furthest mean is in sd."""
        own = weights @ self.loglik.matrix(self.draws, self.rows.take(positions))
        ratios = own - self.total
        shares = np.exp(ratios - ratios.max())
        slopes = self.draws.values["b"]
        off = (shares / shares.sum()) @ slopes - slopes.mean(axis=0)
        return float(ratios.var()), float(np.abs(off / slopes.std(axis=0)).max())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--n", type=int, default=64 * CHUNK, help="rows: 4,096 times a power of 2")
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1, help="medians of so many")
    options = parser.parse_args()
    warnings.simplefilter("ignore", CoresetWarning)
    console = Console(width=150)
    found: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    for seed in range(1, options.seeds + 1):
        model, data = simulate(options.n, options.columns, seed)
        judge = Judge.of(model, data, seed)
        for size in SIZES:
            for name, way in WAYS.items():
                start = time.process_time()
                positions, weights = way(model, data, size, seed)
                seconds = time.process_time() - start
                figures = (len(positions), *judge.measure(positions, weights), seconds)
                found.setdefault((size, name), []).append(figures)
                console.print(seed, size, name, *map(brief, figures), style="dim")
    rows = []
    for (size, name), figures in found.items():
        n_rows, objective, off, seconds = np.median(figures, axis=0)
        rows.append(
            [str(size), name, f"{n_rows:.0f}", brief(objective), f"{off:.3f}", f"{seconds:.1f}"]
        )
    console.print(markdown(HEADER, rows), markup=False)
    save(options.tables, "streams", markdown(HEADER, rows))


if __name__ == "__main__":
    main()
