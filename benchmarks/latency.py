"""Seconds until the first answer: ``python -m benchmarks.latency [--n --columns --full]``.

A logistic regression, in a fresh process: importing, building a coreset, sampling it, checking it.
Once with an empty compilation cache and once with a filled one, and beside it what ``pm.sample``
compiles for the same model of all rows (with ``--full`` it samples them, too).  ``--other`` is a
checkout of another version of the package, which is measured in the same run with a filled cache.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.tables import markdown, parser_of, save

PARTS = {
    "import PyMC": "import of PyMC",
    "import": "import of the package",
    "build: reading": "build: reading the model",
    "build: rounds": "build: choosing rows",
    "sample": "sample",
    "check": "check",
    "in all": "in all",
}

OURS = """
import json, sys, time
start = time.perf_counter()
import numpy as np, pymc as pm
seconds = {"import PyMC": time.perf_counter() - start}
n, p = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(1)
X = rng.normal(size=(n, p))
y = rng.binomial(1, 1 / (1 + np.exp(-X @ rng.normal(0, 0.5, size=p))))
with pm.Model() as model:
    eta = pm.Normal("a") + pm.Data("X", X) @ pm.Normal("b", shape=p)
    pm.Bernoulli("y", logit_p=eta, observed=y)
start = time.perf_counter()
from pymc_coresets import build_coreset
imported = time.perf_counter()
seconds["import"] = imported - start
coreset = build_coreset(model, random_seed=1, progressbar=False)
built = time.perf_counter()
seconds["build"] = built - imported
for part in ("reading the model", "rounds"):
    if "seconds " + part in coreset.history.attrs:
        seconds["build: " + part.split()[0]] = coreset.history.attrs["seconds " + part]
idata = coreset.sample(chains=4, random_seed=1, progressbar=False, quiet=True)
sampled = time.perf_counter()
seconds["sample"] = sampled - built
assert coreset.check(idata).reliable
seconds["check"] = time.perf_counter() - sampled
seconds["in all"] = seconds["import PyMC"] + time.perf_counter() - start
print(json.dumps(seconds))
"""

THEIRS = (
    OURS[: OURS.index("start = time.perf_counter()\nfrom pymc_coresets")]
    + """
start = time.perf_counter()
draws = int(sys.argv[3])
pm.sample(draws, tune=draws, model=model, random_seed=1, progressbar=False, quiet=True)
seconds["sample"] = time.perf_counter() - start
seconds["in all"] = seconds["import PyMC"] + seconds["sample"]
print(json.dumps(seconds))
"""
)


def measure(
    script: str, cache: str, *arguments: int, checkout: Path | None = None
) -> dict[str, float]:
    """Run a script in a process of its own, with its compilation cache in a folder.

    Python imports from the working directory first: from a checkout, where there is one.
    """
    environment = os.environ | {
        "PYTENSOR_FLAGS": f"base_compiledir={cache}",
        "NUMBA_CACHE_DIR": str(Path(cache) / "numba"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--n", type=int, default=200_000, help="rows")
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="sample all rows, 1,000 + 1,000 draws")
    parser.add_argument("--other", type=Path, help="a checkout of another version to compare with")
    options = parser.parse_args()
    size = options.n, options.columns
    columns: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        for state in ("empty cache", "filled cache"):
            columns[f"coreset, {state}"] = measure(OURS, ours, *size)
        if options.other:
            with tempfile.TemporaryDirectory() as others:
                measure(OURS, others, *size, checkout=options.other)
                found = measure(OURS, others, *size, checkout=options.other)
            columns["other version, filled cache"] = found
        # Two draws of two chains: what it takes to compile, and little else.
        columns["`pm.sample`, empty cache, 2 draws"] = measure(THEIRS, theirs, *size, 2)
        if options.full:
            columns["`pm.sample`, filled cache, 1,000 draws"] = measure(
                THEIRS, theirs, *size, 1_000
            )
    rows = [
        [name, *(f"{found[part]:.1f}" if part in found else "" for found in columns.values())]
        for part, name in PARTS.items()
    ]
    print(markdown(["part", *columns], rows))
    save(options.tables, "latency", markdown(["part", *columns], rows))


if __name__ == "__main__":
    main()
