"""What follows from a posterior for all rows: leave-one-out cross-validation, and predictions.

What belongs here: the elpd of all rows from a sample of them, and forward functions that are
evaluated block by block.  May import: PyMC, ArviZ, Zarr, `diagnostics`, `potentials`, `reading`.
"""
