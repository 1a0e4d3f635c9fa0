"""Scales of hierarchies: which variables they are, and the modes of their marginal posterior.

May import `mode_search`, `climbing`, `normal` and what these import.
"""
