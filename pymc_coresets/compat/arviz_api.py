"""All that is used of ArviZ beyond its documented functions, in one place.

`array_stats` is its statistics on plain arrays.  ArviZ may change these names in any release;
`tests/unit/test_compat.py` says what broke.
"""

import sys

import numpy as np
from arviz_base import xarray_sel_iter
from arviz_base.labels import BaseLabeller
from arviz_stats.base import array_stats
from arviz_stats.utils import ELPDDataLOOSubsample
from scipy.special import logsumexp


def _remember_without_jax() -> None:
    """Let SciPy learn that arrays of NumPy are none of JAX, which it remembers.

    It asks only where JAX was imported.  But ArviZ leaves a module in its place that is loaded at
    the first question: 140 MB of memory, and an ImportError where the address space is limited.
    """
    lazy = type(sys.modules.get("jax")).__name__ == "_LazyModule"
    placeholder = {"jax": sys.modules.pop("jax")} if lazy else {}
    try:
        logsumexp(np.zeros(2))
    finally:
        sys.modules.update(placeholder)


_remember_without_jax()
