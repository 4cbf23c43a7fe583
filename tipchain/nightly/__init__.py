"""Many chains and alignment cases in one night: what runs, where, what is left of it."""
