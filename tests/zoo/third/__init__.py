"""The third zoo: other nets than vision classifiers and plain Transformers, with faults that were written down first.

A port is a file of source, and a fault is a line of it that reads otherwise: `planting.load` replaces the line and
imports what comes out, so that a faulty port is a port that someone could have written.
"""
