"""Where the rows of the data live, and who works on them: threads, processes, a cluster's workers.

A pass over rows that lie elsewhere is one pure function, mapped over tasks: some chunks, and what
each of these is given.  An engine says where it runs.  What belongs here: `Rows`, chunks of rows
and what their first reading says, sources of rows, merging of equal rows, passes, tasks, engines.
May import: NumPy, pandas to merge, cloudpickle; Dask through `compat`; `sources` has its own rules.
"""
