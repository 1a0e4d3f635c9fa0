"""Judge a coreset posterior: from its own draws, against the full posterior, and in plots.

The plots need matplotlib, which is loaded when the first of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pymc_coresets.diagnostics.comparison import Comparison, compare
from pymc_coresets.diagnostics.datatree import check_draws, ratios_by_chain, reweight_draws
from pymc_coresets.diagnostics.distances import energy_distance, gaussian_kl, polynomial_mmd
from pymc_coresets.diagnostics.judging import Check

if TYPE_CHECKING:
    from pymc_coresets.diagnostics.plots import plot_comparison, plot_history, plot_weights

__all__ = [
    "Check",
    "Comparison",
    "check_draws",
    "compare",
    "energy_distance",
    "gaussian_kl",
    "plot_comparison",
    "plot_history",
    "plot_weights",
    "polynomial_mmd",
    "ratios_by_chain",
    "reweight_draws",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load the plots on first use: they bring matplotlib with them."""
    if name in {"plot_comparison", "plot_history", "plot_weights"}:
        return getattr(import_module("pymc_coresets.diagnostics.plots"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
