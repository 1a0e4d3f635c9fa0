"""Generalised linear models: rows depend on the free variables through few numbers.

What belongs here: the linear predictors of a model (`predictor`), quadratics for all rows and rows
for their residual (`control_variates`), and concavity of quadratics (`concavity`). May import: PyMC
and the rooms below.
"""
