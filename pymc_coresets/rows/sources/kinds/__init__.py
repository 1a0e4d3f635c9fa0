"""One module for each kind of source, and for each kind of table that a source consists of.

What belongs here: where the rows of a library's objects are, and what its columns hold.  May
import: NumPy, pandas; pyarrow, dask, polars each in modules that are loaded when such a source is
opened.
"""
