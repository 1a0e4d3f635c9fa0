"""Methods of papers: what `build_coreset` finds by name beside its own, and PASS-GLM.

What belongs here: one file for each method, and what only these methods use.  The package works
without this room.  May import: anything below it in the architecture page, neither `growth` nor
`after`.
"""

from collections.abc import Mapping
from typing import Any

from pymc_coresets.papers.frank_wolfe import FrankWolfe
from pymc_coresets.papers.giga import GIGA
from pymc_coresets.papers.iht import IHT
from pymc_coresets.papers.quasi_newton import QuasiNewton
from pymc_coresets.papers.sensitivity import Sensitivity
from pymc_coresets.papers.sparse_vi import SparseVI

#: Maps ``method=...`` to the dataclass of its options, see `request.known_methods`.
METHODS: Mapping[str, type[Any]] = {
    method.name: method for method in (IHT, GIGA, FrankWolfe, SparseVI, QuasiNewton, Sensitivity)
}
