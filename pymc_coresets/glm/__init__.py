"""Generalised linear models: what can be done where all acts through a linear predictor.

What belongs here: the linear predictor of a model (`predictor`), polynomial approximate
sufficient statistics (`polynomial`), and sensitivities of logistic regression (`logistic`). May
import: PyMC and the rooms below.
"""
