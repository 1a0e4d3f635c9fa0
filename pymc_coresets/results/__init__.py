"""What a coreset has to show: its rows beside all rows, and plots of it.

What belongs here: columns of the rows, their summary, plots, and what is printed of a coreset. May
import: `updates`, `diagnostics`, `potentials`, `reading`, `rows`, pandas, Matplotlib.
"""
