"""Transformations: operations, sets of them, and draws from a set."""
