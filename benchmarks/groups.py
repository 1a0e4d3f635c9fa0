"""Coresets of models with hundreds and thousands of groups: ``python -m benchmarks.groups``.

Regressions with an effect of each group and an unknown scale of the effects.  The posterior of the
coreset is compared with that of all rows, both by nested Laplace approximations, over all
dimensions: largest shifts of means in posterior sd, ratios of sds, and the symmetrised KL
divergence.  Beside it stands a uniform sample of as many rows.

``--cases a d --part 0.2 --seeds 1 2`` runs some of the cases on a part of the data; figures are
medians over the seeds, and the worst for shifts and ratios.  ``--certificate`` builds fifty
coresets of all qualities, and counts those that are called reliable and are not.  ``--nuts``
compares a case with NUTS on all rows, which takes long; ``--nuts 600`` extrapolates its time from
ten minutes.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import nutpie
import pymc as pm

from benchmarks.curves import markdown
from benchmarks.group_data import REAL
from benchmarks.group_models import CASES, Case, model_of
from benchmarks.opponent_sampling import sample_until
from benchmarks.opponent_task import CHAINS, Settings, Task
from pymc_coresets import BlockPursuit, Certificate, SamplingError, build_coreset, compare
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.progress.reporter import Reporter
from pymc_coresets.reading.blocks.structure import Blocks, find_blocks
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.levels.grouped_sampler import GroupedSampler
from pymc_coresets.sampling.levels.nested_laplace import NestedLaplace
from pymc_coresets.sampling.reuse import Samplers
from pymc_coresets.solving.solution import Solution

type Array = np.ndarray

HEADER = ("case", "D, N", "rows (a group)", "rounds", "J, k-hat", "true KL",
          "shifts: shared / local", "sd ratios: shared / local", "uniform: KL",
          "processor s")  # fmt: skip
N_POINTS = 200  # of the shared variables, for the divergence of the groups given these


# -- how far two posteriors are from each other ----------------------------------------------------


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


def divergence(one: NestedLaplace, other: NestedLaplace) -> float:
    """Symmetrised KL divergence in nats, over all dimensions."""
    rng = np.random.default_rng(1)
    return gap(one, other, rng) + gap(other, one, rng)


@dataclass(frozen=True)
class Distances:
    """Shifts of means in posterior sd, and ratios of sds: of shared and of local variables."""

    shifts: tuple[float, float]
    ratios: tuple[Array, Array]

    @classmethod
    def of(cls, full: NestedLaplace, other: NestedLaplace) -> "Distances":
        """At the means of the shared variables, each of its own approximation."""
        (shared, local), (of_shared, of_local) = full.deviations(), other.deviations()
        nowhere = np.zeros((1, full.n_shared))
        moved = (other.given(nowhere)[0][0] - full.given(nowhere)[0][0]) / local
        shift = np.abs((other.mode - full.mode) / shared).max()
        return cls(
            (float(shift), float(np.abs(moved).max())),
            (ends(of_shared / shared), ends(of_local / local)),
        )


def ends(values: Array) -> Array:
    """Return the smallest and the largest."""
    return np.array([values.min(), values.max()])


# -- the table -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one coreset is like."""

    dims: str
    n_groups: int
    size: int
    rounds: int
    objective: float
    khat: float
    true: float
    distances: Distances
    uniform: float
    seconds: float


def figures(model: pm.Model, seed: int, *, uniform: bool) -> Figures:
    """Build a coreset, and compare its posterior with that of all rows."""
    started = time.process_time()
    coreset = build_coreset(model, method="block_pursuit", random_seed=seed, progressbar=False)
    seconds = time.process_time() - started
    loglik = coreset.loglikelihood
    assert loglik is not None
    sampler = Samplers(loglik, "pymc").by_groups()
    full, rows = sampler.approximation, loglik.source.at(coreset.indices)
    own = sampler.approximation_of(rows, coreset.weights)
    return Figures(
        dims=f"{loglik.n_dims:,}, {loglik.n_rows:,}",
        n_groups=sampler.n_levels,
        size=coreset.size,
        rounds=coreset.history.sizes["step"],
        objective=coreset.objective,
        khat=float(coreset.history.isel(step=-1)["pareto_khat"]),
        true=divergence(full, own),
        distances=Distances.of(full, own),
        uniform=of_uniform(sampler, coreset.size, full) if uniform else np.nan,
        seconds=seconds,
    )


def of_uniform(sampler: GroupedSampler, size: int, full: NestedLaplace) -> float:
    """Return the divergence of a uniform sample: infinite where its posterior has no mode."""
    rows = sampler.data.rows
    drawn = np.random.default_rng(1).choice(len(rows), size, replace=False)
    weights = np.full(size, rows.base_weights.sum() / size)
    try:
        return divergence(full, sampler.approximation_of(rows.take(np.sort(drawn)), weights))
    except SamplingError:
        return np.inf


def row_of(name: str, found: Sequence[Figures]) -> list[str]:
    """Medians over the seeds; the worst shifts and ratios."""

    def median(name: str) -> float:
        return float(np.median([getattr(f, name) for f in found]))

    shifts = np.max([f.distances.shifts for f in found], axis=0)
    ratios = [ends(np.concatenate([f.distances.ratios[i] for f in found])) for i in (0, 1)]
    size = median("size")
    return [
        name,
        found[0].dims,
        f"{size:,.0f} ({size / found[0].n_groups:.1f})",
        f"{max(f.rounds for f in found)}",
        f"{median('objective'):.2g}, {max(f.khat for f in found):.2f}",
        f"{median('true'):.2g}",
        " / ".join(f"{shift:.2g}" for shift in shifts),
        " / ".join(f"{low:.2f}–{high:.2f}" for low, high in ratios),
        f"{found[0].uniform:.2g}",
        f"{median('seconds'):.0f}",
    ]


# -- certificates ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Build:
    """One coreset, what its certificate says, and what is true."""

    size: int
    negligible: bool
    reliable: bool
    said: float
    khat: float
    true: float
    shift: float  # of a mean of the re-weighted draws, in posterior sd
    error: float  # of that mean, by the effective number of draws

    @property
    def called(self) -> str:
        """What the certificate says."""
        return "negligible" if self.negligible else "reliable" if self.reliable else "neither"

    @property
    def is_false(self) -> bool:
        """Negligible though it is not, or reliable though re-weighted means are off."""
        return (self.negligible and self.true > 0.1) or (
            self.reliable and self.shift > 0.1 + 4 * self.error
        )


def builds(n_builds: int) -> Iterator[Build]:
    """Coresets of five data sets, from those that are far too rough to those that are fine."""
    case, per_model = Case(name="small", n_groups=100, n_rows=5_000), max(n_builds // 5, 1)
    for seed in range(5):
        loglik = LogLikelihood(find_observations(model_of(case, np.random.default_rng(seed))))
        sampler = Samplers(loglik, "pymc").by_groups()
        space, blocks = Unconstrained(loglik.observations.model), find_blocks(loglik.observations)
        assert isinstance(blocks, Blocks)
        for k in range(per_model):
            method = BlockPursuit(
                tolerance=10.0 ** (1.5 - 4.5 * k / per_model), draws=(100, 400)[k % 2], max_rounds=1
            )
            # All builds share the approximation of the posterior of all rows.
            job: Any = SimpleNamespace(
                by_groups=lambda: sampler,  # noqa: B023
                rng=np.random.default_rng(k),
                report=Reporter(show=False),
                deadline=math.inf,
            )
            yield judged(method.run(job), sampler, space, blocks.shared_columns)


def judged(
    solution: Solution, sampler: GroupedSampler, space: Unconstrained, shared: Array
) -> Build:
    """Compare what the certificate says with the truth."""
    assert solution.log_ratios is not None
    assert solution.proposal is not None
    certificate = Certificate.of(solution.log_ratios)
    own = sampler.approximation_of(solution.rows, solution.weights)
    x = space.free(solution.proposal.draws)[:, shared]
    z = (x - sampler.approximation.mode) / sampler.approximation.deviations()[0]
    weights = pareto_smooth(solution.log_ratios[None]).weights[0]
    return Build(
        size=len(solution.rows),
        negligible=certificate.negligible,
        reliable=certificate.reliable,
        said=certificate.symmetrised_kl,
        khat=certificate.pareto_khat,
        true=divergence(sampler.approximation, own),
        shift=float(np.abs(weights @ z / weights.sum()).max()),
        error=1 / np.sqrt(certificate.ess),
    )


def print_certificates(n_builds: int) -> None:
    """Print each build, and how many certificates were false."""
    found = list(builds(n_builds))
    lines = [
        (
            f"{build.size:,}",
            f"{build.said:.2g}",
            f"{build.khat:.2f}",
            f"{build.true:.2g}",
            f"{build.shift:.2f} ± {build.error:.2f}",
            build.called,
            "false" if build.is_false else "",
        )
        for build in found
    ]
    headings = ("rows", "J", "k-hat", "true KL", "shift, re-weighted", "called", "false")
    print(f"{markdown(headings, lines)}\n\n{sum(build.is_false for build in found)} false")


# -- NUTS ------------------------------------------------------------------------------------------


def print_nuts(name: str, model: pm.Model, limit: float) -> None:
    """Compare draws of the coreset's posterior with those of NUTS on all rows.

    Only the time of that is extrapolated where it has not ended after so many seconds.
    """
    settings = Settings(tune=500, seconds=limit)
    started = time.process_time()
    coreset = build_coreset(model, method="block_pursuit", random_seed=1, progressbar=False)
    built = time.process_time() - started
    ours = coreset.sample(
        draws=settings.draws, chains=CHAINS, cores=1, random_seed=1, progressbar=False
    )
    sampled = time.process_time() - started - built
    task = Task(name=name, model=model, settings=settings)
    with task.clock.compiling():
        compiled = nutpie.compile_pymc_model(model)
    started = time.process_time()
    full, share = sample_until(task, compiled)
    seconds = time.process_time() - started
    in_all = f"{seconds / share:.0f}" if share else "more than can be told"
    print(
        f"{name}: {coreset.size:,} rows; built in {built:.0f} processor seconds, sampled in "
        f"{sampled:.0f}; all rows in {in_all}, of which {seconds:.0f} were done"
    )
    if share == 1:
        print(repr(compare(full=full, approximation=ours)))


def model_for(name: str, part: float, seed: int) -> pm.Model:
    """Return the model of a case: of real rows, or of so large a part of those that are drawn."""
    if name in REAL:
        return REAL[name]()
    case = CASES[name]
    sizes = {"n_groups": round(part * case.n_groups), "n_rows": round(part * case.n_rows)}
    return model_of(replace(case, **sizes), np.random.default_rng(seed))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {name: case.name for name, case in CASES.items()} | {name: name for name in REAL}
    parser.add_argument("--cases", nargs="+", choices=names, default=list(names))
    parser.add_argument("--part", type=float, default=1.0, help="of what is drawn")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--certificate", type=int, nargs="?", const=50, help="number of builds")
    parser.add_argument("--markdown", type=Path, help="save the table here")
    parser.add_argument(
        "--nuts", type=float, nargs="?", const=86_400.0, help="compare with NUTS: seconds for it"
    )
    options = parser.parse_args()
    if options.certificate:
        print_certificates(options.certificate)
        return
    if options.nuts:
        for name in options.cases:
            print_nuts(names[name], model_for(name, options.part, 1), options.nuts)
        return
    lines = []
    for name in options.cases:
        found = []
        for seed in options.seeds:
            model = model_for(name, options.part, seed)
            found.append(figures(model, seed, uniform=seed == options.seeds[0]))
            print(" | ".join(row_of(names[name], found[-1:])), flush=True)
        lines.append(row_of(names[name], found))
    table = markdown(HEADER, lines)
    print(f"\n{table}")
    if options.markdown:
        options.markdown.write_text(table + "\n")


if __name__ == "__main__":
    main()
