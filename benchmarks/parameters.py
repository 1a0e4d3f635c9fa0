"""How many parameters?  ``python -m benchmarks.parameters [--seeds 5] [--rows-alone]``.

Models of 50 to 500 dimensions, most of them of 10^5 rows.  Each is built by ``build_coreset()`` and
sampled; J is the symmetrised KL divergence at draws of NUTS, by PyMC's own log-densities of the
full and the coreset's model.  Beside it, in the same run: the Laplace approximation of all rows
with importance weights from 90 % normal and 10 % t, and with ``--rows-alone`` the best coreset of
weighted rows alone.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table
from scipy.special import expit

from benchmarks.curves import markdown
from benchmarks.many_parameters import bradley_terry, dense_columns
from benchmarks.reliability import options_parser
from pymc_coresets import Coreset, CoresetError, CoresetWarning, RiemannianPursuit, build_coreset
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rows.keyed import rows_to_start
from pymc_coresets.sampling.sampler import CoresetSampler

__all__ = ["MODELS"]

HEADER = (
    "model", "N", "D", "rows", "build, CPU s", "J by PyMC", "verdict", "sample, CPU s",
    "Laplace: CPU s", "k-hat", "ESS of 400", "rows alone: CPU s", "J",
)  # fmt: skip
_DRAWS, _JUDGED = 400, 100

type Build = Callable[[np.random.Generator], None]


def rare(rng: np.random.Generator, n_rows: int, columns: int) -> None:
    """2 % positives, and columns with heavy tails."""
    x = rng.standard_t(4, size=(n_rows, columns))
    y = rng.binomial(1, expit(-4.3 + x @ rng.normal(0, 0.06, size=columns)))
    slopes = pm.Normal("slopes", 0, 1, shape=columns)
    pm.Bernoulli("y", logit_p=pm.Normal("a", 0, 5) + x @ slopes, observed=y)


def crossed(rng: np.random.Generator, n_rows: int, levels: tuple[int, int]) -> None:
    """Two factors with levels of very different sizes, and free scales."""
    eta, predictor = np.zeros(n_rows), pm.Normal("mean", 0, 2)
    for name, n, sd in zip(("first", "second"), levels, (0.8, 0.5), strict=True):
        level = rng.choice(n, n_rows, p=rng.dirichlet(np.full(n, 0.7)))
        eta += sd * rng.normal(size=n)[level]
        effects = pm.Normal(name, 0, pm.HalfNormal(f"{name}_scale", 1), shape=n)
        predictor = predictor + effects[level]
    pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(eta - 0.5)))


#: What adds a model's variables, by name, and how many rows it has.
MODELS: dict[str, tuple[Build, int]] = {
    **{
        f"dense, {d} columns": (partial(dense_columns, n_rows=100_000, columns=d), 100_000)
        for d in (50, 100, 200, 400)
    },
    "rare and heavy-tailed, 100 columns": (partial(rare, n_rows=100_000, columns=100), 100_000),
    "Bradley-Terry, 300 players": (partial(bradley_terry, n_rows=200_000), 200_000),
    "crossed, 40 x 30": (partial(crossed, n_rows=20_000, levels=(40, 30)), 20_000),
    "crossed, 300 x 200": (partial(crossed, n_rows=200_000, levels=(300, 200)), 200_000),
}


def judged(model: pm.Model, seed: int) -> list[str]:
    """Build, sample and check, with the processor time of each."""
    started = time.process_time()
    coreset = build_coreset(model, random_seed=seed, progressbar=False)
    built = time.process_time()
    idata = coreset.sample(draws=500, random_seed=seed, progressbar=False, cores=1)
    sampled = time.process_time()
    opinion = coreset.verify(idata, draws=_JUDGED)
    words = coreset.check(idata).verdict.split(":")[0]
    seconds = f"{sampled - built:.1f}"
    return [str(coreset.size), f"{built - started:.1f}", f"{opinion.by_pymc:.2g}", words, seconds]


def laplace(model: pm.Model, seed: int) -> list[str]:
    """Draw from the Laplace approximation of all rows, and weigh the draws."""
    started, rng = time.process_time(), np.random.default_rng(seed)
    loglik = LogLikelihood(find_observations(model), collapse="auto")
    sampler = CoresetSampler(loglik)
    found = sampler.proposal(_DRAWS, start_size=rows_to_start(loglik.n_dims), rng=rng)
    weighed = None if found is None else found.weighed(sampler.look(found.draws).total)
    seconds = f"{time.process_time() - started:.1f}"
    if weighed is None:
        return [seconds, "no mode", ""]
    smoothed = pareto_smooth(weighed.log_ratios[None])
    size = 1 / np.square(smoothed.weights / smoothed.weights.sum()).sum()
    return [seconds, f"{smoothed.pareto_khat:.2f}", f"{size:.0f}"]


def rows_alone(model: pm.Model, seed: int) -> list[str]:
    """Build the coreset of weighted rows alone."""
    started = time.process_time()
    try:
        coreset: Coreset = build_coreset(
            model, method=RiemannianPursuit(), random_seed=seed, progressbar=False
        )
    except CoresetError as error:
        return [f"{time.process_time() - started:.0f}", type(error).__name__]
    return [f"{time.process_time() - started:.0f}", f"{coreset.objective:.2g}"]


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--rows-alone", action="store_true", help="minutes for each model")
    parser.add_argument("--markdown", type=Path, help="save the table in this file")
    options = parser.parse_args()
    lines: list[list[str]] = []
    console, table = Console(width=200), Table(*HEADER)
    for name, (build, n_rows) in MODELS.items():
        for seed in range(1, options.seeds + 1) if options.only in name else ():
            with pm.Model() as model:
                build(np.random.default_rng(seed))
            n_dims = sum(v.size for v in model.initial_point().values())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CoresetWarning)
                line = [name, f"{n_rows:,}", str(n_dims), *judged(model, seed)]
                line += laplace(model, seed)
                line += rows_alone(model, seed) if options.rows_alone else ["", ""]
            console.print(*line, sep=" | ")
            lines.append(line)
            table.add_row(*line)
    console.print(table)
    if options.markdown:
        options.markdown.write_text(markdown(HEADER, lines) + "\n")


if __name__ == "__main__":
    main()
