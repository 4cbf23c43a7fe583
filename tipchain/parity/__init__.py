"""Comparing numbers: cases, dumps, differences, verdicts."""
