"""The methods that have a name."""

from typing import Any

from pymc_coresets.methods.adaptive import AdaptiveMethod
from pymc_coresets.methods.frank_wolfe import FrankWolfe
from pymc_coresets.methods.giga import GIGA
from pymc_coresets.methods.iht import IHT
from pymc_coresets.methods.pursuit import Pursuit
from pymc_coresets.methods.quasi_newton import QuasiNewton
from pymc_coresets.methods.sparse_vi import SparseVI
from pymc_coresets.methods.uniform import Uniform
from pymc_coresets.solving.loop import Method

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
