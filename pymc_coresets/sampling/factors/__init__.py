"""Cholesky factors of positive definite matrices: dense, sparse, and of arrowhead form.

What belongs here: decompositions, and how those of one sparsity pattern are found once. May
import: NumPy, SciPy, `reading.quadratic`.
"""
