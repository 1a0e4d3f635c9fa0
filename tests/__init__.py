"""Tests.  A package, so that no installed one of this name comes first."""
