"""A coreset after its construction: under other priors, and with rows that come later.

What belongs here: `Coreset.with_model`, `Coreset.extend` and `merge`, coresets as rows with their
data, growth of streams, and estimates of the errors of all these.  May import: anything
below it in the architecture page.
"""
