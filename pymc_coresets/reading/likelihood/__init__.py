"""The likelihood terms of a model: which are summarised, where their rows lie, what is refused.

May import: what `reading` may.
"""
