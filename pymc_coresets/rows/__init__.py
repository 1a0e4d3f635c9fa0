"""Where the rows of the data live, and the rows of some positions as values.

What belongs here: `Rows`, sources of rows, merging of equal rows.  May import: NumPy.
"""
