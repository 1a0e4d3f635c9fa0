"""Generalised linear models: rows depend on the free variables through few numbers.

What belongs here: the linear predictors of a model (`predictor`), quadratics for all rows and rows
for their residual (`control_variates`), polynomial approximate sufficient statistics, which are
quadratics for degree 2 (`polynomial`), concavity of quadratics (`concavity`), and rows of logistic
regressions by their sensitivities. May import: PyMC and the rooms below.
"""
