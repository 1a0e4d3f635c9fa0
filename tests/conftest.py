"""Failed rewrites are errors, and the examples of hypothesis the same in every run by default."""

import os
import signal
from _thread import interrupt_main

import pytensor
import pytest
from hypothesis import settings

# A rewrite that fails is otherwise logged, and left out.
pytensor.config.on_opt_error = "raise"

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("other", deadline=None)
settings.load_profile("other" if os.environ.get("PYMC_CORESETS_TEST_SEED") else "fixed")


@pytest.fixture
def ctrl_c():
    """Interrupts as Ctrl-C does, where the process ignores that too, as in the background."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield interrupt_main
    signal.signal(signal.SIGINT, usual)
