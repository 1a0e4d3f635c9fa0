"""Draws from posteriors of weighted rows.

What belongs here: Laplace approximations, NUTS, re-use of draws, weighting distributions, and what
every stand-in for the full posterior has in common.  May import: PyMC, `diagnostics`, `potentials`
and the rooms below them.
"""
