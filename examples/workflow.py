"""What the examples share: build a coreset, sample and check it, and report the results.

Not an example itself: each example defines its data and its models, and calls `run`.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import arviz as az
import pymc as pm
import xarray as xr
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pymc_coresets import Coreset, build_coreset, compare
from pymc_coresets.diagnostics.judging import Check

CHAINS = 2
BUILD, SAMPLE, CHECK, FULL = (
    "coreset: build",
    "coreset: sample",
    "coreset: check",
    "all rows: sample",
)


@dataclass
class Stopwatch:
    """Seconds of each named part, in the order of the run."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - started

    def total(self, *parts: str) -> float:
        return sum(self.seconds[part] for part in parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A model's coreset, draws of its posterior, and their check."""

    coreset: Coreset
    idata: xr.DataTree
    check: Check


def fit_coreset(
    model: pm.Model, watch: Stopwatch, *, size: int | None, draws: int, seed: int
) -> Fit:
    """Build the coreset of a model, sample its posterior, check the draws against all rows."""
    with watch(BUILD), model:
        coreset = build_coreset(size=size, random_seed=seed)
    with watch(SAMPLE):
        idata = coreset.sample(draws=draws, chains=CHAINS, random_seed=seed)
    with watch(CHECK):
        check = coreset.check(idata)
    return Fit(coreset=coreset, idata=idata, check=check)


def fit_full(model: pm.Model, watch: Stopwatch, *, draws: int, seed: int) -> xr.DataTree:
    """Sample the posterior of all rows with the same settings."""
    with watch(FULL):
        idata: xr.DataTree = pm.sample(model=model, draws=draws, chains=CHAINS, random_seed=seed)
    return idata


# What is printed


def timing_table(watch: Stopwatch) -> Table:
    table = Table("part", title="Time", title_justify="left")
    table.add_column("seconds", justify="right")
    for part, seconds in watch.seconds.items():
        table.add_row(part, f"{seconds:.1f}")
    return table


def coefficient_table(idata: xr.DataTree, names: Sequence[str]) -> Table:
    """Return mean, sd and 95 % interval of every element of the named variables."""
    table = Table("coefficient", title="Posterior, by coreset", title_justify="left")
    for heading in ("mean", "sd", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    found = az.summary(
        idata, var_names=list(names), kind="stats", ci_kind="eti", ci_prob=0.95, round_to="none"
    )
    for label, (mean, sd, low, high) in zip(found.index, found.to_numpy(), strict=True):
        table.add_row(escape(str(label)), f"{mean:.3f}", f"{sd:.3f}", f"{low:.3f} … {high:.3f}")
    return table


# The program


def parser_of(about: str, *, seed: int = 2013, draws: int = 1000) -> argparse.ArgumentParser:
    """Return a parser of what all examples accept; `about` is the script's docstring."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--seed", type=int, default=seed, help="random seed (%(default)s)")
    parser.add_argument("--draws", type=int, default=draws, help="draws per chain (%(default)s)")
    return parser


def accept_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, help="largest number of rows in the coreset")


def accept_full(parser: argparse.ArgumentParser, rows: str) -> None:
    parser.add_argument("--full", action="store_true", help=f"also sample the model of all {rows}")


def accept_figure(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--figure",
        type=Path,
        default=Path(__file__).parent / "figures" / name,
        help=f"where to save the figure (examples/figures/{name})",
    )


def run(models: Mapping[str, Callable[[], pm.Model]], names: Sequence[str], *, about: str) -> None:
    """Fit each model by coreset, and with ``--full`` by all of its rows; print the results.

    Parameters
    ----------
    models : mapping of str to callable
        Makes a model with its data.
    names : sequence of str
        Variables to print; those that a model lacks are left out.
    about : str
        The script's docstring; its first line heads the command's help.
    """
    parser = parser_of(about)
    accept_size(parser)
    accept_full(parser, "rows")
    options = parser.parse_args()
    console = Console()
    for name, make_model in models.items():
        watch = Stopwatch()
        console.rule(f"[bold]{name}")
        model = make_model()
        fit = fit_coreset(model, watch, size=options.size, draws=options.draws, seed=options.seed)
        shown = [variable for variable in names if variable in model.named_vars]
        table = coefficient_table(fit.idata, shown)
        console.print(fit.coreset, table, fit.check, sep="\n\n")
        if options.full:
            full = fit_full(model, watch, draws=options.draws, seed=options.seed)
            # `out` does not wrap lines, so that the table stays aligned.
            console.out(repr(compare(full=full, approximation=fit.idata)), highlight=False)
        console.print(timing_table(watch))
        if options.full:
            ratio = watch.seconds[FULL] / watch.total(BUILD, SAMPLE)
            console.print(f"All rows took {ratio:.1f} times as long as building and sampling")
