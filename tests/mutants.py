"""Planted bugs that the test suite must catch: ``python tests/mutants.py``.

Every mutant replaces one piece of source text in a copy of the project, and the tests of that
module have to fail there. Exits with 1 if a mutant survives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALGORITHMS = "pymc_coresets/algorithms"
CONTRACT = "tests/properties/test_algorithm_contract.py"


@dataclass(frozen=True)
class Mutant:
    """One wrong replacement in the module of that name, which has a test file of its own."""

    module: str
    right: str
    wrong: str
    tests: str

    @property
    def source(self) -> str:
        return f"{ALGORITHMS}/{self.module}.py"


def plant(module: str, *changes: tuple[str, str], tests: str = "") -> list[Mutant]:
    return [Mutant(module, right, wrong, tests or f"test_{module}.py") for right, wrong in changes]


MUTANTS = [
    *plant(
        "problem",
        ("block /= np.sqrt(block.shape[1])", "block /= np.sqrt(block.shape[0])"),
        ("block -= block.mean(axis=1, keepdims=True)", "block -= block.mean()"),
        ("target += weights[rows] @ block", "target += block.sum(axis=0)"),
        ("norms: Vector = peak * np.sqrt", "norms: Vector = np.sqrt"),
        ("<= spread] = 0", "<= 0] = 0"),
        ("-float(block.min())", "float(block.min())"),
        ("(self.base_weights < 0).any()", "(self.base_weights < -9).any()"),
    ),
    *plant(
        "space",
        ("selectable &= problem.base_weights > 0", "selectable &= problem.base_weights >= 0"),
        ("cosines *= length", "cosines *= 1"),
        ("total_norm / self._unit", "total_norm"),
        (
            "weights[support] @ problem.heldout_vectors[support]",
            "problem.heldout_vectors[support].sum(0)",
        ),
        ("scores[self._barred] = -np.inf", "scores[self._barred] = 0"),
        ("(direction / length).astype", "direction.astype"),
        ("* self._unit * self._unit", "* self._unit"),
        ("min(max(math.frexp(longest)[1], -1000), 1000)", "0"),
        ("np.finfo(np.float64).eps * self.norms.max()", "0"),
    ),
    *plant(
        "nnls",
        ("column -= basis @ (column @ basis)", "pass"),
        ("[:n, n] = coefficients", "[:n, n] = 0"),
        ("ratios.min() * (trial", "ratios.max() * (trial"),
        ("if height <= rounding(row):", "if height <= 1e-3 * np.linalg.norm(row):"),
        ("if height <= rounding(row):", "if height <= 0:"),
        ("(trial := self._unconstrained()).min() <= 0", "(trial := self._unconstrained()) is None"),
        ("self._coordinates[: n - 1] = self._target @ basis", "pass"),
        ("if coordinate <= self._rounding:", "if coordinate <= 0:"),
        ("if n == self._basis.shape[1]:", "if n == self._basis.shape[0]:"),
    ),
    *plant(
        "options",
        ("if not 1 <= whole <= n_obs:", "if not 0 <= whole <= n_obs:"),
        ("if not 1 <= whole <= n_obs:", "if not 1 <= whole < n_obs:"),
        tests="test_solve.py",
    ),
    *plant(
        "base",
        ("progress.heldout_objective <= method", "progress.objective <= method"),
        ("except KeyboardInterrupt:", "except GeneratorExit:"),
        ("status = Status.INTERRUPTED", "pass"),
        ("> np.linalg.norm(state.residual):", "< np.linalg.norm(state.residual):"),
        tests="test_solve.py",
    ),
    *plant(
        "uniform",
        ("counts[indices] * (total / size)", "counts[indices] * (total / len(indices))"),
        ("rng.multinomial(size, masses / total)", "rng.multinomial(1, masses / total) * size"),
        ("masses / total)", "np.full(len(masses), 1 / len(masses)))"),
        ("(total / size)", "(len(masses) / size)"),
    ),
    *plant(
        "frank_wolfe",
        ("gamma = 1.0 if is_first else", "gamma = 0.5 if is_first else"),
        ("min(descent / curvature, 1.0)", "min(descent / curvature / 2, 1.0)"),
        ("weights = (1 - gamma) * state.weights", "weights = 1.0 * state.weights"),
        ("weights[best] += gamma * length", "weights[best] = gamma * length"),
        ("length = space.total_norm /", "length = space.norms.sum() /"),
        ("best = space.best(scores)", "best = space.best(scores * space.norms)"),
        ("length * space.row(best) - (space.target - state.residual)", "length * space.row(best)"),
        ("return refit(exact) if self.polish else exact", "return exact"),
    ),
    *plant(
        "giga",
        ("space.best(ascent / sine)", "space.best(ascent)"),
        ("side = unit - overlap * y", "side = unit"),
        ("(side @ side) - overlap * rise", "(side @ side) + overlap * rise"),
        ("combined = (1 - gamma) * y + gamma * unit", "combined = y + gamma * unit"),
        ("(1 - gamma) / (reach or 1.0)", "1 / (reach or 1.0)"),
        ("weights *= (space.target @ y) / length", "weights *= space.target @ y"),
        ("1 - np.square(cosine)", "1 + np.square(cosine)"),
        ("(state.alignment - ascent)", "(state.alignment + ascent)"),
        ("weights = scale * state.weights", "weights = 1.0 * state.weights / scale / 2"),
        ("return refit(exact) if self.polish else exact", "return exact"),
    ),
    *plant(
        "pursuit",
        ("scores = space.project(state.residual)", "scores = space.project(space.target)"),
        (
            "scores = space.project(state.residual)",
            "scores = space.project(state.residual) * space.norms",
        ),
        (
            "scores = space.project(state.residual)",
            "scores = -space.project(state.residual)",
        ),
        ("threshold = space.rounding +", "threshold = 1e-3 * distance +"),
        ("ActiveSet(empty.residual, empty.size)", "ActiveSet(empty.residual, empty.size - 1)"),
        ("replace(moved, status=Status.SIZE_REACHED) if moved.is_full else moved", "moved"),
        ("weights = np.zeros_like(state.weights)", "weights = state.weights"),
        ("_STEPS_PER_POINT = 10", "_STEPS_PER_POINT = 1"),
    ),
    *plant(
        "iht",
        ("np.maximum(values[largest], 0.0)", "values[largest]"),
        ("momentum * (lengths - state.lengths)", "0 * (lengths - state.lengths)"),
        ("residual - momentum * moved", "residual + momentum * moved"),
        ("np.where(support, gradient, outside)", "gradient"),
        ("np.where(support, 0.0, gradient)", "gradient"),
        ("if residual @ residual < state.residual @ state.residual:", "if True:"),
        ("float(residual @ moved / distance), 0.0)", "float(residual @ moved / distance), -9.0)"),
        ("return refit(state)", "return state"),
        (
            "gradient = space.project(state.ahead_residual)",
            "gradient = space.project(state.residual)",
        ),
        ("lengths * space.inverse_norms", "lengths"),
    ),
    *plant(
        "sensitivity",
        ("(others - own)", "(0 * own)"),
        ("exponents[each, nearest] = np.multiply", "_ = np.multiply"),
        ("np.abs(shifts)", "0 * np.abs(shifts)"),
        ("np.append(ball_center, 1.0)", "np.append(ball_center, 0.0)"),
        ("weights / sensitivities[indices]", "weights * sensitivities[indices]"),
        ("sample_uniform(base_weights * sensitivities,", "sample_uniform(base_weights,"),
        ("_RADIUS / math.sqrt(spread)", "_RADIUS / spread"),
        ("weights + similar", "1.0 + similar"),
        ("float(weights @ values / total)", "float(values.mean())"),
        ("squared_distances(vectors, points[", "squared_distances(vectors, centers["),
        ("math.log(mean) + math.log", "math.log(mean) - math.log"),
    ),
    *plant(
        "logistic",
        ("(offset[:, None] - centers[:, -1]) ** 2", "0"),
        ("labels[:, None] * np.asarray", "np.asarray"),
        ("sparse.diags_array(labels,", "sparse.diags_array(labels**2,"),
        ("weights=weights * offset", "weights=offset"),
        tests="test_sensitivity.py",
    ),
    *plant(
        "clustering",
        ("_N_RUNS = 10", "_N_RUNS = 1"),
        ("scores = weights * distances", "scores = distances"),
        ("sums[filled] / masses", "sums[filled] / 1"),
    ),
    *plant(
        "riemannian",
        ("np.var(log_ratios)", "np.var(own)"),
        ("(1 - share) * known.own + share * total", "total"),
        ("(1 - share) * known.own + share * total", "known.own + share * total"),
        ("part /= 2", "part *= 2"),
        ("return taken * part", "return part"),
        ("self.best, unimproved = view.coreset, 0", "self.best, unimproved = current, 0"),
        ("return Status.SAMPLING_FAILED if view is None else", "return Status.OPTIMAL or"),
        ("while taken * part > _SHORTEST and not", "while taken * part > _SHORTEST and"),
        ("known = view", "known = known"),
        ("max(self.tolerance, run.start.objective)", "run.start.objective"),
        ("if not run.steps:", "if False:"),
        ("return Status.OUT_OF_TIME\n            current", "break\n            current"),
        ("if len(self.start.indices) <= self.size:", "if len(self.start.indices) > self.size:"),
        ("fits = len(self.start.indices) <= self.size", "fits = True"),
        ("within = self.best.objective <=", "within = self.best.objective >"),
        ("options.start_size or max(_LEAST_START, ", "options.start_size or min(_LEAST_START, "),
        ("min(_MARGIN * self.options.tolerance, _LOOSEST)", "_MARGIN * self.options.tolerance"),
        ("best.objective if math.isfinite(best.objective) else", "run.start.objective or"),
    ),
    *plant(
        "candidates",
        ("[draw_of]", "[rng.permutation(draw_of)]"),
        ("or np.ptp(total) == 0", ""),
        ("_HELDOUT * len(different)", "len(different) / 2"),
    ),
    *plant(
        "metering",
        ("n_rows * n_draws", "n_rows + n_draws"),
        ("n_rows / self.n_obs", "1"),
        ("self._count(self.n_obs, len(moments[0]))", "pass"),
        ("self.seconds_drawing += time", "self.seconds_drawing -= time"),
        tests="test_riemannian.py",
    ),
    *plant(
        "adaptive",
        ("found.weighted_symmetrised_kl - found.kl", "found.kl"),
        ("residual * math.sqrt(residual.size)", "residual"),
        tests="test_sparse_vi.py",
    ),
    *plant(
        "base",
        ("state, status = best, Status.NO_PROGRESS", "status = Status.NO_PROGRESS"),
        ("if overfits and not improved else 0", "if not improved else 0"),
        ("recorder.steps[-1].honest_objective", "recorder.steps[0].honest_objective"),
        tests="test_solve.py",
    ),
]


def is_caught(mutant: Mutant) -> bool:
    """Run the module's tests and the contract on a copy of the project with the bug."""
    text = (ROOT / mutant.source).read_text()
    if text.count(mutant.right) != 1:
        raise SystemExit(f"{mutant.source} must contain {mutant.right!r} exactly once")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / ALGORITHMS, copy / ALGORITHMS)
        for name in ("exceptions", "importance"):
            shutil.copy(ROOT / f"pymc_coresets/{name}.py", copy / "pymc_coresets")
        (copy / "pymc_coresets/__init__.py").touch()  # the algorithms alone, without PyMC
        shutil.copytree(ROOT / "tests", copy / "tests")
        (copy / mutant.source).write_text(text.replace(mutant.right, mutant.wrong))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        tests = [f"tests/unit/{mutant.tests}", CONTRACT]
        environment = os.environ | {"PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        run = subprocess.run(
            [*command, *tests], cwd=folder, env=environment, capture_output=True, check=False
        )
    output = run.stdout.decode() + run.stderr.decode()
    if run.returncode > 1 and "KeyboardInterrupt" not in output:  # the tests could not run
        raise SystemExit(output)
    return run.returncode > 0


def main() -> None:
    chosen = [m for m in MUTANTS if not sys.argv[1:] or m.module in sys.argv[1:]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        caught = list(pool.map(is_caught, chosen))
    for mutant, found in zip(chosen, caught, strict=True):
        if not found:
            print(f"SURVIVED {mutant.source}: {mutant.right!r} -> {mutant.wrong!r}")  # noqa: T201
    print(f"{sum(caught)} of {len(caught)} planted bugs caught")  # noqa: T201
    sys.exit(not all(caught))


if __name__ == "__main__":
    main()
