"""How chains move: PyMC's NUTS, its metric where that is known, and proposals without a chain.

What belongs here: step methods, what they begin with, and the options of `pm.sample` for them.
May import: what `sampling` may, and the modes and proposals of `sampling`.
"""
