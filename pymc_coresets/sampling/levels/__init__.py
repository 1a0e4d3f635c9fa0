"""Posteriors of thousands of levels, independent of each other given what they share.

What belongs here: their densities level by level, nested Laplace approximations, and draws from
these that weights or Metropolis steps make exact.  May import what `sampling` may.
"""
