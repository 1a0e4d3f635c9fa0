"""Observed matrices of which each cell is an observation, written with one row for each cell.

May import: what `reading` may.
"""
