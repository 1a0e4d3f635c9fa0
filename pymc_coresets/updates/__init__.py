"""A coreset after its construction: under other priors, and with rows that come later.

What belongs here: what `Coreset.with_model`, `Coreset.extend` and `merge` do, coresets as rows with
their data, how a stream grows, and what is known of the errors of all these.  May import: anything
below it in the architecture page.
"""
