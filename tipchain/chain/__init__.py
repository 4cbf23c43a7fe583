"""TIPC chains: from a parameter file to commands, and from commands to results."""
