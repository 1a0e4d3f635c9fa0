"""Generalised linear models: rows see the free variables through few numbers.

What belongs here: the linear predictors of a model (`predictor`), quadratics for all rows and rows
for what these leave (`control_variates`), polynomial approximate sufficient statistics, quadratics
too where their degree is 2 (`polynomial`), whether quadratics have a maximum (`concavity`), and
rows of logistic regressions by their sensitivities. May import: PyMC and the rooms below.
"""
