"""Scales of hierarchies: which variables they are, and the modes of their marginal posterior.

May import `maximisation`, `mode_search`, `normal` and what these import.
"""
