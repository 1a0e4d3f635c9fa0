"""What JAX's device gains: ``python -m benchmarks.accelerator [--rows --most --nuts --tests]``.

Prints the device that JAX found, what it can do at most (bytes moved and operations per second,
measured), and four tables:

1. nanoseconds per potential of five models: Numba on the processor, JAX in float64 and float32;
2. looks at 10^5 rows and more, with the share of the device's bandwidth;
3. seconds to build, sample and check a coreset of flights, and of a logistic regression;
4. with ``--nuts``: NumPyro's NUTS on all rows of flights, un-collapsed and collapsed.

Numba and JAX alternate, and the fastest of some runs counts, after a first one that compiles.
With ``--processor-time`` seconds are those of all cores together, for a machine that is shared.
Without a GPU there are fewer rows.  ``--tests`` runs the tests of JAX on the device first.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pymc as pm
from rich.console import Console

from benchmarks.potentials import small_models
from pymc_coresets import Jax, build_coreset
from pymc_coresets.compat.jax_api import device, in_double, jax, jnp
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained

TESTS = (
    "tests/models/test_jax_potentials.py",
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


def describe(console: Console, *, large: bool, repeats: int) -> dict[str, float]:
    """Print what the device is and can do; return its bandwidth by type."""
    found = device()
    console.print(f"device: {found.device_kind} ({found.platform}), jax {jax.__version__}")
    speeds = {}
    for dtype in ("float64", "float32"):
        speeds[dtype] = bandwidth(dtype, 2**30 if large else 2**27, repeats)
        operations = arithmetic(dtype, 8192 if large else 1024, repeats)
        console.print(
            f"{dtype}: {speeds[dtype] / 1e9:.0f} GB/s moved, {operations / 1e9:.0f} GFLOP/s"
        )
    return speeds


# -- 1. potentials ---------------------------------------------------------------------------------


def draws_of(model: pm.Model, n_draws: int) -> dict[str, np.ndarray]:
    space = Unconstrained(model)
    shifts = np.random.default_rng(1).normal(0, 0.1, size=(n_draws, space.n_dims))
    return dict(space.constrain(space.start + shifts).values)


def flights() -> pm.Model:
    import_module("benchmarks.example_models")  # puts the examples on the path
    example = import_module("flights")
    model: pm.Model = example.build_model(example.load_flights())
    return model


def models(n_obs: int) -> dict[str, Callable[[], pm.Model]]:
    def small(name: str) -> pm.Model:
        return small_models(n_obs)[name]

    chosen = {"logistic, 20 columns": partial(regression, n_obs, 20), "flights": flights}
    return chosen | {name: partial(small, name) for name in SMALL}


def looks(model: pm.Model, n_draws: int) -> dict[str, Callable[[], object]]:
    observations, draws = find_observations(model), draws_of(model, n_draws)
    return {
        name: partial(LogLikelihood(observations, backend=backend).look, draws)
        for name, backend in BACKENDS.items()
    }


def of_potentials(console: Console, n_obs: int, n_draws: int, repeats: int) -> None:
    console.print(f"ns per potential in a look, S = {n_draws}: {', '.join(BACKENDS)}")
    for name, make in models(n_obs).items():
        model = make()
        n_rows = find_observations(model).n_obs
        seconds = fastest(looks(model, n_draws), repeats)
        times = ", ".join(f"{1e9 * s / n_rows / n_draws:.2f}" for s in seconds.values())
        console.print(f"{name}, {n_rows:,} rows: {times}")


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


def of_looks(console: Console, most: int, speeds: Mapping[str, float], n_draws: int) -> None:
    console.print(f"seconds of a look, S = {n_draws}, 5 columns: {', '.join(BACKENDS)}")
    n_obs = 100_000
    while n_obs <= most:
        seconds = fastest(looks(regression(n_obs), n_draws), 2 if n_obs < 10**7 else 1)
        shares = [
            TOUCHED * np.dtype(dtype).itemsize * n_obs * n_draws / seconds[f"JAX {dtype}"] / speed
            for dtype, speed in speeds.items()
        ]
        times = ", ".join(f"{s:.3f}" for s in seconds.values())
        of_bandwidth = ", ".join(f"{share:.0%}" for share in shares)
        console.print(f"{n_obs:,} rows: {times}; of JAX's bandwidth {of_bandwidth}")
        n_obs *= 10


# -- 3. coresets -----------------------------------------------------------------------------------


def of_coresets(console: Console, n_rows: int) -> None:
    console.print("coresets: seconds to build (of it the rounds), sample, check; rows")
    for name, model in {"flights": flights(), "logistic": regression(n_rows)}.items():
        for title, backend in BACKENDS.items():
            sampler = "pymc" if backend is None else "numpyro"
            started = Clock.now()
            coreset = build_coreset(model, backend=backend or "numba", **QUIET)
            built = Clock.now()
            idata = coreset.sample(nuts_sampler=sampler, quiet=True, **QUIET)
            sampled = Clock.now()
            verdict = coreset.check(idata)
            checked = Clock.now()
            console.print(
                f"{name}, {title}: {built - started:.1f} "
                f"({coreset.history.attrs.get('seconds rounds', np.nan):.1f} passed in rounds), "
                f"{sampled - built:.1f}, {checked - sampled:.1f}; {coreset.size:,} rows"
                + ("" if verdict.reliable else " (not reliable)")
            )


# -- 4. NUTS on all rows ---------------------------------------------------------------------------


def of_nuts(console: Console, draws: int) -> None:
    model = flights()
    merged = LogLikelihood(find_observations(model), collapse=True)
    rows = merged.all_rows
    collapsed = coreset_model(merged.observations, rows, rows.base_weights, lean=True)
    cases = {
        "un-collapsed": (model, round(merged.total_weight)),
        "collapsed": (collapsed, len(rows)),
    }
    for name, (full, n_rows) in cases.items():
        start = Clock.now()
        pm.sample(
            draws,
            tune=draws,
            model=full,
            nuts_sampler="numpyro",
            nuts={"chain_method": "vectorized"},
            quiet=True,
            compute_convergence_checks=False,
            **QUIET,
        )
        seconds = Clock.now() - start
        console.print(f"flights, NUTS by NumPyro, {name}: {n_rows:,} rows, {seconds:.1f} s")


def run_tests(options: Sequence[str] = ()) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "slow or not slow"]
    if subprocess.run([*command, *options, *TESTS], check=False).returncode:
        raise SystemExit("The tests of JAX failed on this device.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    large = device().platform != "cpu"
    parser.add_argument("--n", type=int, default=10**6 if large else 10**5, help="rows of table 1")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--most", type=int, default=10**8 if large else 10**6, help="of table 2")
    parser.add_argument("--rows", type=int, default=10**7 if large else 10**6, help="of table 3")
    parser.add_argument("--nuts", type=int, default=0, help="draws of NUTS on all rows; 0: none")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tests", action="store_true", help="run the tests of JAX first")
    parser.add_argument("--processor-time", action="store_true", help="of all cores together")
    parser.add_argument("--only", choices=("potentials", "looks", "coresets", "nuts"))
    options = parser.parse_args()
    if options.tests:
        run_tests()
    if options.processor_time:
        Clock.now = staticmethod(time.process_time)
    console = Console(width=120)
    speeds = describe(console, large=large, repeats=options.repeats)
    wanted = {options.only} if options.only else {"potentials", "looks", "coresets", "nuts"}
    if "potentials" in wanted:
        of_potentials(console, options.n, options.draws, options.repeats)
    if "looks" in wanted:
        of_looks(console, options.most, speeds, options.draws)
    if "coresets" in wanted:
        of_coresets(console, options.rows)
    if "nuts" in wanted and options.nuts:
        of_nuts(console, options.nuts)


if __name__ == "__main__":
    main()
