"""Visits to the doctor: the same posterior by PASS-GLM, by a coreset, and by all rows.

The Poisson regression of `randhie.py`: 20,190 person-years of the RAND Health Insurance Experiment.
PASS-GLM replaces the log-likelihood of all rows by a polynomial in the coefficients, in one pass
over the data; a coreset replaces the rows by a few weighted ones. Both are checked without the
posterior of all rows, which is sampled afterwards for comparison.

An exponential is far from quadratic: for Poisson regressions the usual degree 2 is too low, as its
check says, and degree 8 is used.

    python examples/pass_glm.py                                       # the posteriors, compared
    python examples/pass_glm.py --figure docs/figures/pass_glm.png    # with the figure there

Needs the extra `examples`: pip install "pymc-coresets[examples]".
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.polynomial import Chebyshev
from randhie import load_visits, make_model
from rich.console import Console
from rich.table import Table
from workflow import (
    CHAINS,
    Stopwatch,
    accept_figure,
    accept_size,
    fit_coreset,
    fit_full,
    parser_of,
    timing_table,
)

from pymc_coresets import PolynomialSummary, build_pass_glm

QUADRATIC, QUADRATIC_RADIUS = 2, 4.0
DEGREE, RADIUS = 8, 3.0
NAMES = ["intercept", "slopes"]
SUMMARISE, DRAW, JUDGE = "PASS-GLM: build", "PASS-GLM: sample", "PASS-GLM: check"
BLUE, ORANGE, GREEN, INK, GREY = "#2b6ca3", "#d9632b", "#3d8b57", "#2f3640", "#9aa3ad"
PASS, CORESET, ALL = "PASS-GLM", "coreset", "all rows"
COLOURS = {PASS: GREEN, CORESET: BLUE, ALL: ORANGE}


@dataclass(frozen=True, kw_only=True, eq=False)
class Approximation:
    """A summary, draws of its posterior, and their check."""

    summary: PolynomialSummary
    idata: xr.DataTree
    check: object


def fit_polynomial(model: pm.Model, watch: Stopwatch, *, draws: int, seed: int) -> Approximation:
    """Summarise the rows, sample the summary's posterior, check the draws against all rows."""
    with watch(SUMMARISE), model:
        summary = build_pass_glm(degree=DEGREE, radius=RADIUS, random_seed=seed)
    with watch(DRAW):
        idata = summary.sample(draws=draws, chains=CHAINS, random_seed=seed)
    with watch(JUDGE):
        check = summary.check(idata)
    return Approximation(summary=summary, idata=idata, check=check)


# What the posteriors say


def summarised(idata: xr.DataTree) -> pd.DataFrame:
    """Return mean, sd and 95 % interval of every coefficient."""
    found = az.summary(
        idata, var_names=NAMES, kind="stats", ci_kind="eti", ci_prob=0.95, round_to="none"
    )
    found.columns = ["mean", "sd", "low", "high"]
    found.index = [str(label).removeprefix("slopes[").rstrip("]") for label in found.index]
    return found.astype(float)


def quadratic_means(summary: PolynomialSummary) -> np.ndarray:
    """Return the means of the coefficients by degree 2, in the order of `NAMES`."""
    means = summary.closed_form()["mean"]
    intercept = means.coefficient == "intercept"
    ordered: np.ndarray = np.r_[means[intercept], means[~intercept]]
    return ordered


def comparison(found: dict[str, pd.DataFrame], quadratic: np.ndarray) -> Table:
    """Return mean ± sd by all rows, and the differences of the others in sds."""
    full = found[ALL]
    title = f"Log rate of visits: {ALL}, and differences of {PASS} by degree and of the {CORESET}"
    table = Table("", title=title, title_justify="left")
    for heading in (ALL, f"degree {QUADRATIC}", f"degree {DEGREE}", CORESET):
        table.add_column(heading, justify="right", no_wrap=True)
    for i, label in enumerate(full.index):
        mean, sd = full["mean"].iloc[i], full["sd"].iloc[i]
        others = [quadratic[i], found[PASS]["mean"].iloc[i], found[CORESET]["mean"].iloc[i]]
        shifts = [f"{(other - mean) / sd:+.2f} sd" for other in others]
        table.add_row(label, f"{mean:.3f} ± {sd:.3f}", *shifts)
    return table


# The figure


def style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold", pad=10)
    axes.spines[["top", "right"]].set_visible(False)


def draw_slopes(axes: Axes, found: dict[str, pd.DataFrame], quadratic: np.ndarray) -> None:
    """Draw the slopes, without the intercept, which is far from them."""
    rows = np.arange(len(quadratic) - 1)[::-1]
    axes.axvline(0, color=GREY, lw=0.8)
    for shift, (name, colour) in zip((0.22, 0.0, -0.22), COLOURS.items(), strict=True):
        own = found[name].iloc[1:]
        label = f"{name}, degree {DEGREE}" if name == PASS else name
        axes.hlines(rows + shift, own["low"], own["high"], color=colour, lw=2.2)
        axes.scatter(own["mean"], rows + shift, color=colour, s=16, zorder=3, label=label)
    label = f"{PASS}, degree {QUADRATIC}"
    axes.scatter(quadratic[1:], rows + 0.22, marker="x", color=GREY, s=22, label=label)
    axes.set_yticks(rows, list(found[ALL].index[1:]))
    axes.set_xlabel("effect on the log rate: mean and 95 % interval")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    style(axes, "Three posteriors of the same model")


def draw_rate(axes: Axes, predictors: np.ndarray) -> None:
    """Draw the rate, its polynomials, and the distribution of the rows."""
    eta = np.linspace(-RADIUS, RADIUS, 200)
    rows = axes.twinx()
    rows.hist(predictors, bins=60, color=GREY, alpha=0.35)
    rows.set(yticks=[])
    rows.spines[["top", "right"]].set_visible(False)
    axes.plot(eta, np.exp(eta), color=INK, lw=3, alpha=0.35, label="exp(η)")
    for degree, radius, colour in ((QUADRATIC, QUADRATIC_RADIUS, GREY), (DEGREE, RADIUS, GREEN)):
        polynomial = Chebyshev.interpolate(np.exp, 64, domain=[-radius, radius]).truncate(
            degree + 1
        )
        axes.plot(eta, polynomial(eta), color=colour, lw=1.5, label=f"degree {degree}")
    axes.set(xlabel="linear predictor η (shaded: the rows)", ylabel="rate", ylim=(-6, 20))
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    style(axes, "What PASS-GLM replaces the rate by")


def draw_figure(
    path: Path, found: dict[str, pd.DataFrame], quadratic: np.ndarray, predictors: np.ndarray
) -> None:
    """Save the slopes and the polynomials as one figure."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    draw_slopes(left, found, quadratic)
    draw_rate(right, predictors)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


# The program


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    accept_size(parser)
    accept_figure(parser, "pass_glm.png")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    console, watch = Console(), Stopwatch()
    sampling = {"draws": options.draws, "seed": options.seed}
    model = make_model(overdispersed=False)

    with watch("PASS-GLM of degree 2: build, closed form, check"), model:
        first = build_pass_glm(degree=QUADRATIC, radius=QUADRATIC_RADIUS, random_seed=options.seed)
        quadratic, doubt = quadratic_means(first), first.check(random_seed=options.seed)
    polynomial = fit_polynomial(model, watch, **sampling)
    coreset = fit_coreset(model, watch, size=options.size, **sampling)
    full = fit_full(model, watch, **sampling)

    trees = {PASS: polynomial.idata, CORESET: coreset.idata, ALL: full}
    found = {name: summarised(idata) for name, idata in trees.items()}
    _, covariates = load_visits()
    means = found[ALL]["mean"].to_numpy()
    predictors = means[0] + covariates.to_numpy() @ means[1:]
    draw_figure(options.figure, found, quadratic, predictors)

    console.rule("[bold]Visits to the doctor: a Poisson regression in three ways")
    console.print(repr(first), repr(doubt), repr(polynomial.summary), repr(polynomial.check))
    console.print(repr(coreset.coreset), repr(coreset.check), comparison(found, quadratic))
    console.print(timing_table(watch), f"Figure: {options.figure}")


if __name__ == "__main__":
    main()
