"""Needs of runs before they start: data."""
