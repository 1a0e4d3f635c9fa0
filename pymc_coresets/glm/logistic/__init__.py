"""Logistic regression: the geometry of its rows, and the method that samples by sensitivities.

May import: what `glm` may.
"""
