"""Weights from torch to Paddle and back: what layers keep, which is which, and the conversion itself.

`layouts` has the terms, `torch_side` and `paddle_side` describe a model in them, `structure` and `matching` say which
tensors belong together, `convert` converts state dicts and files. No framework is imported until it is needed.
"""
