"""The problem in the tangent space, and its solvers.

What belongs here: the problem, its candidates, non-negative least squares, the solution and its
history. May import: NumPy, SciPy, `rows`.
"""
