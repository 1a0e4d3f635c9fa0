"""How tests evaluate graphs without compiling them."""

from pymc_coresets.reading.folding import NUMPY_MODE as PLAIN_MODE

__all__ = ["PLAIN_MODE"]
