"""What follows from the posterior: leave-one-out cross-validation, predictions, tables, plots.

What belongs here: the elpd of all rows from a sample of them, predictions for all rows, the columns
of the rows and their summary, and plots.  The package works without this room.  May import:
anything below it in the architecture page, neither `papers` nor `growth`.
"""
