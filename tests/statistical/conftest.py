"""The statistical tests under other random numbers, for those who ask for them.

Every seed in these tests is fixed. ``PYMC_CORESETS_TEST_SEED=3`` shifts them all, those given as
``random_seed`` included, so that a tolerance that only fits the fixed ones is found out. The data,
which belong to the modules, stay the same.
"""

import os

import numpy as np
import pytest

SHIFT = int(os.environ.get("PYMC_CORESETS_TEST_SEED", "0"))


@pytest.fixture(scope="module", autouse=True)
def _shifted_seeds():
    fixed = np.random.default_rng

    def shifted(seed=None):
        return fixed([seed, SHIFT] if isinstance(seed, int | np.integer) else seed)

    with pytest.MonkeyPatch.context() as patch:
        if SHIFT:
            patch.setattr(np.random, "default_rng", shifted)
        yield
