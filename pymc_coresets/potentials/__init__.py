"""Evaluate the pointwise log-likelihood of a model: any rows at any draws.

What belongs here: blocks, threads, vector mathematics, other evaluators, and the comparison with
PyMC.  May import: PyMC, PyTensor, Numba, `reading` and the rooms below it.
"""
