"""Pairs of models that are equal, and pairs with one known fault, to measure what comparing two live models finds."""
