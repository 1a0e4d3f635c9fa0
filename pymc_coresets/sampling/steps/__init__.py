"""How chains move: Hamiltonian Monte Carlo, its metric where that is known, and proposals alone.

What belongs here: step methods, what they begin with, and the options of `pm.sample` for them.
May import: what `sampling` may, and the modes and proposals of `sampling`.
"""
