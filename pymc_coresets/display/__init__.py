"""How results show themselves: as text of at most 80 columns, and as HTML.

What belongs here: pure functions of names, words and numbers. May import: Rich.
"""
