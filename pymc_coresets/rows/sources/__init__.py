"""Tables of rows in memory, in files and on clusters, read in chunks.

What belongs here: `open_rows`; how columns become arrays, labels codes, and pieces of a source
chunks.  May import: NumPy and pandas; other libraries are those of `kinds`.
"""
