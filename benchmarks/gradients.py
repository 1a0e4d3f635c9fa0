"""One gradient of each model of the zoo, and of slow ones: ``python -m benchmarks.gradients``.

The model of a coreset of 30 random rows with random weights, with all that is left of the prior:
microseconds for its log-density and gradient, and processor seconds until the first one,

- as `Coreset.sample` compiles it for NUTS (`density_mode`);
- as builds evaluate it (`loop_mode`);
- as PyTensor compiles it by default (``--default``, which takes long);
- written by hand in NumPy, for ten models, to the same values.

The seconds are those of a compiler with the cache of the machine.  For an empty one, set
``PYTENSOR_FLAGS=base_compiledir=...`` to an empty folder: there, what a model shares with one
before it is compiled already.  ``--only conditional LKJ`` takes the models of whose names it is a
part, ``--zoo 10`` every tenth model of the zoo.  The table shows the slowest of the zoo, and all
others.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

import numpy as np
import pymc as pm
import pytensor
from pytensor import Mode

from benchmarks.compiled_density import compiled_density
from benchmarks.gradient_models import MODELS
from benchmarks.gradients_by_hand import BY_HAND, Value
from benchmarks.tables import markdown, parser_of
from pymc_coresets.loops.density_loops import density_mode
from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from tests.models.zoo import CASES

pytensor.config.blas__ldflags = ""

for room in ("cells", "families", "industry", "likelihoods", "series", "structures"):
    import_module(f"tests.models.zoo_{room}")  # they enter their models into the table

SIZE = 30  # rows
SLOW = 10  # times the zoo's median: such a model needs a reason
SHOWN = 12  # of the zoo, the slowest
HEADER = ("model", "D", "NUTS, us", "s to compile", "builds, us", "s to compile",
          "PyTensor, us", "s to compile", "by hand, us", "reason")  # fmt: skip

#: Why a model takes more than `SLOW` times the zoo's median.
REASONS = {"customers, Pareto/NBD": "derivatives of hypergeometric functions"}

type Density = Callable[[np.ndarray], tuple[float, np.ndarray]]


def small(name: str) -> tuple[pm.Model, Callable[[], Callable[..., Value]] | None]:
    """Return the model of a coreset, and what makes its density by hand, where there is one."""
    if name in MODELS:
        model, data = MODELS[name]()
        options = {}
    else:
        model, data, options = CASES[name].model(), {}, dict(CASES[name].options)
    loglik, rng = LogLikelihood(find_observations(model, **options)), np.random.default_rng(1)
    n = loglik.n_rows
    positions = np.sort(rng.choice(n, min(SIZE, n), replace=False))
    weights = rng.gamma(2.0, n / SIZE / 2, size=len(positions))
    rows = loglik.in_memory.take(positions)
    made = coreset_model(loglik.observations, rows, weights)
    if name not in BY_HAND:
        return made, None
    taken = {key: values[positions] for key, values in data.items()} | {"positions": positions}
    return made, lambda: BY_HAND[name](taken, weights)


def microseconds(density: Callable[[], object]) -> float:
    """Measure processor time; the least of several runs, for others use the machine too."""
    density()
    start = time.process_time()
    density()
    calls = max(3, int(0.02 / max(time.process_time() - start, 1e-6)))
    seconds = []
    for _ in range(7):
        start = time.process_time()
        for _ in range(calls):
            density()
        seconds.append((time.process_time() - start) / calls)
    return 1e6 * min(seconds)


def compiled(model: pm.Model, mode: Mode | None, x: np.ndarray) -> tuple[float, Density]:
    """Return processor seconds to the first gradient, at a point, and the density."""
    start = time.process_time()
    density = compiled_density(model, mode)
    density(x)
    return time.process_time() - start, density


def assert_same(space: Unconstrained, value: float, gradient: np.ndarray, found: Value) -> None:
    np.testing.assert_allclose(found[0], value, rtol=1e-8)
    for name, part in space.point(gradient).items():
        np.testing.assert_allclose(found[1][name], part, rtol=1e-6, atol=1e-8, err_msg=name)


def measured(name: str, modes: Sequence[Mode | None]) -> list[float]:
    """Return D, then microseconds and seconds to compile of each mode, then microseconds by hand.

    NaN stands for what does not exist.
    """
    model, by_hand = small(name)
    if model.discrete_value_vars:
        return [np.nan] * (2 * len(modes) + 2)
    space = Unconstrained(model)
    x = space.start + 0.1 * np.random.default_rng(2).normal(size=space.n_dims)
    cells: list[float] = []
    first: Value | None = None
    for mode in modes:
        seconds, density = compiled(model, mode, x)
        value, gradient = density(x)
        first = first or (value, space.point(gradient))
        assert_same(space, value, gradient, first)
        cells += [microseconds(lambda f=density: f(x)), seconds]  # type: ignore[misc]
    hand = np.nan
    if by_hand is not None:
        problem, point = by_hand(), space.point(x)
        assert_same(space, value, gradient, problem(point))
        hand = microseconds(lambda: problem(point))
    return [space.n_dims, *cells, hand]


def all_measured(names: Sequence[str], *, default: bool) -> Iterator[tuple[str, list[float]]]:
    for name in names:
        try:
            cells = measured(name, [density_mode(), loop_mode(), *([None] if default else [])])
        except NotImplementedError as error:  # PyTensor lacks some gradients
            print(f"{name}: {error}")
            continue
        if not default:
            cells[5:5] = [np.nan, np.nan]
        print(name, *(f"{c:.3g}" for c in cells), flush=True)
        yield name, cells


def rows_of(found: dict[str, list[float]]) -> list[list[str]]:
    """Write the table: the zoo's medians first, then the slowest of it and all other models."""
    zoo = np.array([cells for name, cells in found.items() if name not in MODELS])
    zoo = zoo[~np.isnan(zoo[:, 0])] if len(zoo) else zoo
    lines = []
    limits = np.array([np.inf, np.inf])
    if len(zoo):
        middle = np.median(zoo, axis=0)
        limits = SLOW * middle[[1, 3]]
        lines.append([f"median of {len(zoo)} models of the zoo", *map(_text, middle), ""])
    ordered = sorted(found.items(), key=lambda pair: -np.nan_to_num(pair[1][1]))
    slowest = [name for name, _ in ordered if name not in MODELS][:SHOWN]
    for name, cells in ordered:
        if name not in {*slowest, *MODELS, *BY_HAND}:
            continue
        is_slow = bool((np.array([cells[1], cells[3]]) > limits).any())
        reason = REASONS.get(name, "**unknown**") if is_slow else ""
        reason = "discrete variables" if np.isnan(cells[0]) else reason
        lines.append([name, *map(_text, cells), reason])
    return lines


def _text(number: float) -> str:
    return "" if np.isnan(number) else f"{number:,.1f}" if number < 10 else f"{number:,.0f}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--zoo", type=int, default=1, help="every n-th model of the zoo")
    parser.add_argument("--default", action="store_true", help="PyTensor's default mode, too")
    options = parser.parse_args()
    names = [*MODELS, *[n for i, n in enumerate(CASES) if i % options.zoo == 0 or n in BY_HAND]]
    chosen = [n for n in names if any(part.lower() in n.lower() for part in options.only)]
    lines = rows_of(dict(all_measured(chosen, default=options.default)))
    used = [i for i, _ in enumerate(HEADER) if any(line[i] for line in lines)]
    header, *lines = [[line[i] for i in used] for line in (HEADER, *lines)]
    print(markdown(header, lines))


if __name__ == "__main__":
    main()
