"""Variables of units: positions of the nodes that integrate them out, and draws of them.

What belongs here: code that needs a posterior of the shared variables.  May import: NumPy, SciPy,
PyMC, xarray, `rowlogp`, `reading`, `rows`.
"""
