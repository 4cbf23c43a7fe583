"""Comparisons of a model and its port before anything runs: `tipchain.explain.preflight.construction.check` does them all."""
