"""Which flights stand for all others? The coreset of `flights.py`, read: a table and two figures.

The flights, the model and the coreset are those of `flights.py`. One column is added that the model
does not use, the hour of departure, so that the summary and the figures show it.

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
from gallery.row_plots import plot_levels, plot_pairs
from rich.console import Console

from pymc_coresets import build_coreset


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
    console.out(repr(coreset), highlight=False)
    console.out(summary.to_string(float_format="{:,.2f}".format), highlight=False)

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
