"""Linear operations, written in forms that rows can be selected in, or that are quicker.

May import: what `reading` may.
"""
