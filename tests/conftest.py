"""Failed rewrites are errors, and the examples of hypothesis the same in every run by default."""

import ctypes
import gc
import os
import signal
import sys
from _thread import interrupt_main
from collections import Counter
from functools import partialmethod
from pathlib import Path

import arviz_base  # noqa: F401 - before JAX is taken away below
import pymc
import pytensor
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from pytensor.compile.mode import predefined_linkers, predefined_modes
from pytensor.graph import Variable
from pytensor.graph.rewriting.basic import Rewriter
from pytensor.link.vm import VMLinker

from tests import loops_by_numpy
from tests.patches import (  # noqa: F401
    calls,
    clock,
    fails,
    instead,
    limits,
    no_lines,
    not_independent,
    nuts_by_numpy,
    sampled,
)

# A rewrite that fails is otherwise logged, and left out.
pytensor.config.on_opt_error = "raise"

# Python runs what PyTensor would otherwise write in C, such as initial points: with empty caches,
# the C compiler took half a second for each of a hundred operations.
for linker in (*predefined_linkers.values(), *(m.linker for m in predefined_modes.values())):
    if isinstance(linker, VMLinker):
        linker.c_thunks = False

# Rewriters are hashed thousands of times for each function, by `id`, of which Python informs the
# audit hook of the package that locks files: a tenth of the time of small functions.
Rewriter.__hash__ = object.__hash__

# Python evaluates expressions that examples and tests evaluate once: Numba took seconds for some.
Variable.eval = partialmethod(Variable.eval, mode="FAST_COMPILE")

# PyMC looks in all of its plots for names that it does not have, and pytest asks each module that a
# file of tests imports for some of its own.
vars(pymc).pop("__getattr__", None)

# ArviZ leaves a module in place of JAX, which loads it as soon as SciPy asks whether an array is
# JAX's own: that took a tenth of a worker's memory.  Tests that need JAX import it.
sys.modules.pop("jax", None)

# Examples would depend on each number in the package, and on what else is imported: to collect the
# numbers, all files are parsed, and all that is loaded where it is used, such as JAX, is loaded.
providers._get_local_constants = providers.Constants

# Half of the time goes into graphs.  A fifth of it was spent on which line made each operation, and
# on cycles among the millions of objects that were imported.
pytensor.config.traceback__limit = 0
gc.set_threshold(20_000, 20, 50)


#: Those that take longest with empty caches, the slowest first.  Whoever began one of these files
#: last would work alone at the end.
LONG = (
    "statistical/test_units_that_grow.py",
    "models/test_coreset_model.py",
    "models/test_units.py",
    "statistical/test_control_variates.py",
    "models/test_modes_of_units.py",
    "statistical/test_units_of_coresets.py",
    "statistical/test_trust.py",
    "statistical/test_build.py",
    "models/test_given_scales.py",
    "statistical/test_rows_that_see_many_numbers.py",
    "statistical/test_recovery.py",
    "statistical/test_sampler.py",
    "statistical/test_pass_glm.py",
    "loops/test_fused_loops.py",
    "models/test_walks_of_units.py",
    "statistical/test_updates.py",
    "unit/test_one_call.py",
    "unit/test_control_variates.py",
    "rows/test_engines.py",
    "rows/test_units_of_rows.py",
    "test_architecture.py",
    "unit/test_proposal.py",
    "unit/test_factors.py",
    "bad_input/test_bad_input.py",
    "models/test_missing_covariates.py",
    "statistical/test_approximate_posterior.py",
    "models/test_data_of_draws.py",
    "statistical/test_rows_elsewhere.py",
    "models/test_groups.py",
)


def pytest_configure(config):
    # For the examples in docstrings, too, which a fixture of this file would not be.
    config.pluginmanager.register(loops_by_numpy)


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, then with those of most tests."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONG)}
    n_tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(LONG)), -n_tests[item.path]))


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@pytest.hookimpl(trylast=True)  # when the file's own fixtures are gone
def pytest_runtest_teardown(item, nextitem):
    # What files left open is closed, and what they hold is freed.  What is alive then is not looked
    # through again after the next ones: that took half a second for each of hundreds of files.
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
        if sys.platform == "linux" and hasattr(LIBC, "malloc_trim"):
            LIBC.malloc_trim(0)  # what compilations and large arrays leave stays with us otherwise


settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("other", deadline=None)
settings.load_profile("other" if os.environ.get("PYMC_CORESETS_TEST_SEED") else "fixed")


@pytest.fixture
def ctrl_c():
    """Interrupts as Ctrl-C does, where the process ignores that too, as in the background."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield interrupt_main
    signal.signal(signal.SIGINT, usual)
