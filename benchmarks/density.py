"""What many questions at once cost, and whole analyses in two versions: ``benchmarks.density``.

*Points*: log-densities of coresets' posteriors with their gradients, one point at a time and many
together, beside PyMC's compiled gradient of ``coreset.model``.

*Starts*: the search for other modes on a sample of the rows from 24 starts, and from one of them,
with the calls of the density that it takes.

*Analyses*: `build_coreset`, `sample` and `check` by defaults, in processes of their own, with an
empty and then a filled folder of compiled functions.  ``--other CHECKOUT`` runs a checkout of
another version in turn with this one.  Seconds are those of processors, with imports and
compilation.  ``--cases crossed softmax`` takes some of the models, ``--limit`` ends a process.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit

import pymc_coresets as pmc
from benchmarks.example_models import example_models
from benchmarks.first_example import model_of as first_example
from benchmarks.isolation import caches_in
from benchmarks.parameter_models import crossed, softmax
from benchmarks.tables import markdown, parser_of, save
from benchmarks.trust_models import few_groups
from benchmarks.unit_data import aggression, two_parameters
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density, Slopes, slopes_of_all, slopes_without_rows
from pymc_coresets.sampling.mode_search import find_modes, highest, mode_of, prior_draws
from pymc_coresets.sampling.sampler import CoresetSampler

type Rng = np.random.Generator
#: Free dimensions of ten measurements, four areas and forty soils, with an intercept.
_FOREST = 55


def items(rng: Rng, n_persons: int = 1_000, n_items: int = 5) -> None:
    """Answers of persons to items, with a discrimination and a difficulty each."""
    person, item = (place.ravel() for place in np.indices((n_persons, n_items)))
    slope, place = rng.lognormal(0, 0.3, n_items), rng.normal(0, 1, n_items)
    log_odds = slope[item] * (rng.normal(size=n_persons)[person] - place[item])
    two_parameters(rng.binomial(1, expit(log_odds)), person, item)


def classes(rng: Rng, n_users: int = 4_000, each: int = 6) -> None:
    """Six outcomes of each user, who is of one of three classes."""
    kind = rng.choice(3, n_users, p=[0.5, 0.3, 0.2])
    user = np.repeat(np.arange(n_users), each)
    own = pm.Categorical("own", p=pm.Dirichlet("shares", np.ones(3)), shape=n_users)
    mean, sd = pm.Normal("mean", [-1, 0, 1], 2, shape=3), pm.HalfNormal("sd", 1, shape=3)
    y = rng.normal(np.array([-2.0, 0.0, 2.0])[kind][user], 1.0)
    pm.Normal("y", mean[own[user]], sd[own[user]], observed=y)


def forest(rng: Rng, n_rows: int = 200_000) -> None:
    """Ten measurements, four areas and forty soils, of which some are very rare; standardised."""
    shares = np.r_[np.geomspace(0.2, 1e-3, 37), [5e-6] * 3]
    soil = rng.choice(40, n_rows, p=shares / shares.sum())
    area = rng.choice(4, n_rows, p=[0.45, 0.05, 0.44, 0.06])
    x = np.c_[rng.normal(size=(n_rows, 10)), np.eye(4)[area], np.eye(40)[soil]]
    x = np.c_[np.ones(n_rows), (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)]
    log_odds = x @ np.r_[-0.5, rng.normal(0, 0.5, 10), rng.normal(0, 0.2, 44)]
    b = pm.Normal("b", 0, 1, shape=_FOREST)
    pm.Bernoulli("y", logit_p=pt.dot(x, b), observed=rng.binomial(1, expit(log_odds)))


def written(write: Callable[[Rng], None]) -> pm.Model:
    with pm.Model() as model:
        write(np.random.default_rng(1))
    return model


ANALYSES: Mapping[str, Callable[[], pm.Model]] = {
    "README's regression": lambda: first_example(200_000),
    "three latent classes": lambda: written(classes),
    "2PL": lambda: written(items),
    "Verbal Aggression": lambda: written(lambda _: aggression(1.0)),
    "crossed": lambda: written(lambda rng: crossed(rng, 60_000, (300, 200))),
    "softmax": lambda: written(lambda rng: softmax(rng, 100_000, 20, 10)),
    "three groups": lambda: written(lambda rng: few_groups(rng, easier=False)),
    "forest": lambda: written(forest),
}

ANALYSIS = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import cloudpickle
from pytensor.compile.maker import FunctionMaker
made, make = [], FunctionMaker.__init__
FunctionMaker.__init__ = lambda self, *a, **k: (made.append(1), make(self, *a, **k))[1]
def seconds():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)
model = cloudpickle.load(open(sys.argv[1], "rb"))
import pymc_coresets as pmc
begun = seconds()
coreset = pmc.build_coreset(model, random_seed=1, progressbar=False)
built = seconds()
idata = coreset.sample(random_seed=1, progressbar=False, quiet=True)
sampled = seconds()
check = coreset.check(idata)
checked = seconds()
print(json.dumps({
    "build": built - begun, "sample": sampled - built, "check": checked - sampled,
    "in all": checked, "functions": len(made), "size": coreset.size,
    "reliable": bool(check.reliable),
}))
"""


def analysed(model: Path, checkout: Path, cache: Path, limit: float) -> dict[str, float] | str:
    """Run an analysis with the package of a checkout; what happened, if it did not end."""
    one_thread = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout)}
    environment = os.environ | caches_in(cache) | one_thread
    command = [sys.executable, "-c", ANALYSIS, str(model)]
    try:
        done = subprocess.run(
            command,
            check=False,
            env=environment,
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {limit:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:80]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def analyses(names: Iterable[str], checkouts: Sequence[Path], limit: float) -> Iterable[list[str]]:
    """Return lines of the table of analyses, as they end."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "model"
            kept.write_bytes(cloudpickle.dumps(ANALYSES[name]()))
            line = [name]
            for number, checkout in enumerate(checkouts):
                cache = Path(folder) / str(number)
                cold, warm = (analysed(kept, checkout, cache, limit) for _ in range(2))
                line += cells_of(cold, warm)
            print(" | ".join(line), flush=True)
            yield line


def cells_of(cold: dict[str, float] | str, warm: dict[str, float] | str) -> list[str]:
    """Return what is shown of a version's two runs."""
    if isinstance(cold, str) or isinstance(warm, str):
        return ["", "", "", str(cold if isinstance(cold, str) else warm)]
    seconds = [f"{run['in all']:.1f}" for run in (cold, warm)]
    verdict = "reliable" if warm["reliable"] else "not reliable"
    return [*seconds, f"{warm['functions']:.0f}", verdict]


CELLS = ("empty cache, s", "filled, s", "functions", "verdict")


def timed(of_points: Callable[[np.ndarray], object], points: np.ndarray, at_once: int) -> float:
    """Return the microseconds for each point, the least of five runs."""
    of_points(points[:at_once])
    found = []
    for _ in range(5):
        begun = time.perf_counter()
        for start in range(0, len(points), at_once):
            of_points(points[start : start + at_once])
        found.append((time.perf_counter() - begun) / len(points))
    return 1e6 * min(found)


def compared(
    name: str, slopes: Callable[[np.ndarray], Slopes], model: pm.Model, points: np.ndarray
) -> list[str]:
    """Return a line of the table of points."""
    compiled = model.compile_fn(
        [model.logp(), model.dlogp()], inputs=model.value_vars, point_fn=False, mode=None
    )
    start = model.initial_point()
    shapes = [np.shape(start[value.name]) for value in model.value_vars]
    each = [np.split(x, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]) for x in points]
    values = [[v.reshape(shape) for v, shape in zip(parts, shapes, strict=True)] for parts in each]
    ours, theirs = slopes(points[:2]), [compiled(*one) for one in values[:2]]
    np.testing.assert_allclose(ours.gradients, [one[1] for one in theirs], rtol=0.01, atol=0.02)
    alone, together = (timed(slopes, points, n) for n in (1, len(points)))
    indices = np.arange(len(points))
    by_pymc = timed(lambda i: compiled(*values[int(i[0])]), indices, 1)
    figures = [f"{alone:,.0f}", f"{together:,.1f}", f"{alone / together:.1f}", f"{by_pymc:,.0f}"]
    return [name, f"{points.shape[1]}", f"{len(points)}", *figures]


POINTS_HEADER = ("posterior", "D", "points", "one by one, µs", "together", "ratio", "PyMC, µs")


def coreset_line(name: str, model: pm.Model, **options: int) -> list[str]:
    """Compare gradients of a coreset's posterior at 64 of its draws."""
    coreset = pmc.build_coreset(model, random_seed=1, progressbar=False, **options)
    approximation = coreset.approximation
    idata = coreset.sample(draws=16, random_seed=1, progressbar=False, quiet=True)
    points = approximation.space.free(Draws.of(idata, approximation.free))
    return compared(name, approximation.replacement.slopes, coreset.model, points)


def points() -> list[list[str]]:
    """Return the table of points."""
    flights = example_models()["flights"]()
    with flights:
        coreset = pmc.build_coreset(random_seed=1, progressbar=False)
    loglik = coreset.approximation.parts[0]
    idata = coreset.sample(draws=4, chains=2, random_seed=1, progressbar=False, quiet=True)
    few = coreset.approximation.space.free(Draws.of(idata, coreset.approximation.free))
    source = loglik.in_memory
    assert source is not None

    def of_all(points: np.ndarray) -> Slopes:
        prior = slopes_without_rows(loglik, None, points)
        return slopes_of_all(loglik.as_loops, source, points).plus(prior)

    return [
        coreset_line("2PL, units", written(items)),
        coreset_line("logistic, 40 rows", first_example(20_000), size=40),
        compared("flights, all rows", of_all, flights, few),
    ]


STARTS_HEADER = (
    "posterior", "D", "rows", "one start, ms", "calls", "24 starts, ms", "calls", "ratio",
)  # fmt: skip


def starts_line(name: str, model: pm.Model) -> list[str]:
    """Compare the search for modes from 24 draws of the prior with that from one of them.

    The means of all of them, and the least of three searches from all.
    """
    coreset = pmc.build_coreset(model, random_seed=1, progressbar=False)
    loglik, rng = coreset.approximation.parts[0], np.random.default_rng(1)
    sampler = CoresetSampler(loglik)
    density = sampler.density_of_some(1_000, key=1)
    first = mode_of(density, laplace(density, sampler.start))
    starts = highest(density, prior_draws(sampler.space, 96, rng=rng), 12, 12)

    def searched(some: np.ndarray) -> tuple[float, int]:
        calls: list[int] = []

        def counting(points: np.ndarray) -> Slopes:
            calls.append(len(points))
            return density.slopes(points)

        counted = Density(counting)
        begun = time.process_time()
        with np.errstate(all="ignore"):  # some starts are far out
            find_modes(counted, [first], some, error=lambda *_: 0.0)
        return time.process_time() - begun, len(calls)

    alone = np.mean([searched(start[None]) for start in starts], axis=0)
    together = min(searched(starts) for _ in range(3))
    figures = [f"{1e3 * alone[0]:.1f}", f"{alone[1]:.1f}", f"{1e3 * together[0]:.1f}"]
    sizes = [f"{len(first.x)}", f"{min(1_000, sampler.n_rows)}"]
    return [name, *sizes, *figures, f"{together[1]}", f"{together[0] / alone[0]:.1f}"]


def starts() -> list[list[str]]:
    """Return the table of starts."""
    names = ("README's regression", "2PL", "three latent classes")
    return [starts_line(name, ANALYSES[name]()) for name in names]


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--cases", nargs="+", choices=ANALYSES, default=list(ANALYSES))
    parser.add_argument("--other", type=Path, help="a checkout of another version")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of each process")
    options = parser.parse_args()
    found = markdown(POINTS_HEADER, points())
    print(f"{found}\n", flush=True)
    save(options.tables, "density-points", found)
    found = markdown(STARTS_HEADER, starts())
    print(f"{found}\n", flush=True)
    save(options.tables, "density-starts", found)
    checkouts, header = [Path(__file__).parents[1]], ("model", *CELLS)
    if options.other is not None:
        checkouts.append(options.other.resolve())
        header += tuple(f"other: {cell}" for cell in CELLS)
    lines: list[list[str]] = []
    for line in analyses(options.cases, checkouts, options.limit):
        lines.append(line)
        save(options.tables, "density-analyses", markdown(header, lines))
    print(f"\n{markdown(header, lines)}")


if __name__ == "__main__":
    main()
