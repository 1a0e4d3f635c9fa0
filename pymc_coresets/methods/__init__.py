"""One file for each method that chooses weighted rows.

What belongs here: the options of a method, its default size, and how it runs on a `Job`. May
import: NumPy, SciPy, `diagnostics`, `solving`, `rows`; neither PyMC nor PyTensor.
"""
