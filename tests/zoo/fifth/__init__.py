"""The fifth zoo: defaults, axes and loops that ports get wrong, told from memory, in six nets that the other zoos lack.

Nothing of the search for causes was read for it. It is smaller than the fourth, and has loops (steps) and cases besides.
"""
