"""From torch's modules to a port that is proved: what a builder rests on, paconvert's conversion of it, and edits of its source."""
