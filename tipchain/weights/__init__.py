"""Weights from torch to Paddle and back: the tensors of layers, their pairs, and the conversion itself.

`sides` describes a model of either framework in the same terms, `structure` and `matching` say which tensors belong
together, `convert` converts state dicts and files. No framework is imported until it is needed.
"""
