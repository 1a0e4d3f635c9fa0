"""Bayesian coresets for PyMC: the posterior of all rows from a few weighted ones."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymc_coresets.build import build_coreset
    from pymc_coresets.coreset import Coreset
    from pymc_coresets.diagnostics.comparison import Comparison, compare
    from pymc_coresets.diagnostics.judging import ApproximationCheck, Certificate, Check
    from pymc_coresets.diagnostics.known_modes import Modes, SeenModes
    from pymc_coresets.diagnostics.opinion import SecondOpinion
    from pymc_coresets.diagnostics.plots import plot_comparison, plot_history, plot_weights
    from pymc_coresets.exceptions import (
        CoresetError,
        CoresetWarning,
        InvalidDataError,
        InvalidOptionError,
        SamplingError,
        UnsupportedModelError,
    )
    from pymc_coresets.glm.control_variates.method import ControlVariates
    from pymc_coresets.glm.logistic.sensitivity import Sensitivity
    from pymc_coresets.glm.polynomial.judgement import PolynomialCheck
    from pymc_coresets.glm.polynomial.summary import PolynomialSummary
    from pymc_coresets.methods.exact import Exact
    from pymc_coresets.methods.frank_wolfe import FrankWolfe
    from pymc_coresets.methods.giga import GIGA
    from pymc_coresets.methods.groupwise.block_pursuit import BlockPursuit
    from pymc_coresets.methods.iht import IHT
    from pymc_coresets.methods.pursuit import Pursuit
    from pymc_coresets.methods.quasi_newton import QuasiNewton
    from pymc_coresets.methods.riemannian import RiemannianPursuit
    from pymc_coresets.methods.sparse_vi import SparseVI
    from pymc_coresets.methods.uniform import Uniform
    from pymc_coresets.pass_glm import build_pass_glm
    from pymc_coresets.potentials.backends.choice import Jax
    from pymc_coresets.reading.blocks.structure import Blocks, NoBlocks
    from pymc_coresets.results.covariate_plots import plot_coreset
    from pymc_coresets.results.group_plots import plot_groups
    from pymc_coresets.rows.sources.opening import open_rows
    from pymc_coresets.rows.sources.row_source import RowSource
    from pymc_coresets.sampling.approximations import GaussianApproximation, check_approximation
    from pymc_coresets.sampling.weighting import Laplace, Pathfinder, Prior, Subsample
    from pymc_coresets.streams.coverage import Coverage
    from pymc_coresets.streams.merging import merge
    from pymc_coresets.streams.stream import CoresetStream
    from pymc_coresets.updates.ancestry import Ancestry

__version__ = version("pymc-coresets")

__all__ = [
    "GIGA",
    "IHT",
    "Ancestry",
    "ApproximationCheck",
    "BlockPursuit",
    "Blocks",
    "Certificate",
    "Check",
    "Comparison",
    "ControlVariates",
    "Coreset",
    "CoresetError",
    "CoresetStream",
    "CoresetWarning",
    "Coverage",
    "Exact",
    "FrankWolfe",
    "GaussianApproximation",
    "InvalidDataError",
    "InvalidOptionError",
    "Jax",
    "Laplace",
    "Modes",
    "NoBlocks",
    "Pathfinder",
    "PolynomialCheck",
    "PolynomialSummary",
    "Prior",
    "Pursuit",
    "QuasiNewton",
    "RiemannianPursuit",
    "RowSource",
    "SamplingError",
    "SecondOpinion",
    "SeenModes",
    "Sensitivity",
    "SparseVI",
    "Subsample",
    "Uniform",
    "UnsupportedModelError",
    "build_coreset",
    "build_pass_glm",
    "check_approximation",
    "compare",
    "merge",
    "open_rows",
    "plot_comparison",
    "plot_coreset",
    "plot_groups",
    "plot_history",
    "plot_weights",
]

# Names are loaded when they are first used: SciPy's statistics, Numba and ArviZ take seconds, and
# `import pymc` loads none of them. Worker processes load no more than their task needs.
_HOMES = {
    "GIGA": "methods.giga",
    "IHT": "methods.iht",
    "Ancestry": "updates.ancestry",
    "ApproximationCheck": "diagnostics.judging",
    "BlockPursuit": "methods.groupwise.block_pursuit",
    "Blocks": "reading.blocks.structure",
    "Certificate": "diagnostics.judging",
    "Check": "diagnostics.judging",
    "Comparison": "diagnostics.comparison",
    "ControlVariates": "glm.control_variates.method",
    "Coreset": "coreset",
    "CoresetError": "exceptions",
    "CoresetStream": "streams.stream",
    "CoresetWarning": "exceptions",
    "Coverage": "streams.coverage",
    "Exact": "methods.exact",
    "FrankWolfe": "methods.frank_wolfe",
    "GaussianApproximation": "sampling.approximations",
    "InvalidDataError": "exceptions",
    "InvalidOptionError": "exceptions",
    "Jax": "potentials.backends.choice",
    "Laplace": "sampling.weighting",
    "Modes": "diagnostics.known_modes",
    "NoBlocks": "reading.blocks.structure",
    "Pathfinder": "sampling.weighting",
    "PolynomialCheck": "glm.polynomial.judgement",
    "PolynomialSummary": "glm.polynomial.summary",
    "Prior": "sampling.weighting",
    "Pursuit": "methods.pursuit",
    "QuasiNewton": "methods.quasi_newton",
    "RiemannianPursuit": "methods.riemannian",
    "RowSource": "rows.sources.row_source",
    "SamplingError": "exceptions",
    "SeenModes": "diagnostics.known_modes",
    "SecondOpinion": "diagnostics.opinion",
    "Sensitivity": "glm.logistic.sensitivity",
    "SparseVI": "methods.sparse_vi",
    "Subsample": "sampling.weighting",
    "Uniform": "methods.uniform",
    "UnsupportedModelError": "exceptions",
    "build_coreset": "build",
    "build_pass_glm": "pass_glm",
    "check_approximation": "sampling.approximations",
    "compare": "diagnostics.comparison",
    "merge": "streams.merging",
    "open_rows": "rows.sources.opening",
    "plot_comparison": "diagnostics.plots",
    "plot_coreset": "results.covariate_plots",
    "plot_groups": "results.group_plots",
    "plot_history": "diagnostics.plots",
    "plot_weights": "diagnostics.plots",
}

if not TYPE_CHECKING:  # type checkers read the imports above, and find names that do not exist

    def __getattr__(name: str) -> object:
        """Load a public name with its module."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"pymc_coresets.{_HOMES[name]}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """Return all names, loaded or not."""
        return sorted({*globals(), *__all__})
