"""Other modes of a posterior.

What belongs here: where they are looked for, on a sample of the rows, how they are weighed on all
of them, and distributions around several modes.  May import what `sampling` may.
"""
