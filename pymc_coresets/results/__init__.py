"""What a coreset has to show: its rows beside all rows, and draws that its construction weighed.

What belongs here: columns of the rows, their summary, and what is shown of a coreset. May import:
`updates`, `predictive`, `diagnostics`, `potentials`, `reading`, `rows`, `display`, pandas,
Matplotlib.
"""
