"""Plant bugs one after another and see whether the tests notice: ``make mutants``.

A copy of the project is mutated in place. One process that has imported PyMC and pytest forks a
child for each bug; the child imports the package from the copy and runs the tests of that module,
up to the first failure: the doctests first, and what earlier bugs have shown to reach the changed
lines before the rest. At the end, one child runs the tests that failed without any bug: they must
pass. Environment variables:

- MUTANTS_SECONDS: time to spend, 1800 by default;
- MUTANTS_SEED: which bugs are picked, 1 by default;
- MUTANTS_ROOMS: how the modules' paths begin, such as ``"diagnostics glm/predictor"``;
- MUTANTS_COUNT: how many bugs in each of these, as many as there is time for by default;
- MUTANTS_LIMIT: seconds for the tests of one bug, 200 by default; it is undecided after that;
- MUTANTS_BY_HAND: 1 for those planted by hand alone, all of them.

Exits with 1 if a bug survives, or one planted by hand no longer fits its module.
"""

import math
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file
from types import CodeType
from typing import NamedTuple

import pytest
from pytensor.link.numba import cache

from tests.mutants.operators import Mutant, generated
from tests.mutants.planted import planted
from tests.mutants.table import files_for

ROOT = Path(__file__).parents[2]
PACKAGE = "pymc_coresets"
SECONDS = float(os.environ.get("MUTANTS_SECONDS", "1800"))
SEED = int(os.environ.get("MUTANTS_SEED", "1"))
ROOMS = os.environ.get("MUTANTS_ROOMS", "").split()
COUNT = int(os.environ.get("MUTANTS_COUNT", "0")) or None
BY_HAND = os.environ.get("MUTANTS_BY_HAND") == "1"
TEST_LIMIT = 60  # seconds for one test: a mutant may run for ever
MUTANT_LIMIT = float(os.environ.get("MUTANTS_LIMIT", "200"))  # seconds for the tests of a mutant
LAST, REACHED = "last.txt", "reached.pickle"  # files of a child
TOOL = sys.monitoring.COVERAGE_ID
#: Rooms of functions that PyTensor keeps compiled, by keys which do not depend on their source.
KEPT = ("loops/", "compat/")
WARM = [
    "numpy", "scipy.stats", "scipy.optimize", "xarray", "pandas", "arviz", "arviz_plots", "pymc",
    "hypothesis", "numba", "matplotlib.pyplot", "pytensor.link.numba.linker", "numba.np.ufunc",
]  # fmt: skip
QUIET = ["-xq", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


class Reached(NamedTuple):
    """What a test reached: modules of the package and lines there, and the seconds it took."""

    lines: set[tuple[str, int]]
    seconds: float


class Watch:
    """A pytest plugin: limits the time of each test, and notes the last, which fails if any does.

    Parameters
    ----------
    folder : Path
        Of the copy, in which it writes.
    changed : set of tuple
        The changed module and lines: tests that reach them come first in their file.
    known : dict
        What tests are known to reach, by their identifiers.
    """

    def __init__(
        self, folder: Path, changed: set[tuple[str, int]], known: dict[str, Reached]
    ) -> None:
        self.folder, self.changed, self.known = folder, changed, known
        self.lines: set[tuple[str, int]] = set()
        self.package = f"{folder / PACKAGE}/"
        sys.monitoring.use_tool_id(TOOL, __name__)
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, self._note)

    def _note(self, code: CodeType, line: int) -> object:
        if code.co_filename.startswith(self.package):
            self.lines.add((code.co_filename.removeprefix(self.package), line))
        return sys.monitoring.DISABLE  # once for each test

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        """Undo the order of `tests/conftest.py`, the slowest first, too."""
        files = [argument.split("::")[0] for argument in config.args]

        def order(item: pytest.Item) -> tuple[int, int, float]:
            file, reached = files.index(item.nodeid.split("::")[0]), self.known.get(item.nodeid)
            if reached is None:
                return 1, file, 0.0
            return (0 if self.changed & reached.lines else 2), file, reached.seconds

        items.sort(key=order)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        (self.folder / LAST).write_text(item.nodeid)
        self.lines = set()
        sys.monitoring.restart_events()
        sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)
        started = time.monotonic()
        signal.alarm(TEST_LIMIT)
        try:
            return (yield)
        finally:
            signal.alarm(0)
            sys.monitoring.set_events(TOOL, 0)
            if item.nodeid not in self.known:
                with (self.folder / REACHED).open("ab") as file:
                    pickle.dump((item.nodeid, self.lines, time.monotonic() - started), file)

    def pytest_collectreport(self, report):
        if report.failed:
            (self.folder / LAST).write_text(report.nodeid)


class Copy:
    """A copy of the project in which one module at a time is mutated."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.last = folder, folder / LAST
        self.known: dict[str, Reached] = {}
        self.failed: set[str] = set()  # tests that have noticed a bug
        for name in (PACKAGE, "tests", "benchmarks", "docs", "examples"):
            measured = ("results", "figures") if name == "benchmarks" else ()
            ignored = shutil.ignore_patterns("__pycache__", *measured)
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for path in (folder / PACKAGE).rglob("*.py"):
            compile_file(path, invalidation_mode=PycInvalidationMode.CHECKED_HASH)

    def verdict(self, mutant: Mutant) -> str:
        """Say whether the tests catch it: "caught", "survived" or "undecided" (no time)."""
        path = self.folder / PACKAGE / mutant.module
        text = path.read_text()
        path.write_text(mutant.apply(text))
        try:
            tests = [f"{PACKAGE}/{mutant.module}", *files_for(mutant.module)]
            status = self._run(tests, {(mutant.module, n) for n in mutant.lines(text)})
        finally:
            path.write_text(text)
        if status in {None, pytest.ExitCode.OK}:
            return "undecided" if status is None else "survived"
        if status in {pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR}:
            output = (self.folder / "output.txt").read_text()
            if output.startswith("ImportError while loading conftest"):
                return "caught"
            raise SystemExit(output)
        if self.last.exists():
            self.failed.add(self.last.read_text())
        return "caught"

    def unsound(self) -> str:
        """Return the first test that has noticed a bug, and fails without any; empty if none."""
        # A module that could not be imported may hold no test of its own.
        fine = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
        if not self.failed or self._run(sorted(self.failed), set(), math.inf) in fine:
            return ""
        output = (self.folder / "output.txt").read_text()
        return self.last.read_text() if self.last.exists() else output

    def _run(
        self, tests: list[str], changed: set[tuple[str, int]], limit: float = MUTANT_LIMIT
    ) -> int | None:
        """Run tests in a child; its exit status, or None where it did not finish in time."""
        self.last.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # idle threads of pyarrow
            child = os.fork()
        if not child:
            os.setsid()
            self._become_pytest(tests, changed)
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            finished, status = os.waitpid(child, os.WNOHANG)
            if finished:
                _end_group(child)
                self._learn()
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        _end_group(child)
        os.waitpid(child, 0)
        return None

    def _become_pytest(self, tests: list[str], changed: set[tuple[str, int]]) -> None:
        status = pytest.ExitCode.INTERNAL_ERROR
        try:
            os.chdir(self.folder)
            if any(module.startswith(KEPT) for module, _ in changed):
                # Neither is the sound function found there, nor is the wrong one kept.
                cache.NUMBA_CACHE_PATH = Path(tempfile.mkdtemp(dir=self.folder))
            sys.path.insert(0, str(self.folder))
            for name in [n for n in sys.modules if n.split(".")[0] in {"tests", PACKAGE}]:
                del sys.modules[name]
            output = os.open(self.folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the child, whatever it computes
            status = pytest.main(
                [*QUIET, *tests], plugins=[Watch(self.folder, changed, self.known)]
            )
        except BaseException:  # noqa: BLE001 - nothing may unwind into the parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    def _learn(self) -> None:
        """Read what the tests of a child have reached."""
        path = self.folder / REACHED
        if path.exists():
            with path.open("rb") as file, suppress(EOFError, pickle.UnpicklingError):
                while True:
                    nodeid, lines, seconds = pickle.load(file)
                    self.known[nodeid] = Reached(lines, seconds)
            path.unlink()


def _end_group(child: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def candidates(stale: list[str]) -> dict[str, list[Mutant]]:
    """The mutants of each room in the order in which they are tried: planted ones every other."""
    rng = random.Random(SEED)
    by_hand, by_machine = defaultdict(list), defaultdict(list)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        module, text = str(path.relative_to(ROOT / PACKAGE)), path.read_text()
        chosen = [room for room in ROOMS if module.startswith(room)]
        if ROOMS and not chosen:
            continue
        room = chosen[0] if chosen else module.split("/", maxsplit=1)[0].removesuffix(".py")
        by_hand[room] += planted(module, text, stale)
        by_machine[room] += generated(module, text)
    found = {}
    for room, mutants in by_machine.items():
        rng.shuffle(mutants)
        rng.shuffle(by_hand[room])
        paired = [m for pair in zip(by_hand[room], mutants, strict=False) for m in pair]
        found[room] = by_hand[room] if BY_HAND else paired + mutants[len(by_hand[room]) :]
    return found


def in_turn(rooms: dict[str, list[Mutant]]) -> Iterator[tuple[str, Mutant]]:
    """One mutant of each room after the other, as long as there are any."""
    valid = {
        room: islice((m for m in mutants if m.changes(original(m))), COUNT)
        for room, mutants in rooms.items()
    }
    while valid:
        for room in list(valid):
            if (mutant := next(valid[room], None)) is None:
                del valid[room]
            else:
                yield room, mutant


def original(mutant: Mutant) -> str:
    return (ROOT / PACKAGE / mutant.module).read_text()


def main() -> None:
    started = time.monotonic()
    os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and some import much
    for name in WARM:
        with suppress(ImportError):
            import_module(name)
    scores: dict[str, Counter[str]] = defaultdict(Counter)
    survivors, stale = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPATH"] = folder
        copy = Copy(Path(folder))
        for room, mutant in in_turn(candidates(stale)):
            before = time.monotonic()
            if before - started > SECONDS:
                break
            verdict = copy.verdict(mutant)
            text = original(mutant)
            where = f"{PACKAGE}/{mutant.module}:{mutant.line(text)}"
            print(f"{verdict:9} {time.monotonic() - before:4.0f} s  {where}", flush=True)
            scores[room][verdict] += 1
            if verdict != "caught":
                survivors.append(f"{verdict} {where}\n{mutant.diff(text)}")
                print(mutant.diff(text), flush=True)
        print("", *survivors, sep="\n")
        if unsound := copy.unsound():
            raise SystemExit(f"{unsound} fails without any bug")
    tried, caught = 0, 0
    for room, score in sorted(scores.items()):
        print(f"{room:24} {score['caught']:4} of {score.total():4} caught")
        tried, caught = tried + score.total(), caught + score["caught"]
    minutes = (time.monotonic() - started) / 60
    print(f"{'in all':24} {caught:4} of {tried:4} caught, {tried / minutes:.1f} a minute")
    print(*(f"does not fit its module any more: {bug}" for bug in stale), sep="\n")
    sys.exit(caught < tried or bool(stale))


if __name__ == "__main__":
    main()
