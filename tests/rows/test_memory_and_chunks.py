"""Rows in chunks: bounded memory, the same bits however they are cut, and what interrupts them."""

import os
import subprocess
import sys
import threading
import tracemalloc
import warnings
import weakref
from itertools import count, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from pymc.distributions.transforms import ordered
from scipy.special import expit

from pymc_coresets import (
    ControlVariates,
    Coreset,
    CoresetWarning,
    InvalidDataError,
    RiemannianPursuit,
    UnsupportedModelError,
    build_coreset,
    open_rows,
)
from pymc_coresets.glm.control_variates.averaged import average
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import coefficient_draws
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_prototypes, likelihood_of_rows
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.sources.readers import Piece, chunks_of
from pymc_coresets.rows.streamed import StreamedRows
from tests.derived import likelihood_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused
from tests.unit.test_passes import in_chunks

# -- Rows in chunks: bounded memory, the same bits however they are cut, and what interrupts them. -

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


# -- how pieces are cut into chunks ----------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 40), max_size=12), most=st.integers(1, 20))
def test_chunks_hold_every_row_once(sizes, most):
    pieces = [Piece(f"p{i}", size) for i, size in enumerate(sizes)]
    for divide in (True, False):
        chunks = chunks_of(pieces, most=most, divide=divide)
        rows = [
            (int(piece.where[1:]), row)
            for chunk in chunks
            for piece, row in (chunk.piece_at(r) for r in range(chunk.n_rows))
        ]
        assert rows == [(i, row) for i, size in enumerate(sizes) for row in range(size)]
        assert [c.start for c in chunks] == list(np.cumsum([0, *(c.n_rows for c in chunks)])[:-1])
        assert all(chunk.n_rows <= (most if divide else max([most, *sizes])) for chunk in chunks)
        joined = [a.n_rows + b.n_rows for a, b in pairwise(chunks)]
        assert divide or all(total > most for total in joined)


# -- Control variates of rows that are read in chunks: those of the same rows in memory. -----------

N, P = 6_000, 60
_rng = np.random.default_rng(8)
_x = _rng.normal(size=(N, P))
_row, _column = _rng.integers(40, size=N), _rng.integers(30, size=N)
_mean = _rng.normal(0, 0.7, 40)[_row] + _rng.normal(0, 0.5, 30)[_column]
COLUMNS = {
    "X": _x,
    "late": _rng.binomial(1, expit(_x @ _rng.normal(0, 0.2, P))),
    "row": _row,
    "column": _column,
    "rating": _rng.normal(_mean, 1.2),
    "exposure": _rng.gamma(4.0, 0.5, size=N),
    "count": _rng.poisson(2.0, size=N),
    "grade": _rng.integers(0, 4, size=N),
}


def data_of(columns, names, n_rows):
    return [pm.Data(name, columns[name][:n_rows]) for name in names]


def logistic(columns, n_rows):
    with pm.Model() as model:
        X, late = data_of(columns, ("X", "late"), n_rows)
        pm.Bernoulli("y", logit_p=X @ pm.Normal("slope", 0, 1, shape=P), observed=late)
    return model


def crossed(columns, n_rows):
    """Two factors, centred, and three free scales, one of which rows see."""
    with pm.Model() as model:
        row, column, rating = data_of(columns, ("row", "column", "rating"), n_rows)
        scales = pm.HalfNormal("scales", 1, shape=2)
        one, other = pm.Normal("one", 0, scales[0], shape=40), pm.Normal("other", shape=30)
        mean = pm.Normal("mean") + one[row] + (scales[1] * other)[column]
        pm.Normal("y", mean, pm.HalfNormal("noise"), observed=rating)
    return model


def counts(columns, n_rows):
    """An offset, and covariates that the model standardises; mean and dispersion."""
    with pm.Model() as model:
        X, exposure, count = data_of(columns, ("X", "exposure", "count"), n_rows)
        slope, alpha = pm.Normal("slope", 0, 0.1, shape=3), pm.HalfNormal("alpha")
        eta = ((X[:, :3] - 0.1) / 1.5) @ slope + pm.math.log(exposure)
        pm.NegativeBinomial("y", pm.math.exp(eta), alpha, observed=count)
    return model


def logarithms(columns, n_rows):
    """A covariate that the model computes."""
    with pm.Model() as model:
        exposure, late = data_of(columns, ("exposure", "late"), n_rows)
        pm.Bernoulli("y", logit_p=pm.math.log(exposure) * pm.Normal("slope"), observed=late)
    return model


def graded(columns, n_rows):
    """Ordered answers, with cut points of their own for each of the columns."""
    with pm.Model() as model:
        X, column, grade = data_of(columns, ("X", "column", "grade"), n_rows)
        start = np.tile([-1.0, 0.0, 1.0], (30, 1))
        cuts = pm.Normal("cuts", shape=(30, 3), transform=ordered, initval=start)
        eta = X[:, :3] @ pm.Normal("slope", shape=3) * pm.LogNormal("spread", shape=30)[column]
        pm.OrderedLogistic("y", eta, cuts[column], compute_p=False, observed=grade)
    return model


MODELS = {"logistic": logistic, "crossed": crossed, "counts": counts, "graded": graded}


def cut_into(sizes, columns=COLUMNS, **options):
    """Open rows in pieces of some sizes, the last one repeated."""
    cuts = np.minimum(np.cumsum([0, *sizes, *[sizes[-1]] * (N // sizes[-1] + 1)]), N)
    pairs = [(a, b) for a, b in pairwise(cuts) if a < b]
    return open_rows(lambda: ({k: c[a:b] for k, c in columns.items()} for a, b in pairs), **options)


def sums_of(loglik, seen=None, n_draws=60):
    """Sums over all rows at some draws, and a sample of the rows."""
    seen = seen_rows_of(loglik, find_predictors) if seen is None else seen
    space = Unconstrained(loglik.observations.model)
    x = 0.1 * np.random.default_rng(2).normal(size=(n_draws, space.n_dims))
    at = coefficient_draws(seen.found, space.constrain(x))
    return average(loglik.source, seen, at.mean(axis=0), at, n_kept=80, key=5)


def assert_same(found, expected, **tolerance):
    for name in ("slope", "curvature", "residual"):
        one, other = (getattr(each, name) for each in (found, expected))
        assert_allclose(one, other, err_msg=name, **tolerance)
    one, other = found.sample, expected.sample
    assert_array_equal(one.rows.positions, other.rows.positions)
    assert_allclose(one.spread, other.spread, rtol=1e-6)


@pytest.fixture(scope="module", params=MODELS)
def elsewhere(request):
    """The log-likelihoods of rows elsewhere, and the sums of the same rows in memory."""
    make = MODELS[request.param]
    held = likelihood_of(make(COLUMNS, N))
    loglik = likelihood_of_rows(
        make(COLUMNS, 40), RowsToRead(rows=open_rows(COLUMNS)), rng=np.random.default_rng(1)
    )
    return loglik, seen_rows_of(loglik, find_predictors), sums_of(held)


@pytest.mark.parametrize("n_cores", [1, 3])
@pytest.mark.parametrize("sizes", [[1, 7, 300], [N]])
def test_the_sums_are_those_of_the_rows_in_memory(elsewhere, sizes, n_cores, limits):
    limits(n_cores=lambda: n_cores, task_rows=2_000, entries_at_once=500 * 120)
    loglik, seen, expected = elsewhere
    rows = StreamedRows(cut_into(sizes), loglik.source.columns)
    assert_same(sums_of(loglik.reading(rows), seen), expected, rtol=1e-8, atol=1e-8)


def test_sums_that_are_sparse_are_the_same(elsewhere, limits):
    loglik, seen, expected = elsewhere
    limits(dense_up_to=10, entries_at_once=1_000 * 120)
    found = sums_of(loglik, seen)
    assert_same(found, expected, rtol=1e-8, atol=1e-8)


def test_the_sample_comes_with_its_data(elsewhere):
    loglik, seen, _ = elsewhere
    rows = sums_of(loglik, seen).sample.rows
    for row, array in zip(loglik.observations.rows, rows.arrays, strict=True):
        assert_array_equal(array, COLUMNS[row.name][rows.positions])


def test_case_weights_count_rows():
    times = np.random.default_rng(5).integers(0, 4, size=N)
    weighted = cut_into([1_000], COLUMNS | {"n": times}, weight="n")
    repeated = {name: np.repeat(c, times, axis=0) for name, c in COLUMNS.items()}
    held = likelihood_of(logarithms(repeated, times.sum()))
    one = likelihood_of_rows(
        logarithms(COLUMNS, 40), RowsToRead(rows=weighted), rng=np.random.default_rng(1)
    )
    found, expected = sums_of(one), sums_of(held)
    for name in ("slope", "curvature", "residual"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-8)
    assert (times[found.sample.rows.positions] > 0).all()


@pytest.mark.slow
def test_memory_is_that_of_three_chunks(limits):
    """One in use, the next one, and the previous one until its last blocks are done."""
    limits(n_cores=lambda: 1, entries_at_once=1_000 * 20)
    n_rows, n_columns = 640_000, 8

    def chunks():
        for i in range(8):
            x = np.random.default_rng(i).random((n_rows // 8, n_columns))
            yield {"x": x, "late": (x[:, 0] < 0.3).astype(np.int8)}

    rows = open_rows(chunks)
    with pm.Model() as model:
        x, late = data_of(rows.head(30), ("x", "late"), 30)
        pm.Bernoulli("y", logit_p=x @ pm.Normal("b", shape=n_columns), observed=late)
    loglik = likelihood_of_rows(model, RowsToRead(rows=rows), rng=np.random.default_rng(1))
    seen = seen_rows_of(loglik, find_predictors)
    sums_of(loglik, seen, n_draws=20)  # compiles
    tracemalloc.start()
    try:
        found = sums_of(loglik, seen, n_draws=20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.sample.rows) == 81
    each = 8 * n_columns + 8 + 8 + 1 + 4  # the data, position, case weight, and outcome twice
    assert peak < 3.3 * each * n_rows / 8


# -- coresets --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    flat = {f"x{k}": COLUMNS["X"][:, k] for k in range(P)} | {"late": COLUMNS["late"]}
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        table = pa.table({name: column[part] for name, column in flat.items()})
        pq.write_table(table, folder / f"part-{i}.parquet", row_group_size=900)
    return open_rows(folder, columns={"X": [f"x{k}" for k in range(P)], "late": "late"})


@pytest.fixture(scope="module")
def coreset(files):
    return build_coreset(logistic(COLUMNS, 50), rows=files, **SETTINGS)


def test_files_are_summarised_by_a_quadratic_without_being_asked_for(coreset):
    expected = build_coreset(logistic(COLUMNS, N), **SETTINGS)
    assert coreset.method == expected.method == "control_variates"
    assert coreset.objective <= 0.01
    assert_array_equal(coreset.indices, expected.indices)
    assert_allclose(coreset.weights, expected.weights, rtol=1e-6)
    one, other = coreset.quadratic, expected.quadratic
    assert one.names == other.names
    assert_allclose(one.center, other.center, rtol=1e-8, atol=1e-8)
    scale = np.abs(other.curvature).max()
    assert_allclose(one.curvature, other.curvature, rtol=1e-8, atol=1e-8 * scale)
    draws = {"slope": other.center + 0.05 * np.random.default_rng(3).normal(size=(9, P))}
    found = (
        coreset.model.compile_logp(mode=PLAIN_MODE),
        expected.model.compile_logp(mode=PLAIN_MODE),
    )
    values = np.array([[f({"slope": s}) for s in draws["slope"]] for f in found])
    assert_allclose(np.diff(values[0]), np.diff(values[1]), atol=1e-6)


def test_files_of_results_keep_the_quadratic(coreset, files, tmp_path):
    coreset.to_netcdf(tmp_path / "coreset.nc")
    draws = coreset.importance_draws(random_seed=1)
    again = Coreset.from_netcdf(tmp_path / "coreset.nc", logistic(COLUMNS, 70), rows=files)
    assert_allclose(again.log_ratios(draws), coreset.log_ratios(draws), rtol=1e-9, atol=1e-8)
    assert_array_equal(again.rows["data X"], COLUMNS["X"][coreset.indices])


@pytest.mark.slow
def test_crossed_factors_with_a_free_scale():
    rows = cut_into([700])
    method = ControlVariates(max_rounds=2)
    coreset = build_coreset(crossed(COLUMNS, 50), rows=rows, method=method, **SETTINGS)
    assert coreset.objective <= 0.01
    assert coreset.size < 1_000
    assert coreset.certificate.reliable


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "facts", "topic"),
    [
        ("exposure", 0.0, ("'slope'", "-inf", "chunk 1, row 200"), "regressions"),
        (
            "late",
            2,
            ("log-likelihood", "chunk 1, row 200", "initval=..."),
            "the-data-and-the-model",
        ),
    ],
)
def test_rows_that_cannot_be_used_are_named(name, value, facts, topic):
    columns = COLUMNS | {name: COLUMNS[name].copy()}
    columns[name][3_700] = value
    parts = (slice(0, 3_500), slice(3_500, None))
    rows = open_rows([{k: v[part] for k, v in columns.items()} for part in parts])
    with refused(InvalidDataError, facts, topic=topic):
        build_coreset(logarithms(COLUMNS, 50), rows=rows, method="control_variates", **SETTINGS)


def test_rows_that_see_very_many_numbers_are_refused_with_the_remedy():
    with pm.Model() as model:
        X, count = data_of(COLUMNS, ("X", "count"), 50)
        beta = pm.Normal("beta", shape=(P, 20))
        pm.Categorical("y", logit_p=X @ beta, observed=count)
    with refused(UnsupportedModelError, "1,000 coefficients", "method='auto'", topic="regressions"):
        build_coreset(model, rows=open_rows(COLUMNS), method="control_variates", **SETTINGS)
