"""Symmetries of likelihoods, and the images of a mode under them.

What belongs here: modes and lists of them, changes of variables that may preserve a likelihood,
and their tests.  May import: what `sampling` may, and its maximisation, curvatures and densities.
"""
