"""Where the rows of the data live, and the rows of some positions as values.

What belongs here: `Rows`, chunks of rows and what their first reading says, sources of rows,
merging of equal rows.  May import: NumPy, and pandas to merge; `sources` has rules of its own.
"""
