"""Symmetries of posteriors, and the images of their modes."""
