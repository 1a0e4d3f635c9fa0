"""Control variates: a quadratic for all rows, and weighted rows for its residual.

What belongs here: the quadratic of all rows, averaged over the posterior; the choice of rows for
its residual; and the method that combines both.

May import: what `glm` may.
"""
