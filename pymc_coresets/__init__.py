"""Bayesian coresets for PyMC: the posterior of all rows from a few weighted ones."""

import gc
from importlib.metadata import version

from lazy_loader import attach_stub

__version__ = version("pymc-coresets")

# `__init__.pyi` says where names are. They are loaded when they are first used: SciPy's statistics,
# Numba and ArviZ take seconds, and worker processes load no more than their task needs.
_loaded, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    # Nothing that modules make while they are loaded is garbage, but there is so much of it that
    # the collector would look through all objects several times, for a quarter of a second.
    if not gc.isenabled():
        return _loaded(name)
    gc.disable()
    try:
        return _loaded(name)
    finally:
        gc.enable()
