"""Hilbert coreset constructions on plain arrays; needs NumPy and SciPy only.

`solve` runs a method on a `Problem`. `Pursuit` is the one to use; the others are baselines and the
published constructions that it is compared with.
"""

from typing import Any

from pymc_coresets.algorithms.base import Method, Progress, Solution, Status, Trace, solve
from pymc_coresets.algorithms.candidates import sample_candidates, tangent_problem
from pymc_coresets.algorithms.frank_wolfe import FrankWolfe
from pymc_coresets.algorithms.giga import GIGA
from pymc_coresets.algorithms.iht import IHT
from pymc_coresets.algorithms.posterior import CoresetPosterior, Potentials
from pymc_coresets.algorithms.problem import Problem
from pymc_coresets.algorithms.pursuit import Pursuit
from pymc_coresets.algorithms.riemannian import RiemannianPursuit
from pymc_coresets.algorithms.uniform import Uniform, sample_uniform

METHODS: dict[str, type[Method[Any]]] = {
    "uniform": Uniform,
    "frank_wolfe": FrankWolfe,
    "giga": GIGA,
    "pursuit": Pursuit,
    "iht": IHT,
}

__all__ = [
    "GIGA",
    "IHT",
    "METHODS",
    "CoresetPosterior",
    "FrankWolfe",
    "Method",
    "Potentials",
    "Problem",
    "Progress",
    "Pursuit",
    "RiemannianPursuit",
    "Solution",
    "Status",
    "Trace",
    "Uniform",
    "sample_candidates",
    "sample_uniform",
    "solve",
    "tangent_problem",
]
