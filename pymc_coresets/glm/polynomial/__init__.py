"""PASS-GLM: polynomial approximate sufficient statistics, and the posterior that they give.

May import: what `glm` may.
"""
