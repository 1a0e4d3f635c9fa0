"""Updates of a coreset: other priors, and additional rows.

What belongs here: `Coreset.with_model`, `Coreset.extend` and `merge`, coresets as rows with their
data, growth of streams, and estimates of their errors.  May import: anything below it in the
architecture page.
"""
