"""The problem in the tangent space, and what solves it.

What belongs here: the problem, its candidates, non-negative least squares, the solution and its
history. May import: NumPy, SciPy, `rows`.
"""
