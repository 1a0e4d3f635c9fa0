"""Of what is called reliable, how much is?  ``python -m tests.grammar.calibration [--models 60]``.

Random models with thousands of rows instead of tens, whose data are not from the model.  Each is
answered by `pymc_coresets.sample`, by the default coreset, and by one of any quality.  The truth is
NUTS on all rows, for 4 chains of 2,000 draws, where R-hat is at most 1.01 and fewer than one draw
in a thousand diverges.  A verdict is false where draws are called reliable, once re-weighted if it
says so, and a mean is off by more than 0.1 posterior standard deviations and what Monte Carlo noise
explains.

``--seed`` chooses other models; ``--only 12 --seed 3`` shows and judges a single one.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from rich.console import Console

import pymc_coresets as pmc
from benchmarks.differences import Difference
from benchmarks.followed import distance, followed
from benchmarks.isolation import NotDoneError, isolated
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets import Level
from tests.grammar.judging import execute
from tests.grammar.likelihoods import likelihood
from tests.grammar.program import Program

HEADER = ("verdict", "answers", "mean off by more than 0.1 sd", "largest shift, sd", "of noise")
ROWS = (500, 2_000, 6_000)
LIMIT = 200.0  # seconds that a model may take
SMALL = 0.1  # posterior standard deviations
MOST_DIMENSIONS = 60  # for NUTS
MOST_DIVERGING = 1e-3  # of its draws
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"tolerance": 0.3},
    {"size": 6},
    {"size": 30},
    {"method": "uniform", "size": 60},
    {"method": "control_variates", "size": 10},
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Draws of one way to answer a model: what was said of them, and how far off they are."""

    number: int
    way: str
    level: Level
    found: Difference

    @property
    def is_off(self) -> bool:
        """Whether a mean is further away than noise explains."""
        return self.found.mean > SMALL + self.found.mean_limit


def source_of(seed: int, number: int) -> str:
    """Write a random model with many rows."""
    rng = np.random.default_rng([seed, number])
    program = Program(rng)
    program.n_rows = int(rng.choice(ROWS))
    likelihood(program)
    return program.source()


def truth_of(model: pm.Model, seed: int) -> xr.Dataset | None:
    """Sample all rows by NUTS; None where the chains do not agree."""
    idata = pm.sample(
        2_000, tune=1_500, chains=4, cores=2, target_accept=0.95, nuts_sampler="nutpie",
        random_seed=seed, progressbar=False, model=model,
    )  # fmt: skip
    drawn: xr.Dataset = idata["posterior"].to_dataset()[[v.name for v in model.free_RVs]]
    found = az.summary(drawn, kind="diagnostics", round_to="none")
    agrees = found["r_hat"].max() <= 1.01 and found["ess_bulk"].min() >= 400
    diverging = float(idata["sample_stats"]["diverging"].mean())
    return drawn if agrees and diverging < MOST_DIVERGING else None


def answers(seed: int, number: int) -> tuple[str, list[Answer]]:
    """Return why a model has none, and the answers."""
    with warnings.catch_warnings(action="ignore"):
        try:
            model, options = execute(source_of(seed, number))
            is_large = sum(map(np.size, model.initial_point().values())) > MOST_DIMENSIONS
            if is_large or model.discrete_value_vars:
                return "not for NUTS", []
            truth = truth_of(model, number)
        except Exception as error:  # noqa: BLE001 - the grammar's own mistake, or NUTS'
            return f"no truth: {type(error).__name__}", []
        if truth is None:
            return "chains of NUTS do not agree", []
        return "", list(_answers(model, options, truth, number))


def _answers(
    model: pm.Model, options: dict[str, Any], truth: xr.Dataset, number: int
) -> Iterator[Answer]:
    quiet = {"random_seed": number, "progressbar": False}
    try:
        idata = pmc.sample(model, **options, **quiet)
    except pmc.CoresetError:
        return
    level = Level(idata.attrs["level"])
    yield Answer(number=number, way="sample", level=level, found=distance(truth, idata))
    for way in (WAYS[0], WAYS[1 + number % (len(WAYS) - 1)]):
        try:
            coreset = pmc.build_coreset(model, **options | way, **quiet)
            judged = followed(coreset, truth, number)
        except pmc.CoresetError:
            continue
        label = ", ".join(f"{key} {value}" for key, value in way.items()) or "build_coreset"
        level = judged.check.verdict.level
        yield Answer(number=number, way=label, level=level, found=judged.found)


def table_of(found: Sequence[Answer]) -> str:
    """Return a table with one line for each verdict."""
    lines = []
    for level in [one for one in Level if one in {answer.level for answer in found}]:
        own = [one for one in found if one.level is level]
        worst = max(own, key=lambda one: one.found.mean)
        lines.append([
            str(level),
            str(len(own)),
            str(sum(one.is_off for one in own)),
            f"{worst.found.mean:.3f}",
            f"{worst.found.mean_limit:.3f}",
        ])  # fmt: skip
    return markdown(HEADER, lines)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="number of one model to show and judge")
    options = parser.parse_args()
    console, found = Console(width=200), list[Answer]()
    numbers = range(options.models)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
        console.print(source_of(options.seed, options.only), markup=False)
    for number in numbers:
        try:
            why, own = isolated(answers, LIMIT, options.seed, number)
        except NotDoneError as error:
            why, own = str(error), []
        if why:
            console.print(number, why, sep=" | ")
        for one in own:
            shift = (
                f"{one.found.mean:.3f} of {one.found.mean_of} (noise: {one.found.mean_limit:.3f})"
            )
            is_false = one.level.reliable and one.is_off
            console.print(number, one.way, one.level, shift, "FALSE" if is_false else "", sep=" | ")
        found += own
    console.print(table_of(found))
    save(options.tables, "calibration", table_of(found))
    return any(one.level.reliable and one.is_off for one in found)


if __name__ == "__main__":
    raise SystemExit(main())
