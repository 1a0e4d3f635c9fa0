"""Step methods of chains: Hamiltonian Monte Carlo with known metrics, and independent proposals.

What belongs here: step methods, their starting information, and the options of `pm.sample` for
them.  May import: what `sampling` may, and the modes and proposals of `sampling`.
"""
