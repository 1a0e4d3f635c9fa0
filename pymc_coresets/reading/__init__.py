"""Take a PyMC model apart, and put it together again on other rows.

What belongs here: likelihood terms and their observation axis, the push-down of a row selection
with its rules, missing values, draws and the unconstrained space of the free variables, the
rewriting of a model, and the quadratic that may stand beside its rows.  May import: PyMC, PyTensor,
xarray, `rows`.
"""
