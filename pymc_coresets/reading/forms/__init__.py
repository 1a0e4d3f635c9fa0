"""Graphs written in other forms: long format, other operations, products in place of long sums.

May import: what `reading` may.
"""
