"""Methods that choose weighted rows, one file each.

What belongs here: the options of a method, its default size, and its `run` on a `Job`. May
import: NumPy, SciPy, `diagnostics`, `solving`, `rows`; neither PyMC nor PyTensor.
"""

from collections.abc import Mapping
from typing import Any

from pymc_coresets.methods.frank_wolfe import FrankWolfe
from pymc_coresets.methods.giga import GIGA
from pymc_coresets.methods.iht import IHT
from pymc_coresets.methods.plain import Exact, Uniform
from pymc_coresets.methods.pursuit import Pursuit
from pymc_coresets.methods.quasi_newton import QuasiNewton
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.methods.sparse_vi import SparseVI

#: Maps ``method=...`` to the dataclass of its options.
METHODS: Mapping[str, type[Any]] = {
    method.name: method
    for method in (
        RiemannianPursuit,
        Exact,
        Pursuit,
        IHT,
        GIGA,
        FrankWolfe,
        SparseVI,
        QuasiNewton,
        Uniform,
    )
}
