"""Tables of rows in memory, in files and on clusters, read in chunks.

What belongs here: `open_rows`, one module for each kind of source, labels turned into codes.  May
import: NumPy and pandas; pyarrow, dask, xarray and polars in the modules of these sources only,
which are loaded when such a source is opened.
"""
