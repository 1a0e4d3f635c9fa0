"""PASS-GLM: polynomial approximate sufficient statistics, and their posterior.

May import: what `glm` may.
"""
