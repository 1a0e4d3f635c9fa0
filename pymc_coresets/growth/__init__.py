"""Growth of a coreset: additional rows, other priors, and streams.

What belongs here: `Coreset.with_model`, `Coreset.extend`, `merge` and `CoresetStream`, coresets as
rows with their data, and estimates of their errors.  The package works without this room.  May
import: anything below it in the architecture page, neither `papers` nor `after`.
"""
