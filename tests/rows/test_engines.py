"""Threads, processes and clusters return the same bits, also where workers die.

What fails is named.  The cluster, its processes and the files are real.
"""

import asyncio
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import repeat

import arviz as az
import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
import pytest
import xarray as xr
from dask.distributed import Client, KilledWorker, LocalCluster

from pymc_coresets import (
    Coreset,
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    RowSource,
    build_coreset,
    open_rows,
)
from pymc_coresets.glm.control_variates.averaged import average
from pymc_coresets.glm.predictor.finding import find_linear_predictor, find_predictors
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.papers.polynomial.parts_of_data import PredictorRows
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_rows
from pymc_coresets.rows.executors import Cluster, Task, Threads, engine_of
from pymc_coresets.rows.sources.readers import Chunk
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.sampling.density import gradient_pass
from pymc_coresets.storage import read_netcdf, write_netcdf
from tests.refusals import refused, warned

N_FILES, N_OF_FILE = 4, 70_000  # too many for two of them to be one chunk
N = N_FILES * N_OF_FILE
SETTINGS = {"random_seed": 3, "progressbar": False}
_rng = np.random.default_rng(5)
DRAWS = {"effect": _rng.normal(size=(20, 3)), "slope": _rng.normal(size=(20, 2))}
POINTS = 0.3 * _rng.normal(size=(3, 5))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(N, 2))
    group = rng.integers(0, 3, N)
    y = rng.random(N) < 1 / (1 + np.exp(-x @ [0.5, -0.4] - 0.3 * group))
    columns = {"a": x[:, 0], "b": x[:, 1], "group": group, "y": y.astype(int)}
    return pd.DataFrame(columns)


COLUMNS = {"X": ["a", "b"], "group": "group", "y": "y"}


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for i in range(N_FILES):
        part = data.iloc[i * N_OF_FILE : (i + 1) * N_OF_FILE]
        pq.write_table(pa.Table.from_pandas(part), folder / f"part-{i}.parquet")
    return open_rows(folder, columns=COLUMNS)


@pytest.fixture(autouse=True, scope="module")
def small_tasks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_coresets.rows.sources.row_source.TASK_ROWS", 1)
        yield


@pytest.fixture(scope="module")
def client():
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.logging.distributed": 50}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def regression(rows):
    with pm.Model() as model:
        columns = {name: pm.Data(name, column) for name, column in rows.head(40).items()}
        eta = pm.Normal("effect", shape=3)[columns["group"]]
        eta = eta + (columns["X"] - 0.1) @ pm.Normal("slope", shape=2)
        pm.Bernoulli("likelihood", logit_p=eta, observed=columns["y"])
    return model


@pytest.fixture(scope="module")
def loglik(files):
    return likelihood_of_rows(
        regression(files), RowsToRead(rows=files), rng=np.random.default_rng(1)
    )


@pytest.fixture(scope="module")
def gradient(loglik):
    return loglik.functions.as_loops.gradients


@pytest.fixture(scope="module")
def passes(gradient):
    """Return all that the passes of a construction return."""

    def of(loglik):
        sums = loglik.sums(DRAWS, n_candidates=200, scale=2e5, key=4)
        source = loglik.source
        slopes = source.reduce(gradient_pass(gradient, POINTS, 2**14))
        subsample, distinct = (
            source.subsample(50, key=1),
            source.subsample(50, key=2, distinct=True),
        )
        some = source.at(np.array([0, 3, 99_999, N - 1]))
        rows = (sums.candidates, subsample.rows, distinct.rows, some)
        arrays = (array for part in rows for array in (part.positions, *part.arrays))
        return [sums.total, sums.norm_total, *slopes, subsample.weights, *arrays]

    return of


def by(executor, loglik):
    """Return the same rows, read and evaluated by another engine."""
    return loglik.reading(replace(loglik.source, engine=engine_of(executor)))


@pytest.fixture(scope="module")
def expected(loglik, passes):
    return passes(loglik)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


# -- the same bits ---------------------------------------------------------------------------------


def test_sums_are_those_in_memory(expected, loglik):
    rows = loglik.all_rows
    values = loglik.matrix(DRAWS, rows)
    total = (values - values.mean(axis=1, keepdims=True)).sum(axis=0)
    np.testing.assert_allclose(expected[0], total, rtol=1e-9)


def test_threads(expected, loglik, passes):
    with ThreadPoolExecutor(3) as pool:
        assert_same(passes(by(pool, loglik)), expected)


@pytest.mark.slow  # they import PyMC; the executor of a cluster goes the same way
def test_processes(expected, loglik, files, passes):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert_same(passes(by(pool, loglik)), expected)
        assert by(pool, loglik).source.examine()[0] == files.check()


def test_a_cluster(client, expected, loglik, files, passes):
    assert_same(passes(by(client, loglik)), expected)
    assert by(client, loglik).source.examine()[0] == files.check()


def test_polynomial_sums_and_how_far_they_reach(client, loglik):
    here = PredictorRows(seen_rows_of(loglik, find_linear_predictor), loglik)
    there = replace(here, loglikelihood=by(client, loglik))
    one, other = (part.statistics(2, 3.0) for part in (here, there))
    assert one.n_obs == other.n_obs == N
    assert_same(one.moments, other.moments)
    one, other = (part.reach(2, 3.0, POINTS) for part in (here, there))
    assert one == other


def test_averaged_quadratics_and_rows_for_what_they_leave(client, loglik):
    seen, draws = seen_rows_of(loglik, find_predictors), 0.1 * _rng.normal(size=(40, 5))
    one, other = (
        average(part.source, seen, draws.mean(axis=0), draws, n_kept=50, key=3)
        for part in (loglik, by(client, loglik))
    )
    assert_same(
        [one.slope, one.curvature, one.residual], [other.slope, other.curvature, other.residual]
    )
    (rows, keys), (others, their_keys) = one.sample.marked, other.sample.marked
    assert len(rows) == 51
    assert_same(
        [keys, rows.positions, *rows.arrays], [their_keys, others.positions, *others.arrays]
    )


def test_the_executor_of_a_cluster(client, expected, loglik, passes):
    assert_same(passes(by(client.get_executor(), loglik)), expected)


def arrays_of(data):
    arrays = {"X": data[["a", "b"]].to_numpy(), "group": data["group"], "y": data["y"]}
    return {name: np.asarray(array) for name, array in arrays.items()}


SOURCES = {
    "arrays": lambda data: open_rows(arrays_of(data)),
    "frame": lambda data: open_rows(data, columns=COLUMNS),
    "iterable": lambda data: open_rows([data.iloc[:100_000], data.iloc[100_000:]], columns=COLUMNS),
    "dask frame": lambda data: open_rows(dd.from_pandas(data, npartitions=4), columns=COLUMNS),
    "persisted": lambda data: open_rows(
        dd.from_pandas(data, npartitions=4).persist(), columns=COLUMNS
    ),
    "dask arrays": lambda data: open_rows(
        {n: da.from_array(a, chunks=(90_000, *a.shape[1:])) for n, a in arrays_of(data).items()}
    ),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] * (k in ("iterable", "persisted"))) for k in SOURCES],
)
def test_rows_that_are_not_in_files(client, data, loglik, expected, kind):
    rows = SOURCES[kind](data)
    source = StreamedRows(rows, loglik.source.columns)
    here = loglik.reading(replace(source, first=source.examine()[0]))
    there = by(client, here)
    assert len(there.source._runs) > 1
    assert there.source.examine()[0] == here.source.first
    found, wanted = there.sums(DRAWS, n_candidates=100), here.sums(DRAWS, n_candidates=100)
    assert_same([found.total, found.norm_total], [wanted.total, wanted.norm_total])
    assert_same(found.candidates.arrays, wanted.candidates.arrays)
    np.testing.assert_allclose(found.total, expected[0], rtol=1e-9)


def test_case_weights(client, data, loglik, passes):
    weighted = data.assign(n=np.random.default_rng(2).poisson(1.0, N))
    rows = open_rows(weighted, columns=COLUMNS, weight="n")
    source = StreamedRows(rows, loglik.source.columns)
    here = loglik.reading(replace(source, first=source.examine()[0]))
    assert_same(passes(by(client, here)), passes(here))


def test_zarr_stores_are_read_by_the_workers(client, data, loglik, tmp_path):
    arrays = arrays_of(data.iloc[:200_000])
    dims = {name: ("row", "feature")[: array.ndim] for name, array in arrays.items()}
    stored = xr.Dataset({name: (dims[name], array) for name, array in arrays.items()})
    stored.chunk(row=66_000).to_zarr(tmp_path / "rows.zarr", zarr_format=2)
    source = StreamedRows(open_rows(str(tmp_path / "rows.zarr"), dim="row"), loglik.source.columns)
    portion, _ = source.portion(source.source.chunks[:1])
    assert len(cloudpickle.dumps(portion)) < 2e4
    here = loglik.reading(replace(source, first=source.examine()[0]))
    assert_same(by(client, here).sums(DRAWS).total, here.sums(DRAWS).total)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The coreset is about")  # at such draws
def test_a_coreset_and_its_check(client, files, tmp_path):
    options = {"rows": files, "method": "pursuit", "weighting": DRAWS, "size": 20} | SETTINGS
    one = build_coreset(regression(files), executor=client, **options)
    other = build_coreset(regression(files), **options)
    assert_same([one.indices, one.weights], [other.indices, other.weights])
    idata = az.from_dict({"posterior": {name: draws[None] / 50 for name, draws in DRAWS.items()}})
    assert_same(one.log_ratios(idata), other.log_ratios(idata))
    one.to_netcdf(tmp_path / "c.nc")
    again = Coreset.from_netcdf(tmp_path / "c.nc", regression(files), rows=files, executor=client)
    assert_same(again.log_ratios(idata), other.log_ratios(idata))
    copied = cloudpickle.loads(cloudpickle.dumps(again))  # without the cluster
    assert isinstance(copied.loglikelihood.source.engine, Threads)


# -- what is sent ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("client")
def test_files_are_written_where_there_is_a_cluster(tmp_path):
    tree = xr.DataTree.from_dict({"coreset": xr.Dataset({"weights": ("row", [2.0, 3.0])})})
    write_netcdf(tree, tmp_path / "coreset.nc")
    assert read_netcdf(tmp_path / "coreset.nc")["coreset"]["weights"].sum() == 5


def test_kernels_are_small_and_compiled_once_in_a_process(loglik, gradient):
    assert len(loglik.functions.kernel.graph) < 2**16
    assert len(gradient.graph) < 2**16
    sent = cloudpickle.dumps(loglik.functions.kernel)
    assert cloudpickle.loads(sent).program is cloudpickle.loads(sent).program


def test_a_portion_holds_paths_and_the_layout_of_its_chunks(loglik, files):
    portion, _ = loglik.source.portion(files.chunks[2:3])
    assert len(cloudpickle.dumps(portion)) < 2**14
    assert portion.place(2 * N_OF_FILE + 7) == files.locate(2 * N_OF_FILE + 7)
    [block] = [portion.read(chunk) for chunk in portion.source.chunks]
    np.testing.assert_array_equal(block.positions, 2 * N_OF_FILE + np.arange(N_OF_FILE))


def test_tasks_do_not_begin_inside_of_a_row_group(tmp_path):
    """Its chunks can only be decoded from its start."""
    table = pa.table({"x": np.zeros(300_000, dtype=np.float32)})
    for i in range(2):
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=300_000)
    source = StreamedRows(open_rows(tmp_path), {"x": np.dtype("f4")})
    assert [len(chunks) for chunks in source._runs] == [3, 3]


# -- workers that die ------------------------------------------------------------------------------


def pids(client):
    return client.run(os.getpid)


def settle(client):
    """Wait for workers that start again; on a very slow machine, Dask may give one of them up."""
    with suppress(TimeoutError):
        client.wait_for_workers(2, timeout=30)
    client.wait_for_workers(1)


@contextmanager
def a_worker_killed(client):
    """Kill a worker as soon as it works."""
    before, killed = pids(client), []

    def kill():
        while not killed:
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            if busy:
                killed.append(before[busy[0]])
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    yield
    killer.join(10)
    assert killed
    settle(client)
    assert killed[0] not in pids(client).values()


def test_a_worker_that_is_killed_in_a_look_makes_no_difference(client, expected, loglik):
    with a_worker_killed(client):
        sums = by(client, loglik).sums(DRAWS, n_candidates=200, scale=2e5, key=4)
    assert_same([sums.total, sums.candidates.positions], [expected[0], expected[5]])


@pytest.mark.slow  # another worker is started anew, and scans go through the same executor
def test_a_worker_that_is_killed_in_the_scan_makes_no_difference(client, loglik, files):
    with a_worker_killed(client):
        assert by(client, loglik).source.examine()[0] == files.check()


def poisoned(rows, where, act):
    """Return a source of which one chunk cannot be read by others; workers know it by value."""

    class Poisoned(RowSource):
        def weighted(self, chunk, names):
            if chunk.start == where:
                act()
            return super().weighted(chunk, names)

    return Poisoned(rows._reader, rows._mappings, rows._weights, rows.chunks)


@pytest.mark.slow  # workers are started anew, one after the other
@pytest.mark.parametrize("task_rows", [1, N])
def test_a_chunk_that_kills_its_workers_is_named(
    client, loglik, files, tmp_path, limits, task_rows
):
    limits(task_rows=task_rows)
    deaths = tmp_path / "deaths"

    def die():
        with deaths.open("a") as file:
            file.write("x")
        os._exit(1)

    source = poisoned(files, 3 * N_OF_FILE, die)
    rows = replace(loglik.source, source=source, engine=engine_of(client))
    with refused(CoresetError, "2 workers", "part-3.parquet", topic="executors-and-clusters"):
        loglik.reading(rows).sums(DRAWS)
    assert len(deaths.read_text()) <= 4  # twice, and then with nothing beside it
    settle(client)


class Workers:
    """A cluster of two threads; those of one worker die together, as Dask sees it."""

    status = "running"

    def __init__(self, deadly):
        self.deadly, self.lock, self.flying = deadly, threading.Lock(), {}

    def submitted(self, _client, _name, _function, _versions, _work, sent, _tables):
        task, future = pickle.loads(sent)[1], Future()
        places = {chunk.where for chunk in task.chunks}
        future.cancel = lambda: self.forget(future)
        with self.lock:
            self.flying[future] = places
        threading.Timer(0.05, self.end, [future, task]).start()
        return future

    def forget(self, future):
        with self.lock:
            self.flying.pop(future, None)

    def end(self, future, task):
        with self.lock:
            if future not in self.flying:
                return
            if self.deadly(list(self.flying.values()), self.flying[future]):
                for each in self.flying:
                    each.set_exception(KilledWorker("task", None, 1))
                self.flying.clear()
            else:
                del self.flying[future]
                future.set_result(task.chunks[0].where)


class Sent:
    def portion(self, chunks, *, to_dask=False):
        return None, []


def mapped(deadly, tasks, monkeypatch):
    workers = Workers(deadly)
    monkeypatch.setattr("pymc_coresets.compat.dask_api.submitted", workers.submitted)
    monkeypatch.setattr("pymc_coresets.compat.dask_api.n_threads", lambda _: 2)
    return list(Cluster(workers).map(len, Sent(), tasks))


def tasks_of(n_chunks):
    chunks = [Chunk(start=i, n_rows=1, where=f"chunk {i}", pieces=()) for i in range(2 * 4)]
    return [Task(chunks[i : i + n_chunks]) for i in range(0, len(chunks), n_chunks)]


@pytest.mark.parametrize("n_chunks", [1, 2])
def test_tasks_that_only_die_side_by_side_are_all_done(n_chunks, monkeypatch):
    """As where there is memory for one of them."""
    tasks = tasks_of(n_chunks)
    found = mapped(lambda flying, _: len(flying) > 1 and {"chunk 2"} <= set().union(*flying), tasks,
                   monkeypatch)  # fmt: skip
    assert found == [task.chunks[0].where for task in tasks]


@pytest.mark.parametrize("n_chunks", [1, 2, 8])
def test_of_tasks_that_die_together_the_one_that_kills_is_named(n_chunks, monkeypatch):
    tasks = tasks_of(n_chunks)
    where = next(task.where for task in tasks if "chunk 5" in {c.where for c in task.chunks})
    with refused(CoresetError, "2 workers", where, topic="executors-and-clusters"):
        mapped(lambda _, own: "chunk 5" in own, tasks, monkeypatch)


@pytest.fixture
def unmanned(limits):
    """A cluster that has no workers, and of which that is said soon."""
    limits(silence=0.2, look_seconds=0.1)
    options = {"dashboard_address": ":0", "silence_logs": 50, "processes": False}
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_workers_that_do_not_come_are_said_and_awaited(unmanned, loglik, expected):
    timer = threading.Timer(0.5, unmanned.cluster.scale, [1])
    timer.start()
    with warned("no workers", "part-0.parquet"):
        found = by(unmanned, loglik).sums(DRAWS).total
    timer.join()
    np.testing.assert_array_equal(found, expected[0])


def test_workers_are_awaited_where_partitions_are_counted(unmanned, data):
    frame = dd.from_pandas(data.iloc[:10], npartitions=2)
    timer = threading.Timer(0.5, unmanned.cluster.scale, [1])
    timer.start()
    with warned("no workers", "a Dask collection"):
        assert open_rows(frame, columns=COLUMNS).n_rows == 10
    timer.join()


def test_workers_that_never_come_are_given_up(unmanned, loglik):
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": "400 ms"}),
        warned("no workers", "After 0 seconds"),
        refused(
            CoresetError,
            "no workers",
            "0 seconds",
            "part-0.parquet",
            topic="executors-and-clusters",
        ),
    ):
        by(unmanned, loglik).sums(DRAWS)
    assert not any(unmanned.futures.values())


@pytest.mark.slow
def test_partitions_that_were_persisted_are_made_again(client, data, loglik, expected):
    frame = dd.from_pandas(data, npartitions=4).persist()
    source = StreamedRows(open_rows(frame, columns=COLUMNS), loglik.source.columns)
    there = by(client, loglik.reading(replace(source, first=source.examine()[0])))
    with a_worker_killed(client):
        found = there.sums(DRAWS)
    np.testing.assert_allclose(found.total, expected[0], rtol=1e-9)


@pytest.mark.slow
def test_data_that_were_scattered_are_lost_with_their_worker(client, data, loglik):
    parts = client.scatter([data.iloc[:100_000], data.iloc[100_000:200_000]])
    frame = dd.from_delayed([dask.delayed(part) for part in parts], meta=data.iloc[:0])
    source = StreamedRows(open_rows(frame, columns=COLUMNS), loglik.source.columns)
    there = by(client, loglik.reading(source))
    holder = next(iter(client.who_has(parts)[parts[0].key]))
    os.kill(pids(client)[holder], signal.SIGKILL)
    with refused(CoresetError, "scattered", topic="executors-and-clusters"):
        there.sums(DRAWS)
    settle(client)


def test_broken_and_closed_executors(loglik):
    broken = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    broken.submit(os._exit, 1).exception()
    with refused(
        CoresetError, "executor", "memory", "terminated abruptly", topic="executors-and-clusters"
    ):
        by(broken, loglik).sums(DRAWS)
    broken.shutdown()
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with refused(CoresetError, "executor", "after shutdown", topic="executors-and-clusters"):
        by(closed, loglik).sums(DRAWS)


@pytest.mark.slow  # a process imports PyMC
def test_a_chunk_that_kills_a_process_is_named(loglik, files, limits):
    limits(task_rows=2 * N_OF_FILE)
    source = poisoned(files, 2 * N_OF_FILE, lambda: os._exit(1))
    rows = replace(loglik.source, source=source)
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        refused(CoresetError, "part-2.parquet, row group 0", topic="executors-and-clusters"),
    ):
        by(pool, loglik.reading(rows)).source.at(np.array([0, N - 1, 2 * N_OF_FILE]))


def test_a_closed_client(client, loglik):
    other = Client(client.scheduler.address, set_as_default=False)
    other.close()
    with refused(CoresetError, "Client", "closed", topic="executors-and-clusters"):
        by(other, loglik).sums(DRAWS)


# -- other errors ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sixty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sixty")
    column = np.zeros(66_000, dtype=np.float32)
    for i in range(60):
        wrong = i == 56
        column[41_207] = np.nan if wrong else 0.0
        pq.write_table(pa.table({"wind": column}), folder / f"part-{i:02}.parquet")
    return open_rows(folder, columns={"y": "wind"})


def mean(rows):
    with pm.Model() as model:
        y = pm.Data("y", rows.head(5)["y"])
        pm.Normal("likelihood", pm.Normal("m"), 1.0, observed=y)
    return model


def test_nan_in_the_57th_chunk_is_named(client, sixty):
    facts = ("part-56.parquet", "row 41,207", "column 'wind'", "NaN", "1 row in all")
    for executor in (None, client):
        with refused(InvalidDataError, facts, topic="rows-and-files"):
            build_coreset(mean(sixty), rows=sixty, executor=executor, **SETTINGS)


def test_files_that_change_while_they_are_used(client, data, loglik, tmp_path):
    for i in range(2):
        part = data.iloc[i * N_OF_FILE : (i + 1) * N_OF_FILE]
        pq.write_table(pa.Table.from_pandas(part), tmp_path / f"part-{i}.parquet")
    source = StreamedRows(open_rows(tmp_path, columns=COLUMNS), loglik.source.columns)
    there = by(client, loglik.reading(replace(source, first=source.examine()[0])))
    pq.write_table(pa.Table.from_pandas(data.iloc[:100]), tmp_path / "part-1.parquet")
    with refused(InvalidDataError, "part-1.parquet", "changed", topic="rows-and-files"):
        there.sums(DRAWS)
    (tmp_path / "part-1.parquet").unlink()
    with refused(InvalidDataError, "part-1.parquet", "missing", topic="rows-and-files"):
        there.sums(DRAWS)


def test_errors_of_the_operating_system_pass(client, loglik, files, tmp_path):
    """A task is done again where reading failed, twice; what it then finds is the same."""
    notes = tmp_path / "tries"

    def fail():
        with notes.open("a") as file:
            file.write("x")
        if len(notes.read_text()) < 3:
            raise InvalidDataError("part-3 cannot be read") from OSError("connection reset")

    rows = replace(loglik.source, source=poisoned(files, 3 * N_OF_FILE, fail))
    there = by(client, loglik.reading(rows))
    assert_same(there.sums(DRAWS).total, by(None, loglik).sums(DRAWS).total)
    assert notes.read_text() == "xxx"


def test_other_versions_are_named_before_any_work(client, loglik, tmp_path):
    (tmp_path / "numba-0.1.dist-info").mkdir()
    (tmp_path / "numba-0.1.dist-info/METADATA").write_text("Name: numba\nVersion: 0.1\n")

    def find(path):
        from pymc_coresets.rows.executors import versions  # noqa: PLC0415

        sys.path.insert(0, path)
        versions.cache_clear()

    async def forget(path, dask_worker):
        from pymc_coresets.rows.executors import versions  # noqa: PLC0415

        while dask_worker.state.executing:  # or a late task remembers what it found
            await asyncio.sleep(0.05)
        sys.path.remove(path)
        versions.cache_clear()

    client.run(find, str(tmp_path))
    with refused(InvalidOptionError, "versions", "numba 0.1"):
        by(client, loglik).sums(DRAWS)
    client.run(forget, str(tmp_path))
    assert np.isfinite(by(client, loglik).sums(DRAWS).total).all()


def test_ctrl_c_leaves_nothing_on_the_cluster(client, loglik, ctrl_c):
    def interrupt():
        while not any(client.processing().values()):
            time.sleep(0.005)
        ctrl_c()
        while not noticed.wait(10):  # Python ignores one that arrives within a destructor
            ctrl_c()

    noticed = threading.Event()
    timer = threading.Thread(target=interrupt)
    timer.start()
    there, others = by(client, loglik), set(client.futures)
    with pytest.raises(KeyboardInterrupt):
        list(map(there.sums, repeat(DRAWS)))
    noticed.set()
    timer.join()
    deadline = time.monotonic() + 10
    while any(client.processing().values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(client.processing().values())
    assert set(client.futures) <= others


@pytest.mark.parametrize("executor", ["threads", 4, ThreadPoolExecutor, Client])
def test_what_is_no_executor(files, executor):
    with refused(
        InvalidOptionError, "executor=", "concurrent.futures.Executor", "dask.distributed.Client"
    ):
        build_coreset(regression(files), rows=files, executor=executor, **SETTINGS)


def test_executors_without_rows(files):
    with (
        ThreadPoolExecutor(1) as pool,
        refused(InvalidOptionError, "executor=", "rows=open_rows(...)"),
    ):
        build_coreset(regression(files), executor=pool, **SETTINGS)


def test_rows_that_cannot_be_sent(loglik, files):
    source = poisoned(files, 0, threading.Lock().acquire)
    rows = replace(loglik.source, source=source)
    with (
        ProcessPoolExecutor(1) as pool,
        refused(InvalidOptionError, "executor=...", "cannot pickle"),
    ):
        by(pool, loglik.reading(rows)).sums(DRAWS)


# -- other executors -------------------------------------------------------------------------------


class RayExecutor(Executor):
    """The adapter of the page on scale."""

    def __init__(self, ray):
        self._call = ray.remote(lambda function, args: function(*args))

    def submit(self, function, /, *args):
        return self._call.remote(function, args).future()


def test_ray(expected, loglik, passes):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False)
    assert_same(passes(by(RayExecutor(ray), loglik)), expected)
    ray.shutdown()
