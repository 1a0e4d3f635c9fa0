"""Leave-one-out cross-validation and predictions for all rows, from posterior draws.

What belongs here: what stands for all rows, the elpd of all rows from a sample of them, forward
functions that are evaluated block by block, and the data of a model.  May import: PyMC, ArviZ,
`progress`, `diagnostics`, `potentials`, `reading`, `rows`.
"""
