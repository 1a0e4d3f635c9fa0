"""NumPy runs what tests and examples evaluate a few times."""

import os

import pytest

from pymc_coresets.loops import fused_loops

#: Set to compile the loops of all tests, as `make test-all` does.
COMPILED = "PYMC_CORESETS_TEST_COMPILED" in os.environ


@pytest.fixture(autouse=True, scope="module")
def _loops(request):
    """Let NumPy run loops, but of tests marked as `compiled`, and of the examples of `loops`.

    Without caches, loops of models that no other test has took a quarter of the time to compile.
    """
    of_loops = request.path.parent.name == "loops"
    if COMPILED or of_loops or request.node.get_closest_marker("compiled"):
        yield
        return
    mode = fused_loops.loop_mode

    def by_numpy(n_given=0, *, compiled=True):
        return mode(n_given, compiled=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_loops, "loop_mode", by_numpy)
        yield
