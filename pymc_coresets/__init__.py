"""Bayesian coresets for PyMC: the posterior of all rows from a few weighted ones."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymc_coresets.build import build_coreset as build_coreset
    from pymc_coresets.coreset import Coreset as Coreset
    from pymc_coresets.diagnostics.comparison import Comparison as Comparison
    from pymc_coresets.diagnostics.comparison import compare as compare
    from pymc_coresets.diagnostics.judging import Certificate as Certificate
    from pymc_coresets.diagnostics.judging import Check as Check
    from pymc_coresets.diagnostics.judging import SecondOpinion as SecondOpinion
    from pymc_coresets.diagnostics.known_posterior import Modes as Modes
    from pymc_coresets.diagnostics.known_posterior import SeenModes as SeenModes
    from pymc_coresets.exceptions import CoresetError as CoresetError
    from pymc_coresets.exceptions import CoresetWarning as CoresetWarning
    from pymc_coresets.exceptions import InvalidDataError as InvalidDataError
    from pymc_coresets.exceptions import InvalidOptionError as InvalidOptionError
    from pymc_coresets.exceptions import SamplingError as SamplingError
    from pymc_coresets.exceptions import UnsupportedModelError as UnsupportedModelError
    from pymc_coresets.glm.control_variates.method import ControlVariates as ControlVariates
    from pymc_coresets.glm.logistic.sensitivity import Sensitivity as Sensitivity
    from pymc_coresets.glm.polynomial.judgement import PolynomialCheck as PolynomialCheck
    from pymc_coresets.glm.polynomial.summary import PolynomialSummary as PolynomialSummary
    from pymc_coresets.methods.frank_wolfe import FrankWolfe as FrankWolfe
    from pymc_coresets.methods.giga import GIGA as GIGA
    from pymc_coresets.methods.iht import IHT as IHT
    from pymc_coresets.methods.plain import Exact as Exact
    from pymc_coresets.methods.plain import Uniform as Uniform
    from pymc_coresets.methods.pursuit import Pursuit as Pursuit
    from pymc_coresets.methods.quasi_newton import QuasiNewton as QuasiNewton
    from pymc_coresets.methods.riemannian import RiemannianPursuit as RiemannianPursuit
    from pymc_coresets.methods.sparse_vi import SparseVI as SparseVI
    from pymc_coresets.one_call import coreset_of as coreset_of
    from pymc_coresets.one_call import sample as sample
    from pymc_coresets.pass_glm import build_pass_glm as build_pass_glm
    from pymc_coresets.potentials.backends.evaluator import Jax as Jax
    from pymc_coresets.results.plots import plot_comparison as plot_comparison
    from pymc_coresets.results.plots import plot_history as plot_history
    from pymc_coresets.results.plots import plot_weights as plot_weights
    from pymc_coresets.rows.sources.opening import open_rows as open_rows
    from pymc_coresets.rows.sources.row_source import RowSource as RowSource
    from pymc_coresets.sampling.approximations import GaussianApproximation as GaussianApproximation
    from pymc_coresets.sampling.approximations import check_approximation as check_approximation
    from pymc_coresets.sampling.weighting import Laplace as Laplace
    from pymc_coresets.sampling.weighting import Prior as Prior
    from pymc_coresets.sampling.weighting import Subsample as Subsample
    from pymc_coresets.streams import CoresetStream as CoresetStream
    from pymc_coresets.updates.coverage import Coverage as Coverage
    from pymc_coresets.updates.new_rows import Ancestry as Ancestry
    from pymc_coresets.updates.new_rows import merge as merge

__version__ = version("pymc-coresets")

# Names are loaded when they are first used: SciPy's statistics, Numba and ArviZ take seconds, and
# `import pymc` loads none of them. Worker processes load no more than their task needs.
_HOMES = {
    "GIGA": "methods.giga",
    "IHT": "methods.iht",
    "Ancestry": "updates.new_rows",
    "Certificate": "diagnostics.judging",
    "Check": "diagnostics.judging",
    "Comparison": "diagnostics.comparison",
    "ControlVariates": "glm.control_variates.method",
    "Coreset": "coreset",
    "CoresetError": "exceptions",
    "CoresetStream": "streams",
    "CoresetWarning": "exceptions",
    "Coverage": "updates.coverage",
    "Exact": "methods.plain",
    "FrankWolfe": "methods.frank_wolfe",
    "GaussianApproximation": "sampling.approximations",
    "InvalidDataError": "exceptions",
    "InvalidOptionError": "exceptions",
    "Jax": "potentials.backends.evaluator",
    "Laplace": "sampling.weighting",
    "Modes": "diagnostics.known_posterior",
    "PolynomialCheck": "glm.polynomial.judgement",
    "PolynomialSummary": "glm.polynomial.summary",
    "Prior": "sampling.weighting",
    "Pursuit": "methods.pursuit",
    "QuasiNewton": "methods.quasi_newton",
    "RiemannianPursuit": "methods.riemannian",
    "RowSource": "rows.sources.row_source",
    "SamplingError": "exceptions",
    "SeenModes": "diagnostics.known_posterior",
    "SecondOpinion": "diagnostics.judging",
    "Sensitivity": "glm.logistic.sensitivity",
    "SparseVI": "methods.sparse_vi",
    "Subsample": "sampling.weighting",
    "Uniform": "methods.plain",
    "UnsupportedModelError": "exceptions",
    "build_coreset": "build",
    "build_pass_glm": "pass_glm",
    "check_approximation": "sampling.approximations",
    "compare": "diagnostics.comparison",
    "coreset_of": "one_call",
    "merge": "updates.new_rows",
    "open_rows": "rows.sources.opening",
    "plot_comparison": "results.plots",
    "plot_history": "results.plots",
    "plot_weights": "results.plots",
    "sample": "one_call",
}

__all__ = list(_HOMES)

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
