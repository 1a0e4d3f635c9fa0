"""Storage of the rows of the data, and engines that process them: threads, processes, a cluster.

A pass over rows outside memory is one pure function. An engine maps it over tasks, each of which is
a few chunks with their inputs.  What belongs here: `Rows`, chunks of rows and notes of their first
reading, sources of rows, merging of equal rows, passes, tasks, engines. May import: NumPy, pandas
to merge, cloudpickle; Dask through `compat`; `sources` has its own rules.
"""
