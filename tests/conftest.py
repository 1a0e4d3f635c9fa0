"""Examples that hypothesis makes up are the same in every run, unless other seeds are asked for."""

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("other", deadline=None)
settings.load_profile("other" if os.environ.get("PYMC_CORESETS_TEST_SEED") else "fixed")
