"""What is shown of a coreset: its rows beside all rows, in tables and in pictures.

What belongs here: columns of the rows, their summary, and what is shown of a coreset. May import:
`updates`, `predictive`, `diagnostics`, `potentials`, `reading`, `rows`, `display`, pandas,
Matplotlib.
"""
