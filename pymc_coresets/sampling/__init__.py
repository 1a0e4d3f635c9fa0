"""Draws from posteriors of weighted rows.

What belongs here: Laplace approximations, NUTS, re-use of draws, weighting distributions, and the
shared interface of approximate posteriors.  May import: PyMC, `diagnostics`, `rowlogp` and the
rooms below them.
"""
