"""Variables of units: where the nodes lie that they are integrated out by, and draws of them.

What belongs here: what needs a posterior of the shared variables.  May import: NumPy, SciPy, PyMC,
xarray, `potentials`, `reading`, `rows`.
"""
