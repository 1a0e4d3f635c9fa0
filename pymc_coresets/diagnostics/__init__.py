"""How far a posterior is from the full one: from its own draws, and beside a full run.

What belongs here: importance ratios, the verdict on them, comparisons; all of them know draws and
log-ratios, and no models. May import: ArviZ, xarray, pandas, NumPy, SciPy.
"""
