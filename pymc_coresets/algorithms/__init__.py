"""Hilbert coreset constructions on plain arrays; needs NumPy and SciPy only.

`solve` runs a method on a `Problem`. `Pursuit` is the one to use; the others are baselines and the
published constructions that it is compared with.
"""

from typing import Any

from pymc_coresets.algorithms.adaptive import AdaptiveMethod, solve_adaptively
from pymc_coresets.algorithms.base import Method, solve
from pymc_coresets.algorithms.candidates import (
    default_n_draws,
    sample_candidates,
    tangent_problem,
)
from pymc_coresets.algorithms.frank_wolfe import FrankWolfe
from pymc_coresets.algorithms.giga import GIGA
from pymc_coresets.algorithms.iht import IHT
from pymc_coresets.algorithms.logistic import LogisticRows, find_centers
from pymc_coresets.algorithms.posterior import CoresetPosterior, Potentials
from pymc_coresets.algorithms.problem import Problem
from pymc_coresets.algorithms.pursuit import Pursuit
from pymc_coresets.algorithms.quasi_newton import QuasiNewton
from pymc_coresets.algorithms.riemannian import RiemannianPursuit
from pymc_coresets.algorithms.sensitivity import (
    Sensitivities,
    Sensitivity,
    bound_sensitivities,
    guaranteed_size,
    sample_by_sensitivity,
)
from pymc_coresets.algorithms.solution import Progress, Solution, Status, Trace
from pymc_coresets.algorithms.sparse_vi import SparseVI
from pymc_coresets.algorithms.uniform import Uniform, sample_uniform

#: Methods at the draws of a fixed weighting distribution.
METHODS: dict[str, type[Method[Any]]] = {
    "uniform": Uniform,
    "frank_wolfe": FrankWolfe,
    "giga": GIGA,
    "pursuit": Pursuit,
    "iht": IHT,
}

#: Methods that draw from the coreset's own posterior as they go.
ADAPTIVE_METHODS: dict[str, type[AdaptiveMethod[Any]]] = {
    "sparse_vi": SparseVI,
    "quasi_newton": QuasiNewton,
}

__all__ = [
    "ADAPTIVE_METHODS",
    "GIGA",
    "IHT",
    "METHODS",
    "AdaptiveMethod",
    "CoresetPosterior",
    "FrankWolfe",
    "LogisticRows",
    "Method",
    "Potentials",
    "Problem",
    "Progress",
    "Pursuit",
    "QuasiNewton",
    "RiemannianPursuit",
    "Sensitivities",
    "Sensitivity",
    "Solution",
    "SparseVI",
    "Status",
    "Trace",
    "Uniform",
    "bound_sensitivities",
    "default_n_draws",
    "find_centers",
    "guaranteed_size",
    "sample_by_sensitivity",
    "sample_candidates",
    "sample_uniform",
    "solve",
    "solve_adaptively",
    "tangent_problem",
]
