"""What JAX's device gains: ``python -m benchmarks.accelerator [--rows --most --nuts --tests]``.

Prints the device that JAX found, what it can do at most (bytes moved and operations per second,
measured), and five tables:

1. nanoseconds per potential of five models: Numba on the processor, JAX in float64 and float32;
2. looks at few and at many rows; the share of the device's bandwidth is printed;
3. seconds to sum PASS statistics, and to compare them with log-likelihoods at 64 draws;
4. seconds to build, sample and check a coreset of flights, and of a logistic regression;
5. with ``--nuts``: NumPyro's NUTS on all rows of flights, un-collapsed and collapsed.

Numba and JAX alternate, and the fastest of some runs counts, after a first one that compiles; in
tables 4 and 5 there is one run, which includes that.  With ``--processor-time`` seconds are those
of all cores together, for a machine that is shared.  Without a GPU there are fewer rows.
``--tests`` runs the tests of JAX on the device first; ``--markdown FOLDER`` writes the tables, for
a GPU to other files than for a processor.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from rich.console import Console

from benchmarks.curves import markdown
from benchmarks.potentials import small_models
from pymc_coresets import Jax, build_coreset, build_pass_glm
from pymc_coresets.compat.jax_api import device, in_double, jax, jnp
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained

TESTS = (
    "tests/models/test_jax_potentials.py",
    "tests/unit/test_sums_on_device.py",
    "tests/unit/test_device_rows.py",
    "tests/statistical/test_jax_build.py",
)
BACKENDS: Mapping[str, Jax | None] = {
    "Numba": None,
    "JAX float64": Jax(),
    "JAX float32": Jax(dtype="float32"),
}
SMALL = ("student t", "negative binomial", "varying slopes")
TOUCHED = 3  # times that a look moves each potential at least: written, for the mean, for the sum
QUIET: Mapping[str, Any] = {"random_seed": 1, "progressbar": False}
PARTS = ("potentials", "looks", "pass", "coresets", "nuts")


class Report:
    """Prints each line of a table as soon as it is known, and keeps the tables."""

    def __init__(self, device: str) -> None:
        self.console, self.device = Console(width=120), device
        self.tables: dict[str, tuple[list[str], list[list[str]]]] = {}

    def say(self, text: str) -> None:
        self.console.print(text)

    def begin(self, name: str, title: str, headings: Sequence[str]) -> Callable[..., None]:
        """Return what adds a line to a new table."""
        self.tables[name] = list(headings), []
        self.say(f"\n{title}\n{' | '.join(headings)}")

        def add(*cells: str) -> None:
            self.tables[name][1].append(list(cells))
            self.say(" | ".join(cells))

        return add

    def write(self, folder: Path) -> None:
        """Write each table to a file of its own."""
        for name, (headings, rows) in self.tables.items():
            (folder / f"{self.device}-{name}.md").write_text(markdown(headings, rows) + "\n")


class Clock:
    """Seconds that have passed, or that all cores have worked for this process."""

    now: Callable[[], float] = staticmethod(time.perf_counter)


def fastest(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the fewest seconds of each function; they alternate, after a first run of each."""
    seconds = dict.fromkeys(functions, np.inf)
    for i in range(repeats + 1):
        for name, function in functions.items():
            start = Clock.now()
            function()
            if i:
                seconds[name] = min(seconds[name], Clock.now() - start)
    return seconds


# -- the device ------------------------------------------------------------------------------------


def bandwidth(dtype: str, n_bytes: int, repeats: int) -> float:
    """Measure the bytes per second of y = 2 x + 1, which reads and writes each number once."""
    with in_double():
        x = jnp.ones(n_bytes // np.dtype(dtype).itemsize, dtype)
        double = jax.jit(lambda x: 2 * x + 1)
        seconds = fastest({"": lambda: double(x).block_until_ready()}, repeats)[""]
    return 2 * x.nbytes / seconds


def arithmetic(dtype: str, size: int, repeats: int) -> float:
    """Measure the operations per second of a matrix product."""
    with in_double():
        x = jnp.ones((size, size), dtype)
        product = jax.jit(lambda x: x @ x)
        seconds = fastest({"": lambda: product(x).block_until_ready()}, repeats)[""]
    return 2 * size**3 / seconds


def describe(report: Report, *, large: bool, repeats: int) -> dict[str, float]:
    """Print what the device is and can do; return its bandwidth by type."""
    found = device()
    report.say(f"device: {found.device_kind} ({found.platform}), jax {jax.__version__}")
    if not large:
        report.say("There is no GPU: JAX runs on the processor, and there are fewer rows.")
    speeds = {}
    for dtype in ("float64", "float32"):
        speeds[dtype] = bandwidth(dtype, 2**30 if large else 2**27, repeats)
        operations = arithmetic(dtype, 8192 if large else 1024, repeats)
        report.say(f"{dtype}: {speeds[dtype] / 1e9:.0f} GB/s moved, {operations / 1e9:.0f} GFLOP/s")
    return speeds


# -- 1. potentials ---------------------------------------------------------------------------------


def draws_of(model: pm.Model, n_draws: int) -> dict[str, np.ndarray]:
    space = Unconstrained(model)
    shifts = np.random.default_rng(1).normal(0, 0.1, size=(n_draws, space.n_dims))
    return dict(space.constrain(space.start + shifts).values)


def flights(n_rows: int) -> pm.Model:
    import_module("benchmarks.example_models")  # puts the examples on the path
    example = import_module("flights")
    data = example.load_flights()
    some = data.sample(n_rows, random_state=1) if n_rows < len(data) else data
    model: pm.Model = example.build_model(some)
    return model


def models(n_obs: int, n_flights: int) -> dict[str, Callable[[], pm.Model]]:
    def small(name: str) -> pm.Model:
        return small_models(n_obs)[name]

    chosen = {
        "logistic, 20 columns": partial(regression, n_obs, 20),
        "flights": partial(flights, n_flights),
    }
    return chosen | {name: partial(small, name) for name in SMALL}


def looks(model: pm.Model, n_draws: int) -> dict[str, Callable[[], object]]:
    observations, draws = find_observations(model), draws_of(model, n_draws)
    return {
        name: partial(LogLikelihood(observations, backend=backend).look, draws)
        for name, backend in BACKENDS.items()
    }


def of_potentials(report: Report, given: argparse.Namespace) -> None:
    title = f"1. ns per potential in a look, S = {given.draws}"
    add = report.begin("potentials", title, ["model", "rows", *BACKENDS])
    for name, make in models(given.n, given.flights).items():
        model = make()
        n_rows = find_observations(model).n_obs
        seconds = fastest(looks(model, given.draws), given.repeats)
        times = (f"{1e9 * s / n_rows / given.draws:.2f}" for s in seconds.values())
        add(name, f"{n_rows:,}", *times)


# -- 2. looks --------------------------------------------------------------------------------------


def regression(n_obs: int, n_columns: int = 5) -> pm.Model:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n_obs, n_columns))
    slopes = np.linspace(-0.5, 0.5, n_columns)
    y = (rng.random(n_obs) < 1 / (1 + np.exp(-features @ slopes))).astype(np.int64)
    with pm.Model() as model:
        eta = pm.Normal("intercept") + pm.Data("x", features) @ pm.Normal("beta", shape=n_columns)
        pm.Bernoulli("y", logit_p=eta, observed=y)
    return model


def of_looks(report: Report, given: argparse.Namespace, speeds: Mapping[str, float]) -> None:
    title = f"2. seconds of a look at a logistic regression, 5 columns, S = {given.draws}"
    add = report.begin("looks", title, ["rows", *BACKENDS])
    n_obs = given.least
    while n_obs <= given.most:
        seconds = fastest(looks(regression(n_obs), given.draws), 2 if n_obs < 10**7 else 1)
        add(f"{n_obs:,}", *(f"{s:.3f}" for s in seconds.values()))
        for dtype, speed in speeds.items():
            moved = TOUCHED * n_obs * given.draws * np.dtype(dtype).itemsize
            share = moved / seconds[f"JAX {dtype}"] / speed
            report.say(f"  {dtype}: {share:.0%} of the bandwidth")
        n_obs *= 10


# -- 3. PASS statistics ----------------------------------------------------------------------------


def of_pass(report: Report, given: argparse.Namespace) -> None:
    title = "3. seconds of PASS statistics of a logistic regression"
    kinds = ("Numba", "JAX float64")  # these statistics are in float64 whatever the type
    add = report.begin("pass", title, ["columns", "degree", "rows", *kinds])
    for n_columns, degree in ((20, 2), (200, 2), (20, 6)):
        n_obs = given.n if degree == 2 else given.n // 10  # there are a hundred times more products
        model = regression(n_obs, n_columns)
        summing: dict[str, Callable[[], object]] = {}
        for name in kinds:
            backend = BACKENDS[name] or "numba"
            build = partial(build_pass_glm, model, degree=degree, backend=backend, **QUIET)
            summary = build()
            [part] = summary.parts
            summing[name] = partial(part.statistics, degree, summary.radius)
        seconds = fastest(summing, 2).values()
        add(str(n_columns), str(degree), f"{n_obs:,}", *(f"{s:.3f}" for s in seconds))


# -- 4. coresets -----------------------------------------------------------------------------------


def of_coresets(report: Report, given: argparse.Namespace) -> None:
    title = "4. seconds of a coreset"
    steps = ["build", "sample", "check"]
    add = report.begin("coresets", title, ["model", "backend", *steps, "rows of it"])
    chosen = {"flights": flights(given.flights), "logistic": regression(given.rows)}
    for name, model in chosen.items():
        for kind in BACKENDS:
            add(name, kind, *of_one_coreset(model, kind))


def of_one_coreset(model: pm.Model, kind: str) -> list[str]:
    backend = BACKENDS[kind]
    started = Clock.now()
    coreset = build_coreset(model, backend=backend or "numba", **QUIET)
    built = Clock.now()
    idata = coreset.sample(
        nuts_sampler="pymc" if backend is None else "numpyro", quiet=True, **QUIET
    )
    sampled = Clock.now()
    verdict = coreset.check(idata)
    checked = Clock.now()
    seconds = (built - started, sampled - built, checked - sampled)
    reservation = "" if verdict.reliable else ", not reliable"
    return [*(f"{s:.1f}" for s in seconds), f"{coreset.size:,}{reservation}"]


# -- 5. NUTS on all rows ---------------------------------------------------------------------------


def of_nuts(report: Report, given: argparse.Namespace) -> None:
    if not given.nuts:
        report.say("\n5. NUTS on all rows takes long: --nuts DRAWS runs it.")
        return
    title = f"5. NUTS by NumPyro on all rows of flights, 4 chains of {given.nuts} draws"
    add = report.begin("nuts", title, ["rows", "how many", "seconds", "ratio"])
    model = flights(given.flights)
    merged = LogLikelihood(find_observations(model), collapse=True)
    rows = merged.all_rows
    collapsed = coreset_model(merged.observations, rows, rows.base_weights, lean=True)
    cases = {
        "un-collapsed": (model, round(merged.total_weight)),
        "collapsed": (collapsed, len(rows)),
    }
    first = None
    for name, (full, n_rows) in cases.items():
        start = Clock.now()
        pm.sample(
            given.nuts,
            tune=given.nuts,
            chains=4,
            model=full,
            nuts_sampler="numpyro",
            nuts={"chain_method": "vectorized"},
            quiet=True,
            compute_convergence_checks=False,
            **QUIET,
        )
        seconds = Clock.now() - start
        first = seconds if first is None else first
        add(name, f"{n_rows:,}", f"{seconds:.1f}", f"{first / seconds:.2f}")


def run_tests(options: Sequence[str] = ()) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "slow or not slow"]
    if subprocess.run([*command, *options, *TESTS], check=False).returncode:
        raise SystemExit("The tests of JAX failed on this device.")


def arguments(*, large: bool) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=10**6 if large else 10**5, help="of tables 1, 3")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--least", type=int, default=10**3, help="rows of table 2")
    parser.add_argument("--most", type=int, default=10**7 if large else 10**6, help="of table 2")
    parser.add_argument("--rows", type=int, default=10**7 if large else 10**6, help="of table 4")
    parser.add_argument("--flights", type=int, default=10**6, help="rows; all by default")
    parser.add_argument("--nuts", type=int, default=0, help="draws of NUTS on all rows; 0: none")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tests", action="store_true", help="run the tests of JAX first")
    parser.add_argument("--processor-time", action="store_true", help="of all cores together")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--markdown", type=Path, help="folder to write the tables to")
    return parser.parse_args()


def main() -> None:
    large = device().platform != "cpu"
    given = arguments(large=large)
    if given.tests:
        run_tests()
    if given.processor_time:
        Clock.now = staticmethod(time.process_time)
    report = Report("gpu" if large else "accelerator")
    speeds = describe(report, large=large, repeats=given.repeats)
    parts: Mapping[str, Callable[[], None]] = {
        "potentials": partial(of_potentials, report, given),
        "looks": partial(of_looks, report, given, speeds),
        "pass": partial(of_pass, report, given),
        "coresets": partial(of_coresets, report, given),
        "nuts": partial(of_nuts, report, given),
    }
    for name in PARTS:
        if name in given.only:
            parts[name]()
            if given.markdown:
                report.write(given.markdown)


if __name__ == "__main__":
    main()
