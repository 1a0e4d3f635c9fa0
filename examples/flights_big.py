"""Ten million flights in files, in two gigabytes of memory: a coreset of rows that are not loaded.

Thirty times as many flights as in `flights.py` are written to Parquet files: each has departure,
distance, carrier, airport and month of a real flight, and is late with the probability that the
posterior of the real ones says. The model then holds a thousand of them, and `open_rows` says
where all of them are. They are read in chunks, under a limit of the memory that the process may
use. Since the parameters behind the flights are known, the posterior is compared with them.

    python examples/flights_big.py                   # 10 million flights, 5 to 10 minutes
    python examples/flights_big.py --rows 300000     # a short try

Needs Linux or macOS, and the extras `examples` and `parquet`:
pip install "pymc-coresets[examples,parquet]".
"""

import argparse
import os
import resource
import sys
import tempfile
from pathlib import Path

# Read when Arrow is imported: its default allocator maps a gigabyte in advance.
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"

import arviz as az
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
import xarray as xr
from flights import MONTHS, load_flights, spline_basis
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from workflow import Stopwatch, parser_of, timing_table

from pymc_coresets import Coreset, RowSource, build_coreset, open_rows

GROUP = 2**17  # rows of a row group: one chunk each
FILE = 8 * GROUP
N_PROTOTYPES = 1_000  # flights that the model holds
MINUTES = 24 * 60
GB = 1e9

#: Posterior means of `flights.py`: effects on the log-odds of a late arrival.
INTERCEPT, DISTANCE_SLOPE = -1.421, 0.070
HOURS = [-1.381, -0.249, -0.476, 0.981, 0.717, 0.407]
ORIGINS = {"Kennedy": -0.071, "LaGuardia": 0.029, "Newark": 0.042}
BY_MONTH = [
    -0.030, -0.013, -0.032, 0.261, -0.077, 0.423, 0.451, 0.043, -0.712, -0.427, -0.389, 0.503,
]  # fmt: skip
CARRIERS = {
    "AirTran Airways": 0.507, "Alaska Airlines": -0.700, "American Airlines": -0.260,
    "Delta Air Lines": -0.356, "Endeavor Air": 0.055, "Envoy Air": 0.216,
    "ExpressJet Airlines": 0.469, "Frontier Airlines": 0.483, "Hawaiian Airlines": -0.300,
    "JetBlue Airways": 0.192, "Mesa Airlines": 0.168, "SkyWest Airlines": 0.024,
    "Southwest Airlines": 0.137, "US Airways": -0.185, "United Air Lines": -0.128,
    "Virgin America": -0.321,
}  # fmt: skip
LABELS = {"carrier": list(CARRIERS), "origin": list(ORIGINS), "month": MONTHS}


def truth() -> dict[str, np.ndarray]:
    """Return the parameters that the flights are drawn with; effects sum to zero."""
    effects = {
        "hour_effect": HOURS,
        "carrier_effect": list(CARRIERS.values()),
        "origin_effect": list(ORIGINS.values()),
        "month_effect": BY_MONTH,
    }
    alone = {"intercept": np.array(INTERCEPT), "distance_slope": np.array(DISTANCE_SLOPE)}
    return alone | {name: np.array(values) - np.mean(values) for name, values in effects.items()}


def basis_by_minute() -> np.ndarray:
    """Return the splines of the departure time at each minute of the day, (1440, 6)."""
    return spline_basis(np.clip(np.arange(MINUTES) / 60, 5.0, 24.0))


# The files


def chances_of(flights: pd.DataFrame) -> np.ndarray:
    """Return the probability that each of the real flights is late."""
    known = truth()
    log_odds = known["intercept"] + known["distance_slope"] * np.log(flights["distance"] / 1000)
    log_odds = log_odds + spline_basis(flights["time"].to_numpy()) @ known["hour_effect"]
    for name, labels in LABELS.items():
        codes = pd.Categorical(flights[name], categories=labels).codes
        log_odds = log_odds + known[f"{name}_effect"][codes]
    return 1 / (1 + np.exp(-log_odds.to_numpy()))


def write_flights(folder: Path, n_rows: int, *, seed: int) -> None:
    """Write flights to Parquet files, a row group at a time."""
    flights = load_flights()
    chances = chances_of(flights)
    columns = {
        "minute": pa.array(np.round(60 * flights["time"]).astype(np.int16)),
        "distance": pa.array(flights["distance"].astype(np.float32)),
    } | {name: pa.array(pd.Categorical(flights[name], categories=labels))
         for name, labels in LABELS.items()}  # fmt: skip
    real = pa.table(columns)
    schema = real.schema.append(pa.field("late", pa.int8()))
    rng = np.random.default_rng(seed)
    for number, first in enumerate(range(0, n_rows, FILE)):
        path = folder / f"part-{number:04}.parquet"
        with pq.ParquetWriter(path, schema, compression="zstd") as file:
            for start in range(first, min(first + FILE, n_rows), GROUP):
                which = rng.integers(len(chances), size=min(GROUP, n_rows - start))
                late = (rng.random(len(which)) < chances[which]).astype(np.int8)
                file.write_table(real.take(pa.array(which)).append_column("late", pa.array(late)))


def open_flights(folder: Path) -> RowSource:
    """Say where the flights are, and which columns the model needs."""
    return open_rows(
        folder,
        columns={
            "minute": "minute", "distance": "distance", "is_late": "late",
            "carrier_index": "carrier", "origin_index": "origin", "month_index": "month",
        },
        labels={f"{name}_index": labels for name, labels in LABELS.items()},
    )  # fmt: skip


# The model


def build_model(rows: RowSource) -> pm.Model:
    """Return the model of `flights.py`, which holds prototypes: the first flights only.

    Each array along the flights is a data container of the column's name.
    """
    some = rows.head(N_PROTOTYPES)
    coords = {"spline": np.arange(len(HOURS))} | LABELS
    with pm.Model(coords=coords) as model:
        data = {name: pm.Data(name, values, dims="flight") for name, values in some.items()}
        intercept = pm.Normal("intercept", -1, 1)
        distance_slope = pm.Normal("distance_slope", 0, 0.5)
        hour_effect = pm.ZeroSumNormal("hour_effect", 1, dims="spline")
        log_odds = (
            intercept
            + distance_slope * pm.math.log(data["distance"] / 1000)
            + (basis_by_minute() @ hour_effect)[data["minute"]]
        )
        for name in LABELS:
            sd = pm.Gamma(f"{name}_sd", 2, 5)
            effect = pm.ZeroSumNormal(f"{name}_effect", sd, dims=name)
            log_odds = log_odds + effect[data[f"{name}_index"]]
        pm.Bernoulli("late", logit_p=log_odds, observed=data["is_late"], dims="flight")
    return model


# The report


def comparison_table(idata: xr.DataTree) -> tuple[Table, np.ndarray]:
    """Return the posterior beside the truth, and the differences in standard deviations."""
    table = Table("coefficient", title="Log-odds of a late arrival", title_justify="left")
    for heading in ["truth", "posterior", "difference / sd"]:
        table.add_column(heading, justify="right", no_wrap=True)
    known = truth()
    found = az.summary(idata, var_names=list(known), kind="stats", round_to="none")
    values = np.concatenate([values.ravel() for values in known.values()])
    shifts = (found["mean"].to_numpy() - values) / found["sd"].to_numpy()
    for i, label in enumerate(found.index):
        row = found.iloc[i]
        table.add_row(
            escape(str(label)),
            f"{values[i]:.4f}",
            f"{row['mean']:.4f} ± {row['sd']:.4f}",
            f"{shifts[i]:+.2f}",
        )
    return table, shifts


def sentence_on_shifts(shifts: np.ndarray) -> str:
    """Say how far the truth is from the posterior: a posterior sd on average."""
    typical, largest = np.sqrt(np.mean(np.square(shifts))), np.abs(shifts).max()
    return (
        f"The truth is {typical:.2f} posterior standard deviations from the mean (root mean square "
        f"of {len(shifts)}; 1 is expected), {largest:.2f} at most"
    )


# The memory


def limit_memory(gigabytes: float) -> None:
    """Let this process and its children map no more than so many bytes, used or not."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * GB), hard))


def peak_memory() -> float:
    """Return the peak resident memory of this process, or of one that sampled, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    used = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in used) * unit / GB


# The program


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=10**7, help="number of flights (%(default)s)")
    parser.add_argument("--folder", type=Path, help="for the files; a temporary one by default")
    parser.add_argument("--memory", type=float, default=2.0, help="limit in GB (%(default)s)")
    parser.add_argument("--tune", type=int, help="tuning steps per chain")
    return parser.parse_args()


def run(options: argparse.Namespace, folder: Path) -> None:
    console, watch = Console(), Stopwatch()
    with watch("write the files"):
        write_flights(folder, options.rows, seed=options.seed)
    rows = open_flights(folder)
    console.print(rows, highlight=False, markup=False)
    with watch("build the coreset"), build_model(rows):
        coreset = build_coreset(rows=rows, random_seed=options.seed)
    with watch("sample its posterior"):
        tuned = {} if options.tune is None else {"tune": options.tune}
        idata = coreset.sample(draws=options.draws, random_seed=options.seed, **tuned)
    with watch("check it against all flights"):
        check = coreset.check(idata)
    table, shifts = comparison_table(idata)
    console.print(coreset_sentence(coreset), timing_table(watch), check, table)
    console.print(sentence_on_shifts(shifts))
    console.print(
        f"Peak memory: {peak_memory():.2f} GB. What a process may map, used or not, was limited to "
        f"{options.memory:g} GB"
    )


def coreset_sentence(coreset: Coreset) -> str:
    """Say what stands for what."""
    return (
        f"{coreset.size:,} flights stand for {coreset.n_observations:,}, with weights summing to "
        f"{coreset.weights.sum():,.0f}"
    )


def main() -> None:
    options = parse_arguments()
    limit_memory(options.memory)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        run(options, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder))


if __name__ == "__main__":
    main()
