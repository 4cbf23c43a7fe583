"""Paddle's operators, functions and methods that a model's code may call, and one name for each."""

from __future__ import annotations

SPECIAL = {
    "__add__": "add", "__radd__": "add", "__sub__": "subtract", "__rsub__": "rsub", "__mul__": "multiply",
    "__rmul__": "multiply", "__truediv__": "divide", "__rtruediv__": "rdiv", "__div__": "divide", "__matmul__": "matmul",
    "__neg__": "neg", "__pow__": "pow", "__getitem__": "getitem", "__iadd__": "add", "__isub__": "subtract",
    "__imul__": "multiply", "__itruediv__": "divide",
}  # fmt: skip
"""Operators by the name they have here."""
INPLACE = frozenset({"__iadd__", "__isub__", "__imul__", "__itruediv__"})
PLAIN = (
    "abs", "add", "addmm", "astype", "baddbmm", "bmm", "broadcast_to", "cast", "chunk", "clip", "clone", "concat",
    "cos", "cumsum", "detach", "divide", "einsum", "erf", "exp", "expand", "expand_as", "flatten", "flip", "gather",
    "gather_nd", "index_select", "log", "log1p", "logsumexp", "masked_fill", "masked_select", "matmul", "max",
    "maximum", "mean", "min", "minimum", "mm", "mod", "moveaxis", "multiply", "neg", "norm", "outer", "pow", "prod",
    "reciprocal", "reshape", "repeat_interleave", "roll", "rot90", "rsqrt", "scale", "sigmoid", "sign", "sin",
    "softmax", "split", "sqrt", "square", "squeeze", "stack", "std", "strided_slice", "subtract", "sum", "swapaxes",
    "t", "take_along_axis", "tanh", "tensordot", "tile", "topk", "transpose", "tril", "triu", "unbind", "unflatten",
    "unsqueeze", "unstack", "var", "view", "where", "amax", "amin", "permute", "sub", "mul", "div", "negative",
    "float", "half", "bfloat16", "double", "slice", "concatenate", "cat", "add_", "subtract_", "multiply_", "divide_",
    "scale_", "clip_", "exp_", "sqrt_", "rsqrt_", "reshape_", "flatten_", "squeeze_", "unsqueeze_", "sigmoid_",
    "tanh_", "add_n", "kron",
)  # fmt: skip
"""Functions of `paddle` and methods of tensors that are watched, beside all of `paddle.nn.functional`."""
ALIASES = {"sub": "subtract", "mul": "multiply", "div": "divide", "negative": "neg", "permute": "transpose", "cat": "concat",
           "concatenate": "concat", "view": "reshape", "mm": "matmul", "bmm": "matmul", "amax": "max", "amin": "min",
           "cast": "astype"}  # fmt: skip
