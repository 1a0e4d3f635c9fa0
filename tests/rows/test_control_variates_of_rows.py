"""Control variates of rows that are read in chunks: those of the same rows in memory."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pymc.distributions.transforms import ordered
from scipy.special import expit

from pymc_coresets import (
    ControlVariates,
    Coreset,
    InvalidDataError,
    UnsupportedModelError,
    build_coreset,
    open_rows,
)
from pymc_coresets.glm.control_variates.averaged import average
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import coefficient_draws
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_rows
from pymc_coresets.rows.streamed import StreamedRows
from tests.modes import PLAIN_MODE
from tests.refusals import refused

N, P = 6_000, 60
SETTINGS = {"random_seed": 3, "progressbar": False}
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


def in_chunks(sizes, columns=COLUMNS, **options):
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
    held = LogLikelihood(find_observations(make(COLUMNS, N)))
    loglik = likelihood_of_rows(
        make(COLUMNS, 40), RowsToRead(rows=open_rows(COLUMNS)), rng=np.random.default_rng(1)
    )
    return loglik, seen_rows_of(loglik, find_predictors), sums_of(held)


@pytest.mark.parametrize("n_cores", [1, 3])
@pytest.mark.parametrize("sizes", [[1, 7, 300], [N]])
def test_the_sums_are_those_of_the_rows_in_memory(elsewhere, sizes, n_cores, limits):
    limits(n_cores=lambda: n_cores, task_rows=2_000, entries_at_once=500 * 120)
    loglik, seen, expected = elsewhere
    rows = StreamedRows(in_chunks(sizes), loglik.source.columns)
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
    weighted = in_chunks([1_000], COLUMNS | {"n": times}, weight="n")
    repeated = {name: np.repeat(c, times, axis=0) for name, c in COLUMNS.items()}
    held = LogLikelihood(find_observations(logarithms(repeated, times.sum())))
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
    rows = in_chunks([700])
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
