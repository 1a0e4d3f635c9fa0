"""The problem in the tangent space, and what solves it.

What belongs here: the problem, its candidates, non-negative least squares, the loop that runs
greedy methods, and the solution. May import: NumPy, SciPy, `rows`.
"""
