"""Reports, tables and plots of a coreset.

What belongs here: columns of the rows, their summary, plots, and what is printed of a coreset. May
import: `updates`, `diagnostics`, `potentials`, `reading`, `rows`, pandas, Matplotlib.
"""
