"""Planted bugs that the tests must catch: `make mutants`."""
