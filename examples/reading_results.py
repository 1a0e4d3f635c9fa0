"""Which flights stand for all others? The coreset of `flights.py`, read: a table and two figures.

The flights, the model and the coreset are those of `flights.py`. One column is added that the model
does not use, the hour of departure, so that the summary and the figures show it. `plot_pairs` and
`plot_levels` take any table: copy them for your own data.

    python examples/reading_results.py                           # prints, and saves the figures
    python examples/reading_results.py --figures docs/figures    # there

Needs the extra `examples`: pip install "pymc-coresets[examples]".
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
from flights import build_model, load_flights
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich.console import Console

from pymc_coresets import build_coreset

GREY, BLUE, ORANGE = "#8a8f98", "#0b6e99", "#d1602f"
LARGEST = 130.0  # area of the largest weight's circle, in square points


def plot_pairs(
    data: pd.DataFrame, indices: NDArray[np.int64], weights: NDArray[np.float64]
) -> Figure:
    """Plot the chosen rows over the density of all rows, for all pairs of the columns of a table.

    Circles are chosen rows, with areas in proportion to their weights; hexagons count all rows, on
    a logarithmic scale.  On the diagonal are the distributions of all rows (grey), of the chosen
    ones (blue, dashed), and of the chosen ones with their weights (orange).
    """
    k = data.shape[1]
    size = max(3.2, 2.2 * k + 0.4)
    figure, axes = plt.subplots(
        k, k, figsize=(size + 1, size), squeeze=False, sharex="col", layout="constrained"
    )
    for i, row in enumerate(data):
        for j, column in enumerate(data):
            ax = axes[i, j]
            if i < j:
                ax.remove()
            elif i == j:
                _marginal(ax, data[column].to_numpy(), indices, weights)
            else:
                _pair(ax, data[[column, row]].to_numpy(), indices, weights)
            ax.set_xlabel(column if i == k - 1 else "")
            ax.set_ylabel(row if j == 0 < i else "")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def plot_levels(
    levels: pd.Series, indices: NDArray[np.int64], weights: NDArray[np.float64]
) -> Figure:
    """Plot how many rows each level has, what its chosen rows weigh, and how many they are.

    A level whose weight is far from its size is not badly represented: weights match the
    log-likelihood near the posterior, not the numbers of rows.  One without chosen rows relies on
    its prior, and on what it shares with others.
    """
    levels = levels.astype(object)
    chosen = levels.iloc[indices]
    table = pd.DataFrame(
        {
            "rows": levels.value_counts(),
            "weight": pd.Series(weights, index=chosen.index).groupby(chosen).sum(),
            "chosen": chosen.value_counts(),
        }
    )
    table = table.fillna(0.0).sort_values("rows")
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.4, 1.5 + 0.24 * len(table)), sharey=True, layout="constrained"
    )
    places = np.arange(len(table))
    left.barh(places, table["rows"], color=GREY, alpha=0.45, label="rows")
    left.plot(table["weight"], places, "o", color=ORANGE, label="weight")
    left.set_yticks(places, [str(level) for level in table.index])
    left.set_xlabel("rows in the data, and weight of the chosen ones")
    left.xaxis.set_major_locator(MaxNLocator(4))
    left.xaxis.set_major_formatter("{x:,.0f}")
    left.legend(frameon=False, loc="lower right")
    right.barh(places, table["chosen"], color=BLUE, alpha=0.75)
    right.set_xlabel("rows chosen")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    covered = int((table["chosen"] > 0).sum())
    figure.suptitle(f"{levels.name}: {covered} of {len(table)} levels have chosen rows")
    return figure


def _marginal(
    ax: Axes,
    every: NDArray[np.float64],
    indices: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> None:
    edges = np.histogram_bin_edges(every, 30).tolist()
    ax.hist(every, edges, density=True, color=GREY, alpha=0.45, label="all rows")
    for label, masses, colour, style in (
        ("chosen rows", None, BLUE, "--"),
        ("chosen rows, weighted", weights, ORANGE, "-"),
    ):
        ax.hist(
            every[indices], edges, weights=masses, density=True, histtype="step", color=colour,
            ls=style, lw=1.4, label=label,
        )  # fmt: skip
    ax.set_yticks([])
    ax.spines[["top", "right", "left"]].set_visible(False)


def _pair(
    ax: Axes,
    every: NDArray[np.float64],
    indices: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> None:
    ax.hexbin(*every.T, gridsize=40, bins="log", cmap="Greys", mincnt=1, linewidths=0.1, alpha=0.8)
    order = indices[np.argsort(-weights)]  # small ones on top
    areas = np.maximum(LARGEST * np.sort(weights)[::-1] / weights.max(), 2.0)
    ax.scatter(*every[order].T, s=areas, color=ORANGE, alpha=0.75, edgecolor="white", lw=0.5)
    ax.spines[["top", "right"]].set_visible(False)


# The program


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=2013, help="random seed (%(default)s)")
    parser.add_argument(
        "--figures",
        type=Path,
        default=Path(__file__).parent / "figures",
        help="folder for the figures (examples/figures)",
    )
    return parser.parse_args()


def main() -> None:
    options, console = parse_arguments(), Console()
    flights = load_flights()
    with build_model(flights) as model:
        pm.Data("hour", flights["time"].to_numpy(), dims="flight")
    # Rows alone, without a quadratic: they are what is shown.
    coreset = build_coreset(model, size=1_000, random_seed=options.seed)
    summary = coreset.summary(["hour", "log_distance", "carrier_index", "is_late"])
    console.out(coreset.report(), highlight=False)
    console.out(summary, highlight=False)

    options.figures.mkdir(parents=True, exist_ok=True)
    chosen = coreset.indices, coreset.weights
    columns = {"hour": flights["time"], "log_distance": np.log(flights["distance"] / 1000)}
    pairs = plot_pairs(pd.DataFrame(columns), *chosen)
    pairs.savefig(options.figures / "reading_pairs.png", dpi=110)
    groups = plot_levels(flights["carrier"], *chosen)
    groups.savefig(options.figures / "reading_groups.png", dpi=110)
    console.print(f"Figures: {options.figures}")


if __name__ == "__main__":
    main()
