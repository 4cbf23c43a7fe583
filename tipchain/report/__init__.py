"""Reports of runs: one value, rendered as text, JSON and JUnit XML."""
