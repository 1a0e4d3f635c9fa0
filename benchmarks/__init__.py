"""What the package costs and how good its coresets are: one module for each question."""
