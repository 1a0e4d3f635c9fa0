"""What stands for all rows, and the user's model run forward.

What belongs here: approximations of all rows, models filled with data, forward functions that are
evaluated block by block, draws of missing outcomes, and PyMC's own densities at draws.  May import:
PyMC, `progress`, `diagnostics`, `rowlogp`, `reading`, `rows`.
"""
