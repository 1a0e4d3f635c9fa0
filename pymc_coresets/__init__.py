"""Bayesian coresets for PyMC: the posterior of all rows from a few weighted ones."""

from importlib.metadata import version
from typing import Any

from pymc_coresets.algorithms import (
    GIGA,
    IHT,
    FrankWolfe,
    Pursuit,
    QuasiNewton,
    RiemannianPursuit,
    SparseVI,
    Uniform,
)
from pymc_coresets.build import build_coreset
from pymc_coresets.coreset import Coreset
from pymc_coresets.diagnostics import compare
from pymc_coresets.exceptions import CoresetError, CoresetWarning
from pymc_coresets.weighting import Laplace, Pathfinder, Prior, Subsample

__version__ = version("pymc-coresets")

__all__ = [
    "GIGA",
    "IHT",
    "Coreset",
    "CoresetError",
    "CoresetWarning",
    "FrankWolfe",
    "Laplace",
    "Pathfinder",
    "Prior",
    "Pursuit",
    "QuasiNewton",
    "RiemannianPursuit",
    "SparseVI",
    "Subsample",
    "Uniform",
    "build_coreset",
    "compare",
    "plot_comparison",
    "plot_history",
    "plot_weights",
]

_PLOTS = ("plot_comparison", "plot_history", "plot_weights")


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load matplotlib with the first plot only."""
    if name in _PLOTS:
        from pymc_coresets import diagnostics  # noqa: PLC0415

        return getattr(diagnostics, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
