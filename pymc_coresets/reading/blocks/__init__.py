"""Blocks: free variables that belong to one level of a factor, independent of other levels.

What belongs here: which coordinates of the free variables the rows and the prior link, which of
them become blocks and which are shared, and the numerical check of it.  May import: PyMC, PyTensor,
SciPy, `rows`.
"""
