"""Rows in chunks: bounded memory, the same bits however they are cut, and what interrupts them."""

import os
import subprocess
import sys
import threading
import warnings
import weakref
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import (
    CoresetWarning,
    InvalidDataError,
    RiemannianPursuit,
    build_coreset,
    open_rows,
)
from pymc_coresets.rowlogp.of_model import likelihood_of_prototypes
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.streamed import StreamedRows
from tests.refusals import refused
from tests.unit.test_passes import in_chunks

SETTINGS = {"random_seed": 3, "progressbar": False}


def line(columns, n_rows=20):
    """A regression with two coefficients and known noise, of the first rows."""
    with pm.Model() as model:
        x, y = (pm.Data(name, columns[name][:n_rows]) for name in ("x", "y"))
        pm.Normal("likelihood", pm.Normal("a", 0, 10) + pm.Normal("b", 0, 10) * x, observed=y)
    return model


def points(n, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return {"x": x, "y": 1 + 2 * x + rng.normal(size=n)}


# -- memory ----------------------------------------------------------------------------------------

BUILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 * 10**9, 2 * 10**9))
import numpy as np, pymc as pm
from pymc_coresets import build_coreset, open_rows
rows = open_rows(sys.argv[1:], columns={"X": [f"x{j}" for j in range(20)], "y": "y"})
some = rows.head(50)
with pm.Model() as model:
    X, y = pm.Data("X", some["X"]), pm.Data("y", some["y"])
    mean = pm.Normal("a") + pm.Normal("b") * (X @ np.full(20, 0.2))
    pm.Normal("likelihood", mean, observed=y)
draws = {name: np.random.default_rng(1).normal(size=50) for name in "ab"}
coreset = build_coreset(
    model, rows=rows, method="pursuit", weighting=draws, random_seed=1, progressbar=False
)
assert coreset.n_observations == len(rows), coreset
with open("/proc/self/status") as file:
    print(next(line.split()[1] for line in file if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.slow
def test_three_times_as_many_rows_take_no_more_memory(tmp_path):
    """A million rows are 168 MB, a chunk of 131,072 is 22 MB; some of these are held at once."""
    n, rng = 10**6, np.random.default_rng(1)
    X = rng.normal(size=(20, n))
    table = pa.table({f"x{j}": x for j, x in enumerate(X)} | {"y": rng.normal(X[0])})
    paths = [tmp_path / f"{part}.parquet" for part in range(3)]
    options = {"compression": "none", "use_dictionary": False, "row_group_size": 2**17}
    pq.write_table(table, paths[0], **options)
    for path in paths[1:]:
        path.hardlink_to(paths[0])
    settings = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    peaks = []
    for some in (paths[:1], paths):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BUILD, *map(str, some)],
            env=os.environ | settings, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not done.returncode, done.stderr
        peaks.append(int(done.stdout.split()[-1]) / 1000)
    assert peaks[1] < peaks[0] + 100, f"{peaks} MB"


@pytest.mark.parametrize("jump", [[7], [3, 7], [1, 0, 7, 2]])
def test_chunks_of_a_stream_that_were_skipped_are_not_kept_for_long(jump):
    """A stream is read from its start: chunks before a later one may be for other threads."""
    made, alive = [], []

    def chunks():
        for i in range(8):
            x = np.full(BLOCK, float(i))  # smaller chunks would be joined
            made.append(weakref.ref(x))
            alive.append(sum(each() is not None for each in made))
            yield {"x": x}
            del x

    rows = open_rows(chunks)
    for k in jump:
        rows.read(rows.chunks[k])
    for _ in range(2):  # the first one uses what was kept
        alive.clear()
        for i, chunk in enumerate(rows.chunks):
            assert_array_equal(rows.read(chunk)["x"], i)
    assert alive == [1] * 8


# -- chunks ----------------------------------------------------------------------------------------

BLOCK = 2**17
MANY = 2 * BLOCK + 1
FEW = 300
CUTS = {
    "one": [MANY],
    "1 and 7": [1, 7, MANY - 8],
    "as blocks": [BLOCK, BLOCK, 1],
    "one more than blocks": [BLOCK + 1, BLOCK],
    "empty first": [0, 0, MANY],
    "empty in the middle": [BLOCK, 0, 0, BLOCK + 1],
    "empty last": [BLOCK + 1, BLOCK, 0],
}
DRAWS = {name: np.random.default_rng(2).normal(size=100) for name in "ab"}


@pytest.fixture(scope="module")
def many():
    return points(MANY)


@pytest.fixture(scope="module")
def prototypes(many):
    return likelihood_of_prototypes(line(many), open_rows(many).columns)


def assert_same_rows(found, expected):
    assert_array_equal(found.positions, expected.positions)
    assert_array_equal(found.case_weights, expected.case_weights)
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        assert_array_equal(one, other)


def answers(prototypes, source, n):
    """All that a method asks of rows."""
    options = {"n_candidates": 50, "scale": float(n), "key": 4}
    places = np.unique(np.linspace(0, n - 1, 9).astype(int))
    return (
        prototypes.reading(source).sums(DRAWS, **options),
        [source.subsample(40, key=5, distinct=distinct) for distinct in (False, True)],
        source.at(places),
        list(source.blocks(n // 3)),
    )


def assert_same_answers(prototypes, columns, sizes):
    arrays, n = [columns["x"], columns["y"]], sum(sizes)
    names = [row.name for row in prototypes.observations.rows]
    order = {name: columns[name] for name in names}
    streamed = StreamedRows(in_chunks(order, sizes), {name: np.dtype(float) for name in names})
    sums, samples, some, blocks = answers(prototypes, streamed, n)
    memory = InMemoryRows([order[name] for name in names])
    sums_, samples_, some_, blocks_ = answers(prototypes, memory, n)
    assert len(arrays) == len(names)
    assert_array_equal(sums.total, sums_.total)
    assert sums.norm_total == sums_.norm_total
    assert_same_rows(sums.candidates, sums_.candidates)
    for sample, sample_ in zip(samples, samples_, strict=True):
        assert_same_rows(sample.rows, sample_.rows)
        assert_array_equal(sample.weights, sample_.weights)
    assert_same_rows(some, some_)
    for block, block_ in zip(blocks, blocks_, strict=True):
        assert_same_rows(block, block_)


@pytest.mark.parametrize("cut", CUTS)
def test_the_cut_makes_no_difference_to_any_bit(prototypes, many, cut):
    assert_same_answers(prototypes, many, CUTS[cut])


def test_neither_do_as_many_chunks_as_rows(prototypes, many):
    few = {name: column[:FEW] for name, column in many.items()}
    assert_same_answers(prototypes, few, [1] * FEW)


def test_single_precision_is_that_of_the_values_only(many):
    single = {name: column[:5_000].astype(np.float32) for name, column in many.items()}
    double = {name: column.astype(float) for name, column in single.items()}
    totals = []
    for columns in (single, double):
        rows = open_rows(columns)
        loglik = likelihood_of_prototypes(line(rows.head(20)), rows.columns)
        types = {row.name: row.values.dtype for row in loglik.observations.rows}
        totals.append(loglik.reading(StreamedRows(rows, types)).sums(DRAWS).total)
    assert_allclose(*totals, rtol=1e-12)


# -- a very large total weight ---------------------------------------------------------------------


def posterior(columns, weights):
    """Mean and precision of the coefficients, in closed form."""
    X = np.column_stack([np.ones(len(weights)), columns["x"]])
    precision = np.eye(2) / 100 + X.T @ (weights[:, None] * X)
    return np.linalg.solve(precision, X.T @ (weights * columns["y"])), precision


@pytest.mark.slow
def test_ten_thousand_million_rows_by_case_weights():
    columns, n = points(5_000), 5_000
    weights = np.random.default_rng(6).gamma(4.0, 0.25, size=n)
    weights *= 1e10 / weights.sum()
    rows = open_rows(columns | {"n": weights}, weight="n")
    found = build_coreset(line(columns), rows=rows, **SETTINGS)
    assert found.n_observations == 10**10
    kept = {name: found.rows[f"data {name}"].values for name in ("x", "y")}
    (mean, precision), (other, own) = posterior(columns, weights), posterior(kept, found.weights)
    shift = mean - other
    ratio = np.linalg.solve(own, precision)
    kl = np.trace(ratio) + np.trace(np.linalg.inv(ratio)) - 4 + shift @ (precision + own) @ shift
    assert kl / 2 < 0.01


# -- interruptions and changes ---------------------------------------------------------------------


def reading(columns, change):
    """Rows whose arrays pass through a function, which is told how many times they were read."""
    rows = open_rows(columns)
    weighted, reads = rows.weighted, count(1)

    def changed(chunk, names):
        arrays, weights = weighted(chunk, names)
        return change(arrays, next(reads)), weights

    rows.weighted = changed
    return rows


def build_interrupted_at(number):
    """Build a coreset from rows of which one reading is interrupted by Ctrl-C; count the others."""
    readings = []

    def change(arrays, n):
        readings.append(n)
        if n == number:
            raise KeyboardInterrupt
        return arrays

    columns = points(500)
    with pm.Model() as model:  # whose posterior is not normal, so that no coreset is ever exact
        x, y = (pm.Data(name, column[:20]) for name, column in columns.items())
        pm.Bernoulli("positive", logit_p=pm.Normal("a") + pm.Normal("b") * x, observed=y > 0)
    method = RiemannianPursuit(max_rounds=2, tolerance=1e-15)
    with warnings.catch_warnings(action="ignore", category=CoresetWarning):
        rows = reading(columns, change)
        return build_coreset(model, rows=rows, method=method, **SETTINGS), readings[-1]


def test_ctrl_c_while_rows_are_read():
    n_threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        build_interrupted_at(4)  # before there is anything to choose from
    _, n_readings = build_interrupted_at(None)
    found, _ = build_interrupted_at(n_readings)
    assert "nterrupted" in found.status
    assert found.size > 0
    assert threading.active_count() == n_threads


@pytest.mark.parametrize("number", [2, 5])
def test_a_later_reading_that_differs_is_found(number):
    columns = points(4_000)

    def change(arrays, n):
        return {name: a + 1e-6 * (name == "y" and n >= number) for name, a in arrays.items()}

    with refused(InvalidDataError, "'y'", "first reading", topic="rows-and-files"):
        build_coreset(line(columns), rows=reading(columns, change), **SETTINGS)
