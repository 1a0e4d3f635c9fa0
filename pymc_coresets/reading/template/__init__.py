"""Models that hold a template of the rows: a few in data containers, which stand for all of them.

What belongs here: the containers as inputs of a model's graphs, what such a model may not contain,
and its copies with other rows.  May import: PyMC, PyTensor, `rows`.
"""
