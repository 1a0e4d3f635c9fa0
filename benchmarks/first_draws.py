"""Where should the first draws come from?  ``python -m benchmarks.first_draws [--seeds 10]``.

The default method draws from a t distribution around the mode of the posterior of *all* rows.  The
alternative that it was chosen over: the posterior of a uniform sample of the rows in which each has
weight 1, which is found without a pass at the others, lies in the same place and is wider.  Both
begin the same rounds, on the models of `benchmarks.reliability`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.reliability import TOLERANCE, fresh_objective, options_parser, simulated
from pymc_coresets import RiemannianPursuit, SamplingError
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.methods.job import Reduction
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.sampler import CoresetSampler

HEADER = (
    "model", "first draws", "J at first", "within at first", "J in the end", "largest",
    "looks x draws", "CPU s", "rows",
)  # fmt: skip


@dataclass(frozen=True)
class Construction:
    """One coreset, and what it cost."""

    first: float
    fresh: float
    row_draws: float
    seconds: float
    size: int


def of_a_sample(
    loglik: LogLikelihood, n_draws: int, *, start_size: int, rng: np.random.Generator
) -> Proposal[Draws] | None:
    """Draw from the posterior of some rows with weight 1 each, by a t distribution at its mode."""
    scan = loglik.source.scan(min(start_size, loglik.n_rows), key=random_key(rng), distinct=True)
    model = coreset_model(loglik.observations, scan.rows, np.ones(len(scan.rows)), lean=True)
    space = Unconstrained(model)
    try:
        around = laplace(space)
    except SamplingError:
        return None
    positions, logq = around.with_tails().draw(n_draws, rng=rng)
    logp = np.array([space.logp_and_gradient(x)[0] for x in positions])
    draws = space.constrain(positions)
    prior = logp - loglik.matrix(draws, scan.rows).sum(axis=0)
    return Proposal(draws=draws, log_ratios=prior - logq)


def construct(loglik: LogLikelihood, first: str, seed: int) -> Construction:
    """Choose rows from first draws of one kind, and measure the result at fresh draws."""
    sampler, method = CoresetSampler(loglik), RiemannianPursuit()
    kinds: Mapping[str, Callable[[], Callable[..., Proposal[Draws] | None]]] = {
        "all rows, at the mode": lambda: partial(proposal, sampler),
        "a sample, weights 1": lambda: partial(of_a_sample, loglik),
    }
    size = method.default_size(loglik.n_dims, loglik.n_rows)
    start = time.process_time()
    rng = np.random.default_rng(seed)
    job = Reduction(posterior=sampler, size=size, rng=rng, propose=kinds[first]())
    found = method.run(job)
    seconds = time.process_time() - start
    return Construction(
        first=float(found.history["heldout_objective"][0]),
        fresh=fresh_objective(loglik, found.rows, found.weights, seed),
        row_draws=float(found.history["n_evaluations"][-1]) / loglik.n_rows,
        seconds=seconds,
        size=len(found.rows),
    )


def row(found: list[Construction]) -> list[str]:
    """Summarise the constructions of one kind."""
    first, fresh = (np.array([getattr(one, name) for one in found]) for name in ("first", "fresh"))
    return [
        f"{np.median(first):.1e}",
        f"{np.count_nonzero(first <= TOLERANCE)} of {len(found)}",
        f"{np.median(fresh):.1e}",
        f"{fresh.max():.1e}",
        f"{np.median([one.row_draws for one in found]):,.0f}",
        f"{np.median([one.seconds for one in found]):.1f}",
        f"{np.median([one.size for one in found]):.0f}",
    ]


def main() -> None:
    options = options_parser(__doc__).parse_args()
    console = Console(width=150)
    table = Table(*HEADER, title=f"N = {options.n:,}, tolerance {TOLERANCE} nats")
    for name, model in simulated(options):
        loglik = LogLikelihood(find_observations(model)).collapsed(collapse="auto")
        for first in ("all rows, at the mode", "a sample, weights 1"):
            construct(loglik, first, 0)  # compiles
            found = [construct(loglik, first, seed) for seed in range(1, options.seeds + 1)]
            table.add_row(name, first, *row(found))
            console.print(name, first, *row(found), style="dim")
    console.print(table)


if __name__ == "__main__":
    main()
