"""How tests evaluate graphs: as the package does, or without compiling them."""

from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.folding import NUMPY_MODE as PLAIN_MODE
from pymc_coresets.reading.folding import WRITTEN_MODE

__all__ = ["PLAIN_MODE", "WRITTEN_MODE", "loop_mode"]
