"""Where and why a port differs: which layer, and the causes found by trying."""
