"""Units: all rows of one level of a factor, whose own free variables are integrated out.

What belongs here: which free variables belong to single levels, the integral over them as a graph,
and the sums over the rows of a level.  May import: NumPy, SciPy, PyMC, PyTensor, `rows`.
"""
