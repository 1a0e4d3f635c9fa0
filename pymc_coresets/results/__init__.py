"""What a coreset says of itself: its rows beside all rows, in tables, in pictures, and for short.

What belongs here: columns of the rows, their summary, and what is shown of a coreset. May import:
`updates`, `predictive`, `diagnostics`, `potentials`, `reading`, `rows`, `display`, pandas,
Matplotlib.
"""
