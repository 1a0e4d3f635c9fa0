"""Evaluate the pointwise log-likelihood of a model: any rows at any draws.

What belongs here: blocks, threads, other evaluators, and the comparison with PyMC.  May import:
PyMC, PyTensor, `loops`, `reading` and the rooms below it.
"""

from pymc_coresets.deadline import compiling_in_time
from pymc_coresets.loops.fused_loops import watched_by

watched_by(compiling_in_time)
