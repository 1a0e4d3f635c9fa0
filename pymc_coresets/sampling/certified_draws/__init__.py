"""Draws that need no further measurement: of certified builds, or from around the mode.

May import all of `sampling` and the rooms below it.
"""
