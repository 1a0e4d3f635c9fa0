"""Tables of rows in memory, in files and on clusters, read in chunks.

What belongs here: `open_rows`; how columns become arrays, labels codes, and pieces of a source
chunks.  May import: NumPy and pandas; pyarrow in modules that are loaded when such a source is
opened, Dask in functions.
"""
