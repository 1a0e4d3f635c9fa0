"""Log-densities that are one number, taken apart at their sum into rows.

May import: what `reading` may.
"""
