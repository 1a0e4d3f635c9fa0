"""Searches uphill: from one point, from many at once, and from a mode to those of few rows.

May import `density`, `normal` and what these import.
"""
