"""How far a posterior is from the full one: from its own draws, beside a full run, in pictures.

What belongs here: importance ratios, the verdict on them, comparisons, distances, plots; all of
them know draws and log-ratios, and no models. May import: ArviZ, xarray, pandas, Matplotlib, NumPy,
SciPy.
"""
