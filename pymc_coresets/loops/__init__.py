"""Compiled loops for PyTensor's graphs: functions that compile quickly and are shared by threads.

What belongs here: the mode of fused loops with NumPy between them, operations by one call of NumPy,
loops that compile quickly, vectorised functions.  Nothing here depends on coresets.  May import:
PyTensor, Numba, `compat`.
"""
