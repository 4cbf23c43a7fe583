"""Many chains and alignment cases in one night: its items, their machines, its results."""
