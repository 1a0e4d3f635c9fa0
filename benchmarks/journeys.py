"""Which modules does a call pass?  ``python -m benchmarks.journeys``.

Three journeys: build a coreset from arrays; sample it, and check the draws; build one from a
Parquet file on a Dask cluster, whose worker is a thread of this process so that its calls are seen,
too.  A module is counted if one of its functions is entered (lambdas and comprehensions aside).
Each runs once before, so that nothing is imported or compiled along the way.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
from dask.distributed import Client

import pymc_coresets
from pymc_coresets import Coreset, build_coreset, open_rows

N, SEED = 20_000, 1
PACKAGE = f"{Path(pymc_coresets.__file__).parent}/"

type Entered = set[tuple[str, str]]


def regression(x: np.ndarray, y: np.ndarray) -> pm.Model:
    """Return the model of a line, whose data lie in containers."""
    with pm.Model() as model:
        covariate, response = pm.Data("x", x), pm.Data("y_data", y)
        line = pm.Normal("a", 0, 5) + pm.Normal("b", 0, 5) * covariate
        pm.Normal("y", line, 1.0, observed=response)
    return model


def entered(journey: Callable[[], object]) -> Entered:
    """Return the functions of the package that a call enters in any thread, with their modules."""
    journey()
    found: Entered = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<":
            module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
            found.add((module, code.co_qualname))

    sys.setprofile(note)
    threading.setprofile_all_threads(note)
    try:
        journey()
    finally:
        sys.setprofile(None)
        threading.setprofile_all_threads(None)
    return found


def built(model: pm.Model) -> Coreset:
    return build_coreset(model, random_seed=SEED, progressbar=False)


def sampled_and_checked(coreset: Coreset) -> None:
    draws = coreset.sample(draws=500, tune=200, chains=4, progressbar=False, random_seed=SEED)
    coreset.check(draws)


def journeys() -> Iterator[tuple[str, Entered]]:
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=N)
    y = rng.normal(1 + 2 * x)
    model = regression(x, y)
    yield "Build in memory", entered(lambda: built(model))
    coreset = built(model)
    yield "Sample, then check", entered(lambda: sampled_and_checked(coreset))
    with TemporaryDirectory() as folder:
        path = f"{folder}/rows.parquet"
        pq.write_table(pa.table({"x": x, "y_data": y}), path, row_group_size=N // 10)
        few = regression(x[:10], y[:10])
        with Client(n_workers=1, processes=False, dashboard_address=None) as client:

            def build_from_file() -> Coreset:
                rows = open_rows(path)
                return build_coreset(
                    few, rows=rows, executor=client, random_seed=SEED, progressbar=False
                )

            yield "From Parquet by Dask", entered(build_from_file)


def main() -> None:
    for name, found in journeys():
        modules = sorted({module for module, _ in found}, key=lambda m: ("/" in m, m))
        print(f"{name}: {len(modules)} modules, {len(found)} functions\n")
        for room, inside in groupby(modules, lambda m: m.partition("/")[0] if "/" in m else ""):
            names = [f"`{module.removeprefix(f'{room}/')}`" for module in inside]
            print(f"- {f'`{room}`' if room else 'front door'} ({len(names)}): {', '.join(names)}")
        print()


if __name__ == "__main__":
    main()
