"""How many parameters?  ``python -m benchmarks.parameters [--seeds 5]``.

Models of 50 to 1,500 dimensions; rows of those in the second table see many numbers.  Each is built
by ``build_coreset()`` and sampled; J is the symmetrised KL divergence at those draws, by PyMC's own
log-densities of the full and the coreset's model.  Beside it, in the same run: the Laplace
approximation of all rows with importance weights, drawn from 90 % normal and 10 % t.  Each runs in
a process of its own, with an empty and then a filled folder of compiled functions; what takes a
minute runs once.  Seeds after the first skip what takes longer than it should.

``--figure`` measures J against the number of rows instead, with and without the quadratic;
`docs/figures/many_parameters.py` draws it.
"""

import time
import warnings
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
from rich.console import Console

from benchmarks.isolation import twice
from benchmarks.parameter_figure import measured, table_of_points
from benchmarks.parameter_models import FEW_NUMBERS, MANY_NUMBERS
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets import CoresetError, CoresetWarning, build_coreset
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import rows_to_start
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.sampler import CoresetSampler

HEADER = (
    "model", "N", "D", "rows", "build + sampling, CPU s, empty cache", "build, CPU s",
    "sampling, CPU s", "J, nats: median (worst)",
    "reliable", "Laplace: CPU s", "Laplace: k-hat", "Laplace: ESS of 400", "goal missed",
)  # fmt: skip
_DRAWS, _JUDGED = 400, 100
_LIMIT = 7_200.0  # seconds by the clock
_DIVERGENCE, _SECONDS = 0.05, 60  # what each build should keep to
TABLES = {"parameters": FEW_NUMBERS, "many-numbers": MANY_NUMBERS}
MODELS = FEW_NUMBERS | MANY_NUMBERS


@dataclass(frozen=True, kw_only=True)
class Built:
    """A coreset: seconds of the processor, J in nats, and what `check` says.

    ``at_first`` is the sum of the seconds with an empty folder of compiled functions.
    """

    size: float = np.nan
    build: float
    sample: float = np.nan
    divergence: float = np.inf
    reliable: bool = False
    at_first: float = np.nan

    @property
    def seconds(self) -> float:
        """Seconds of the construction, and of sampling if that was reached."""
        return float(np.nansum([self.build, self.sample]))


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Weighted draws of the Laplace approximation of all rows."""

    seconds: float
    khat: float = np.inf
    ess: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Record:
    """One model with one seed."""

    model: str
    n_rows: int
    n_dims: int
    coreset: Built
    laplace: Weighed


def built(model: pm.Model, seed: int) -> Built:
    """Build, sample and check."""
    started = time.process_time()
    try:
        coreset = build_coreset(model, random_seed=seed, progressbar=False)
    except CoresetError:
        return Built(build=time.process_time() - started)
    done = time.process_time()
    idata = coreset.sample(cores=1, random_seed=seed, progressbar=False)
    return Built(
        size=coreset.size,
        build=done - started,
        sample=time.process_time() - done,
        divergence=coreset.verify(idata, draws=_JUDGED).by_pymc,
        reliable=coreset.check(idata).reliable,
    )


def weighed(loglik: LogLikelihood, seed: int) -> Weighed:
    """Draw from the Laplace approximation of all rows, and weigh the draws."""
    started, rng = time.process_time(), np.random.default_rng(seed)
    sampler = CoresetSampler(loglik)
    found = proposal(sampler, _DRAWS, start_size=rows_to_start(loglik.n_dims), rng=rng)
    drawn = None if found is None else found.weighed(sampler.sums(found.draws).total)
    seconds = time.process_time() - started
    if drawn is None:
        return Weighed(seconds=seconds)
    smoothed = pareto_smooth(drawn.log_ratios[None])
    shares = smoothed.weights / smoothed.weights.sum()
    return Weighed(seconds=seconds, khat=smoothed.pareto_khat, ess=1 / np.square(shares).sum())


def record(name: str, seed: int) -> Record:
    """Measure a model with one seed."""
    with pm.Model() as model:
        MODELS[name](np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)  # the table says it
        coreset = built(model, seed)
        loglik = LogLikelihood(find_observations(model), collapse="auto")
        laplace = weighed(loglik, seed)
    n_rows = loglik.observations.n_obs
    return Record(model=name, n_rows=n_rows, n_dims=loglik.n_dims, coreset=coreset, laplace=laplace)


def measured_twice(name: str, seed: int) -> Record:
    """Do the same in processes of their own, with an empty and then a filled cache."""
    first, again = twice(record, lambda one: one.coreset.seconds, _LIMIT, name, seed)
    return replace(again, coreset=replace(again.coreset, at_first=first.coreset.seconds))


def line(own: list[Record]) -> list[str]:
    """Summarise a model by medians over the seeds, and by the largest divergence."""
    builds, weights = [r.coreset for r in own], [r.laplace for r in own]

    def middle(of: Iterable[object], name: str) -> float:
        return float(np.median([getattr(one, name) for one in of]))

    largest, seconds = max(b.divergence for b in builds), middle(builds, "build")
    missed = ["J"] * (largest > _DIVERGENCE) + ["seconds"] * (seconds > _SECONDS)
    return [
        own[0].model,
        f"{own[0].n_rows:,}",
        f"{own[0].n_dims:,}",
        f"{middle(builds, 'size'):,.0f}",
        f"{middle(builds, 'at_first'):.0f}",
        f"{seconds:.0f}",
        f"{middle(builds, 'sample'):.0f}",
        f"{middle(builds, 'divergence'):.2g} ({largest:.2g})",
        f"{sum(b.reliable for b in builds)} of {len(builds)}",
        f"{middle(weights, 'seconds'):.0f}",
        f"{middle(weights, 'khat'):.2f}",
        f"{middle(weights, 'ess'):.0f}",
        ", ".join(missed),
    ]


def table_of(records: list[Record]) -> str:
    """Return a table with one line for each model."""
    names = dict.fromkeys(r.model for r in records)
    return markdown(HEADER, (line([r for r in records if r.model == name]) for name in names))


def tabulate(options: Namespace) -> None:
    """Measure the models, the first seed of all before the second, and save after each."""
    console, records = Console(width=200), list[Record]()
    for seed in range(1, options.seeds + 1):
        slow = {r.model for r in records if r.coreset.build > _SECONDS}
        for name in MODELS:
            if options.only in name and name not in slow:
                records.append(measured_twice(name, seed))
                console.print(*line(records[-1:]), sep=" | ")
                for table, models in TABLES.items():
                    save(options.tables, table, table_of([r for r in records if r.model in models]))
    console.print(table_of(records))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--figure", action="store_true", help="measure J against rows instead")
    options = parser.parse_args()
    if not options.figure:
        tabulate(options)
        return
    table = table_of_points(measured())
    print(table)
    save(options.tables, "parameters-figure", table)


if __name__ == "__main__":
    main()
