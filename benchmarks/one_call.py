"""``pmc.sample`` beside the best other way of each model: ``benchmarks.one_call [--models users]``.

The models are those of `benchmarks.opponents`, and the best other way is that of its summary.  Both
run in processes of their own, in turn, with an empty and then a filled folder of compiled
functions.  Draws are effective ones of ``pmc.sample`` in a second of the processor, compilation
included, without imports and data; ratios are to those of the other way.  It is right if its means
and standard deviations are those of the other way, as far as noise allows.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.isolation import caches_in
from benchmarks.opponent_judge import Reference, judge
from benchmarks.opponent_names import MODELS
from benchmarks.opponent_summary import lines_of
from benchmarks.opponent_ways import OURS
from benchmarks.opponents import Record
from benchmarks.tables import markdown, parser_of, save

__all__ = ["HEADER", "line_of"]

HEADER = ("model", "best other way", "draws per s", "ratio", "ratio, empty cache", "was it right?")
RATIOS = ("cache", "models", "least", "median", "largest", "below 0.9")
ONE_CALL = f"{OURS}one call"
SUMMARY = Path(__file__).parents[1] / "docs/tables/opponents-summary.md"

RUN = """
import pickle, sys, warnings
warnings.simplefilter("ignore")
from benchmarks.opponent_models import models
from benchmarks.opponent_task import Settings
from benchmarks.opponent_ways import way_called
from benchmarks.opponents import measure
import pymc_coresets
_, name, way, seconds, path = sys.argv
found = measure(name, way, way_called(way), models()[name], Settings(seconds=float(seconds)))
with open(path, "wb") as file:
    pickle.dump(found, file)
"""


def measured(model: str, way: str, cache: Path, seconds: float) -> Record:
    """Take a way in a process of its own."""
    environment = os.environ | caches_in(cache) | {"OMP_NUM_THREADS": "1"}
    path = cache / "record"
    command = [sys.executable, "-c", RUN, model, way, str(seconds), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return Record(way=way, failure=done.stderr.strip().splitlines()[-1][:80])
    found: Record = pickle.loads(path.read_bytes())
    return found


def per_second(record: Record) -> float:
    """Return effective draws in a second of the processor."""
    if record.answer is None:
        return np.nan
    return record.answer.effective / record.processor


def line_of(name: str, other: Sequence[Record], ours: Sequence[Record]) -> list[str]:
    """Return the line of a model, from two runs of each."""
    speeds = [[per_second(record) for record in records] for records in (other, ours)]
    ratios = np.divide(speeds[1], speeds[0])
    right = next((record.failure for record in (*other, *ours) if record.failure), "")
    if not right:
        reference = Reference(way=other[1].way, answer=other[1].answer)
        right = judge(ours[1].answer, reference).told(warned=ours[1].answer.warned, finished=True)
    shown = [f"{speeds[1][1]:.3g}", *(f"{ratio:.2g}" for ratio in ratios[::-1])]
    return [name, other[1].way, *shown, right]


def lines(wanted: Sequence[str], seconds: float) -> Iterator[list[str]]:
    """Return the lines of the table, as they end."""
    best = {line["model"]: line["best other way"] for line in lines_of(SUMMARY.read_text())}
    for key, name in MODELS.items():
        if wanted and key not in wanted:
            continue
        runs: dict[str, list[Record]] = {best[name]: [], ONE_CALL: []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in ("empty", "filled"):
                for number, (way, records) in enumerate(runs.items()):
                    cache = Path(folder, str(number))
                    cache.mkdir(exist_ok=True)
                    records.append(measured(key.replace("-", "_"), way, cache, seconds))
        line = line_of(name, *runs.values())
        print(" | ".join(line), flush=True)
        yield line


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="*", default=[], help="all by default")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each way (%(default)s)")
    options = parser.parse_args()
    found = list(lines(options.models, options.seconds))
    ratios = np.array([[float(cell) for cell in line[3:5]] for line in found])
    figures = [
        [
            *(cache, str(len(ratios))),
            *(f"{f(column):.2g}" for f in (np.min, np.median, np.max)),
            f"{(column < 0.9).sum()}",
        ]
        for cache, column in zip(("filled", "empty"), ratios.T, strict=True)
    ]
    ratio_table = markdown(RATIOS, figures)
    print(ratio_table)
    save(options.tables, "one-call", markdown(HEADER, found))
    save(options.tables, "one-call-ratios", ratio_table)


if __name__ == "__main__":
    main()
