"""Bayesian coresets for PyMC: the posterior of all rows from a few weighted ones."""

from importlib.metadata import version

from lazy_loader import attach_stub

__version__ = version("pymc-coresets")

# `__init__.pyi` says where names are. They are loaded when they are first used: SciPy's statistics,
# Numba and ArviZ take seconds, and worker processes load no more than their task needs.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
