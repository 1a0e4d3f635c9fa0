"""Everything that reads or builds PyMC models, and their PyTensor graphs."""
