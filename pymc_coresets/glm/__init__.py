"""Generalised linear models: the free variables act through a linear predictor alone.

What belongs here: the linear predictor of a model (`predictor`), polynomial approximate
sufficient statistics (`polynomial`), and sensitivities of logistic regression (`logistic`). May
import: PyMC and the rooms below.
"""
