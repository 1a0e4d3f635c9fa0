"""How results show themselves: as text of at most 80 columns, and as HTML with small pictures.

What belongs here: pure functions of names, words and numbers. May import: nothing.
"""
