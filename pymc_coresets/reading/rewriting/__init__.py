"""The user's model with something else in place of its likelihood.

What belongs here: the model of weighted rows, or of another function of the parameters; and the
quadratic that may stand beside the rows.

May import: what `reading` may.
"""
