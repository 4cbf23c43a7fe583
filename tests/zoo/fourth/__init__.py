"""The fourth zoo: what people really get wrong when they port, in nets that the other zoos lack.

The faults follow fixes in public ports and the notes on reproducing papers: copied lines, defaults of the other framework, weights that are
converted wrongly, losses and data that nearly agree. Nothing of the search for causes was read for it.
"""
