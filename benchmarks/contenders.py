"""The methods of the papers' comparison: each yields a coreset of every size, and its seconds."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.closed_forms import Array, Experiment, Gaussian, full_and_prior
from benchmarks.curves import PUBLISHED, PURSUIT, SPARSE_VI, Point
from benchmarks.problems import problem_of
from pymc_coresets.methods.hilbert import solve
from pymc_coresets.methods.job import Job
from pymc_coresets.methods.loop import Measure
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.papers.adaptive import AdaptiveMethod, solve_adaptively
from pymc_coresets.papers.giga import GIGA
from pymc_coresets.papers.quasi_newton import QuasiNewton
from pymc_coresets.papers.sparse_vi import SparseVI
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.values import Rows

type Sizes = tuple[int, ...]
type Contender = Callable[[Experiment, Sizes, np.random.Generator], Iterator["Stage"]]
type Run = Callable[[Experiment, int, np.random.Generator], tuple[Rows, Array]]

PROJECTIONS = 100  # draws for GIGA, as in the paper
NOISE = 0.75  # of the realistic guess of the posterior, as in the paper
ROUNDED = 1e-12  # nats: a tolerance below rounding errors, so that only the size is a limit


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """A method's coreset at one of the sizes that were asked for, and its processor seconds."""

    size: int
    rows: Rows
    weights: Array
    seconds: float


def contenders(schedule: str, n_steps: int, printed_step: float) -> dict[str, Contender]:
    """Return the methods to compare, by label.

    The paper's schedule runs SparseVI with the step as printed, with the Adam steps of the authors'
    published code, and with ours; the short one has a fraction of the updates, only our step, and
    every other method.
    """
    fixed: dict[str, Contender] = {
        "uniform": each_size(uniform),
        "giga, optimal": each_size(giga(optimal)),
        "giga, realistic": each_size(giga(realistic)),
    }
    ours: dict[str, Contender] = {PURSUIT: each_size(riemannian)}
    if schedule == "paper":
        printed = SparseVI(n_steps=n_steps, step_size=printed_step)
        return {
            **fixed,
            "sparse_vi, printed step": following(printed),
            PUBLISHED: following(replace(printed, adam=True)),
            SPARSE_VI: following(SparseVI(n_steps=n_steps)),
            **ours,
        }
    return {
        **fixed,
        SPARSE_VI: following(SparseVI(n_steps=n_steps)),
        "quasi_newton": some_sizes(QuasiNewton()),
        **ours,
    }


def points_of(
    contender: Contender, experiment: Experiment, sizes: Sizes, rng: np.random.Generator
) -> list[Point]:
    """Judge a method's coreset at every size; its seconds do not include the judging."""
    full, _ = full_and_prior(experiment)
    return [
        Point(
            size=stage.size,
            support=len(stage.rows),
            kl=experiment.gaussian(stage.rows, stage.weights).kl(full),
            seconds=stage.seconds,
        )
        for stage in contender(experiment, sizes, rng)
    ]


def at_support(
    sparse: list[Point], experiment: Experiment, sizes: Sizes, rng: np.random.Generator
) -> list[Point]:
    """Run Riemannian pursuit with as many rows as SparseVI ended with.

    SparseVI may select a row repeatedly, and so end with fewer rows than its size.
    """
    return [
        replace(point, size=ended.size)
        for ended in sparse
        if ended.size in sizes
        for point in points_of(each_size(riemannian), experiment, (ended.support,), rng)
    ]


# -- ways to run -----------------------------------------------------------------------------------


def each_size(run: Run) -> Contender:
    """Run a method anew for every size."""

    def stages(experiment: Experiment, sizes: Sizes, rng: np.random.Generator) -> Iterator[Stage]:
        for size in sizes:
            began = time.process_time()
            rows, weights = run(experiment, size, rng)
            seconds = time.process_time() - began
            yield Stage(size=size, rows=rows, weights=weights, seconds=seconds)

    return stages


def some_sizes(method: AdaptiveMethod[Any]) -> Contender:
    """Run anew for every other size from the largest down to 10: for methods that do not grow."""

    def run(experiment: Experiment, size: int, rng: np.random.Generator) -> tuple[Rows, Array]:
        solution = solve_adaptively(method, experiment, size, rng=rng)
        return solution.rows, solution.weights

    every = each_size(run)
    return lambda experiment, sizes, rng: every(
        experiment, tuple(s for s in sizes[-1::-2][::-1] if s >= 10), rng
    )


def following(method: AdaptiveMethod[Any]) -> Contender:
    """Run once to the largest size, and record the coreset after as many steps as each size has.

    A run ends early where weights grow so large that the posterior's precision is numerically
    singular.
    """

    def stages(experiment: Experiment, sizes: Sizes, rng: np.random.Generator) -> Iterator[Stage]:
        began = time.process_time()
        state, ended = method.start(Measure(experiment, rng), max(sizes)), False
        seconds = time.process_time() - began
        for n_steps in range(1, max(sizes) + 1):
            if not ended:
                began = time.process_time()
                try:
                    state = method.step(state)
                except np.linalg.LinAlgError:
                    ended = True
                ended = ended or state.status is not None
                seconds += time.process_time() - began
            if n_steps in sizes:
                chosen = state.coreset.support
                yield Stage(size=n_steps, rows=chosen.rows, weights=chosen.weights, seconds=seconds)

    return stages


# -- methods ---------------------------------------------------------------------------------------


def uniform(experiment: Experiment, size: int, rng: np.random.Generator) -> tuple[Rows, Array]:
    subsample = experiment.subsample(size, key=random_key(rng))
    return subsample.rows, subsample.weights


def giga(guess: Callable[[Experiment, np.random.Generator], Gaussian]) -> Run:
    """Run GIGA as published, with draws from the guess of the posterior; its time includes them."""

    def run(experiment: Experiment, size: int, rng: np.random.Generator) -> tuple[Rows, Array]:
        parameters = guess(experiment, rng).draw(PROJECTIONS, rng=rng)
        problem = problem_of(experiment.loglik_of_all(parameters))
        selection = solve(GIGA(polish=False), problem, size)
        return experiment.source.take(selection.rows.positions), selection.weights

    return run


def optimal(experiment: Experiment, _: np.random.Generator) -> Gaussian:
    return full_and_prior(experiment)[0]


def realistic(experiment: Experiment, rng: np.random.Generator) -> Gaussian:
    """Return a Gaussian at random between prior and posterior, with 75 % relative noise."""
    (full, prior), share = full_and_prior(experiment), rng.uniform()
    mean = share * full.mean + (1 - share) * prior.mean
    covariance = share * np.linalg.inv(full.precision)
    covariance += (1 - share) * np.linalg.inv(prior.precision)
    noise = rng.normal(size=mean.shape) / np.sqrt(len(mean))
    mean = mean + NOISE * np.linalg.norm(mean) * noise
    scale = np.exp(-2 * NOISE * abs(rng.normal()))
    return Gaussian(mean=mean, precision=np.linalg.inv(scale * covariance))


def riemannian(experiment: Experiment, size: int, rng: np.random.Generator) -> tuple[Rows, Array]:
    """Start from a uniform coreset of a tenth of the rows; nothing but the size is a limit."""
    method = RiemannianPursuit(tolerance=ROUNDED, start_size=experiment.n_rows // 10)
    solution = method.run(Job(posterior=experiment, size=size, rng=rng))
    return solution.rows, solution.weights
