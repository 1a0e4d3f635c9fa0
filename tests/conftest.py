"""Failed rewrites are errors, and the examples of hypothesis the same in every run by default."""

import gc
import os
import signal
from _thread import interrupt_main

import pytensor
import pytest
from hypothesis import settings

# A rewrite that fails is otherwise logged, and left out.
pytensor.config.on_opt_error = "raise"

# Half of the time goes into graphs.  A fifth of it was spent on which line made each operation, and
# on cycles among the millions of objects that were imported.
pytensor.config.traceback__limit = 0
gc.set_threshold(20_000, 20, 50)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    # What a file left open is closed while its folder is there, and what it holds is freed.
    if nextitem is None or nextitem.path != item.path:
        gc.collect()


settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("other", deadline=None)
settings.load_profile("other" if os.environ.get("PYMC_CORESETS_TEST_SEED") else "fixed")


@pytest.fixture
def ctrl_c():
    """Interrupts as Ctrl-C does, where the process ignores that too, as in the background."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield interrupt_main
    signal.signal(signal.SIGINT, usual)
