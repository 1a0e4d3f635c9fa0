"""Draws that need no coreset: certified ones from around the mode.

May import all of `sampling` and the rooms below it.
"""
