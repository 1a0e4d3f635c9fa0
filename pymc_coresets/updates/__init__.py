"""A coreset after its construction: under other priors, and with rows that come later.

What belongs here: what `Coreset.with_model` and `Coreset.extend` do, coresets as rows with their
data, and what is known of their errors.  May import: anything below it in the
architecture page.
"""
