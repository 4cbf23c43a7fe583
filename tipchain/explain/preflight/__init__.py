"""What can be compared about a model and its port before anything runs: `tipchain.explain.preflight.construction.check` does all of it."""
