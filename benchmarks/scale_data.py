"""Rows of a logistic regression in Parquet files, drawn chunk by chunk, and a model of a few."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm

from pymc_coresets import RowSource, open_rows

GROUP = 2**17  # rows of a row group
N_FILES = 10  # so that the first of them is the tenth part
N_COLUMNS = 20
N_USED = 10  # the outcome depends on these; with the intercept, D = 11
COPIES = 10  # of each row, where the case weights are used
N_PROTOTYPES = 1_000  # rows

#: The intercept and the slopes of all columns.
TRUTH = np.r_[-1.0, np.random.default_rng(7).normal(0, 0.3, N_USED), np.zeros(N_COLUMNS - N_USED)]


@dataclass(frozen=True, kw_only=True)
class Table:
    """What the files hold.

    Parameters
    ----------
    folder : Path
    n_rows : int
        Number of rows of all files.
    dtype : str
        ``"float64"`` or ``"float32"``.
    compression : str
        ``"zstd"`` or ``"none"``.
    n_parts : int
        Number of files.
    """

    folder: Path
    n_rows: int
    dtype: str = "float64"
    compression: str = "zstd"
    n_parts: int = N_FILES

    @property
    def n_bytes(self) -> int:
        """Upper limit of the size of the files."""
        return self.n_rows * (N_COLUMNS * np.dtype(self.dtype).itemsize + 4)

    @property
    def paths(self) -> list[Path]:
        return [self.folder / f"rows_{i:02}.parquet" for i in range(self.n_parts)]

    def write(self) -> None:
        """Write the files; memory: one row group.

        Raises
        ------
        SystemExit
            If there is too little space.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if self.n_bytes > 0.9 * free:
            raise SystemExit(
                f"{self.n_rows:,} rows take {self.n_bytes / 1e9:.1f} GB, and {self.folder} has "
                f"{free / 1e9:.1f} GB: use another --folder, or fewer --rows."
            )
        per_file = self.n_rows // self.n_parts
        for number, path in enumerate(self.paths):
            n_rows = per_file if number < self.n_parts - 1 else self.n_rows - per_file * number
            self._write_file(path, number, n_rows)

    def _write_file(self, path: Path, number: int, n_rows: int) -> None:
        names = [f"x{j:02}" for j in range(N_COLUMNS)]
        schema = pa.schema(
            [(name, self.dtype.replace("float64", "double").replace("float32", "float"))
             for name in names] + [("y", pa.int8()), ("copies", pa.int16())]
        )  # fmt: skip
        options: dict[str, Any] = {
            "compression": self.compression, "use_dictionary": ["copies"],
            "write_page_checksum": True,
        }  # fmt: skip
        with pq.ParquetWriter(path, schema, **options) as writer:
            for start in range(0, n_rows, GROUP):
                size = min(GROUP, n_rows - start)
                rng = np.random.default_rng([number, start])
                X = rng.standard_normal((N_COLUMNS, size)).astype(self.dtype)
                chances = 1 / (1 + np.exp(-(TRUTH[0] + TRUTH[1:] @ X)))
                columns = [*X, (rng.random(size) < chances).astype(np.int8),
                           np.full(size, COPIES, np.int16)]  # fmt: skip
                writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)


def opened(
    table: Table, n_columns: int, *, n_files: int = N_FILES, weighted: bool = False
) -> RowSource:
    """Open some of the files, with some of the columns."""
    paths = table.paths[:n_files]
    columns = {"X": [f"x{j:02}" for j in range(n_columns)], "y": "y"}
    return open_rows(paths, columns=columns, weight="copies" if weighted else None)


def model_of(rows: RowSource) -> pm.Model:
    """Return the logistic regression of the rows, which holds the first of them."""
    some = rows.head(N_PROTOTYPES)
    with pm.Model() as model:
        X, y = pm.Data("X", some["X"]), pm.Data("y", some["y"])
        slopes = pm.Normal("b", 0, 1, shape=some["X"].shape[1])
        pm.Bernoulli("late", logit_p=pm.Normal("a", 0, 1) + X @ slopes, observed=y)
    return model


def draws_near_truth(n_draws: int, n_columns: int, n_rows: int) -> dict[str, np.ndarray]:
    """Draws as wide as the posterior of so many rows, roughly."""
    rng = np.random.default_rng(5)
    values = TRUTH[: n_columns + 1] + 3 / n_rows**0.5 * rng.normal(size=(n_draws, n_columns + 1))
    return {"a": values[:, 0], "b": values[:, 1:]}
