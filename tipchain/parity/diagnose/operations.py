"""Paddle's operators, functions and methods that a model's code may call, and one name for each."""

from __future__ import annotations

SPECIAL = {
    "__add__": "add", "__radd__": "add", "__sub__": "subtract", "__rsub__": "rsub", "__mul__": "multiply",
    "__rmul__": "multiply", "__truediv__": "divide", "__rtruediv__": "rdiv", "__div__": "divide", "__matmul__": "matmul",
    "__neg__": "neg", "__pow__": "pow", "__getitem__": "getitem", "__iadd__": "add", "__isub__": "subtract",
    "__imul__": "multiply", "__itruediv__": "divide", "__rpow__": "rpow", "__rmatmul__": "matmul", "__floordiv__": "floor_divide",
    "__mod__": "remainder", "__lt__": "less", "__le__": "less_equal", "__gt__": "greater", "__ge__": "greater_equal",
    "__and__": "logical_and", "__or__": "logical_or", "__invert__": "logical_not", "__setitem__": "setitem",
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
    "tanh_", "add_n", "kron", "arange", "linspace", "full", "zeros", "ones", "eye", "zeros_like", "ones_like", "full_like",
    "meshgrid", "argmax", "argmin", "argsort", "sort", "median", "cumprod", "less_than", "less_equal", "greater_than",
    "greater_equal", "floor_divide", "remainder", "logical_not", "logical_and", "logical_or", "scatter", "scatter_nd",
    "put_along_axis", "index_put", "index_sample", "index_add", "diag", "lerp", "floor", "ceil", "round", "crop",
    "diff", "cdist", "trunc", "searchsorted", "rsub", "stft", "istft", "expm1", "log2", "log10", "erfinv", "atan2", "multiplex",
)  # fmt: skip
"""Functions of `paddle` and methods of tensors that are watched, beside all of `paddle.nn.functional`."""
ALIASES = {"sub": "subtract", "mul": "multiply", "div": "divide", "negative": "neg", "permute": "transpose", "cat": "concat",
           "concatenate": "concat", "view": "reshape", "mm": "matmul", "bmm": "matmul", "amax": "max", "amin": "min",
           "cast": "astype", "less_than": "less", "greater_than": "greater", "mod": "remainder", "swapaxes": "transpose",
           "swapdims": "transpose"}  # fmt: skip
CREATORS = frozenset({"arange", "linspace", "full", "zeros", "ones", "eye"})
"""Functions that make tensors of plain numbers."""
LIKES = frozenset({"zeros_like", "ones_like", "full_like"})
"""Functions that make tensors of one number, of another tensor's shape."""
FUSED = {
    "scaled_dot_product_attention": ("matmul", "multiply", "softmax", "matmul"), "linear": ("matmul", "add"), "addmm": ("matmul", "add"),
    "baddbmm": ("matmul", "add"), "layer_norm": ("mean", "var", "sqrt", "multiply", "add"),
}  # fmt: skip
"""What a function does that other code does in several calls."""
OF_TORCH = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "truediv": "divide", "true_divide": "divide", "rtruediv": "rdiv",
    "rdiv": "rdiv", "rmul": "multiply", "radd": "add", "iadd": "add", "isub": "subtract", "imul": "multiply", "itruediv": "divide",
    "negative": "neg", "permute": "transpose", "cat": "concat", "view": "reshape", "reshape": "reshape", "mm": "matmul", "bmm": "matmul",
    "rmatmul": "matmul", "amax": "max", "amin": "min", "to": "astype", "type": "astype", "float": "astype", "double": "astype",
    "half": "astype", "type_as": "astype", "clamp": "clip", "repeat": "tile", "gather": "take_along_axis", "floordiv": "floor_divide",
    "mod": "remainder", "fmod": "remainder", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "and": "logical_and", "or": "logical_or", "invert": "logical_not", "bitwise_not": "logical_not", "upsample": "interpolate",
    "T": "transpose", "mT": "transpose", "swapaxes": "transpose", "absolute": "abs", "linalg_vector_norm": "norm", "vector_norm": "norm",
    "concatenate": "concat", "scatter": "put_along_axis",
}  # fmt: skip
"""Torch's functions, methods and properties, without underscores, by the name that Paddle's have here; others are called alike."""
