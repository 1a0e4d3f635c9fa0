"""Tables of rows in memory, in files and on clusters, read in chunks.

What belongs here: `open_rows`; conversion of columns to arrays, labels to codes, and pieces of a
source to chunks. May import: NumPy and pandas; pyarrow in modules that are loaded when such a
source is opened, Dask in functions.
"""
