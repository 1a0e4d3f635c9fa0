"""Sources in the tasks of a Dask cluster: a worker process, and partitions that it holds."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.distributed import Client

from pymc_coresets import open_rows


@pytest.fixture(scope="module")
def client():
    # Importing on the worker takes as long as here.
    with Client(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as client:
        yield client


def test_persisted_partitions(client):
    data = pd.DataFrame({"x": np.arange(1000.0), "g": ["a", "b"] * 500})
    rows = open_rows(dd.from_pandas(data, npartitions=4).persist(), labels={"g": ["b", "a"]})
    assert rows.check().ranges == {"g": (0, 1)}
    for chunk in rows.chunks:
        found = client.submit(rows.read, chunk).result()
        place = slice(chunk.start, chunk.start + chunk.n_rows)
        np.testing.assert_array_equal(found["x"], data["x"][place])
        np.testing.assert_array_equal(found["g"], (data["g"] == "a")[place])


def test_files(client, tmp_path):
    pq.write_table(pa.table({"x": np.arange(9.0)}), tmp_path / "a.parquet", row_group_size=2)
    rows = open_rows(tmp_path)
    (part,) = [client.submit(rows.examine, chunk).result()[-1] for chunk in rows.chunks]
    assert part == rows.examine(rows.chunks[0])[-1]
