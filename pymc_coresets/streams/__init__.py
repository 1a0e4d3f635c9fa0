"""Rows that are seen once, and coresets that are put together from coresets.

What belongs here: the sums and candidates that a stream keeps, its epochs, whether its draws still
cover the posterior, its files; `merge`.  May import: anything below it in the architecture page.
"""
