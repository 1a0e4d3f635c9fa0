"""The linear predictor of a model: design matrix, coefficients, offset and link.

May import: what `glm` may.
"""
