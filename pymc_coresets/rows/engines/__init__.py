"""Who works on rows that lie elsewhere: threads, processes, or the workers of a cluster.

A pass over the rows is one pure function, mapped over tasks: some chunks, and what each of these
is given.  An engine says where it runs; what the tasks are depends on the layout of the rows, and
their results are added up in the order of the rows, so that all engines return the same bits.
What belongs here: tasks, engines, and the choice of one.  May import: what `rows` may, and
cloudpickle; Dask through `compat`.
"""
