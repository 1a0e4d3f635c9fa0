"""The likelihood terms of a model: which are summarised, and where their observations lie.

May import: what `reading` may.
"""
