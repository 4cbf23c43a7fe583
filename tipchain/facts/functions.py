"""The table of functions: one name for each operator, function and method of both frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from tipchain.framework_types import Nested, Options, Tensor
from tipchain.numbers.tolerance import LOGIT_FLOOR

# Paddle's operators, functions and methods that a model's code may call, and one name for each.


def _pairs(names: Sequence[str]) -> dict[str, str]:
    return {name: told for name, _, told in (one.partition(":") for one in names)}


_OPERATORS = _pairs(
    """
    add:add radd:add sub:subtract rsub:rsub mul:multiply rmul:multiply truediv:divide rtruediv:rdiv div:divide
    matmul:matmul neg:neg pow:pow getitem:getitem iadd:add isub:subtract imul:multiply itruediv:divide rpow:rpow
    rmatmul:matmul floordiv:floor_divide mod:remainder lt:less le:less_equal gt:greater ge:greater_equal eq:equal ne:not_equal
    and:logical_and or:logical_or invert:logical_not setitem:setitem
""".split()
)
SPECIAL = {f"__{name}__": told for name, told in _OPERATORS.items()}
"""Operators by the name they have here."""
INPLACE = frozenset({"__iadd__", "__isub__", "__imul__", "__itruediv__"})
BESIDE = frozenset({"astype", "detach", "rsub", "frame", "overlap_add"})
"""Methods and functions that are watched beside those that Paddle lists."""
UNWATCHED = frozenset(
    """
    bernoulli bernoulli_ binomial poisson standard_gamma standard_normal normal normal_ log_normal log_normal_ uniform
    uniform_ exponential_ cauchy_ geometric_ random_ multinomial rand_like randn_like randint_like top_p_sampling
    svd_lowrank pca_lowrank grad rank shape numel tolist save set_ resize_ is_tensor is_empty is_complex
    is_floating_point is_integer where_ increment assign
""".split()
)
"""Functions that draw numbers, or compute none of what they are given."""
_SHARED = _pairs(
    """
    negative:neg permute:transpose cat:concat concatenate:concat view:reshape mm:matmul bmm:matmul amax:max
    amin:min swapaxes:transpose
""".split()
)
ALIASES = {
    **_SHARED,
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "cast": "astype",
    "less_than": "less",
    "greater_than": "greater",
    "mod": "remainder",
    "clamp": "clip",
    "ravel": "flatten",
    "matrix_transpose": "transpose",
    "view_as": "reshape",
    "swapdims": "transpose",
    "upsample": "interpolate",
}
"""Paddle's functions and methods that go by another name here."""
CREATORS = frozenset({"arange", "linspace", "full", "zeros", "ones", "eye", "to_tensor"})
"""Functions that make tensors of plain numbers."""
LIKES = frozenset({"zeros_like", "ones_like", "full_like"})
"""Functions that make tensors of one number, of another tensor's shape."""
OF_TORCH = {
    **_OPERATORS,
    **_SHARED,
    **_pairs(
        """
        true_divide:divide rdiv:rdiv reshape:reshape to:astype type:astype float:astype double:astype half:astype
        type_as:astype clamp:clip repeat:tile gather:take_along_axis fmod:remainder bitwise_not:logical_not
        upsample:interpolate T:transpose mT:transpose absolute:abs linalg_vector_norm:norm vector_norm:norm
        scatter:put_along_axis scatter_add:put_along_axis conv_transpose1d:conv1d_transpose
        conv_transpose2d:conv2d_transpose conv_transpose3d:conv3d_transpose huber_loss:smooth_l1_loss
        multilabel_margin_loss:multi_label_margin_loss multilabel_soft_margin_loss:multi_label_soft_margin_loss
        threshold:thresholded_relu upsample_bilinear:interpolate upsample_nearest:interpolate tensor:to_tensor
        as_tensor:to_tensor from_numpy:to_tensor
    """.split()
    ),
}
"""Torch's functions, methods and properties, without underscores, by the name that Paddle's have here; others are called alike."""
NAMES = {
    "dim": "axis",
    "dims": "axis",
    "other": "y",
    "eps": "epsilon",
    "exponent": "y",
    "key": "item",
    "dim0": "axis",
    "min_val": "min",
    "max_val": "max",
    "lambd": "threshold",
}
"""Paddle's names of settings that torch calls otherwise."""
_POOLED = {"exclusive": False}
DEFAULTS: Mapping[str, Options] = {
    "avg_pool1d": _POOLED,
    "avg_pool2d": _POOLED,
    "avg_pool3d": _POOLED,
    "grid_sample": {"align_corners": False},
    "affine_grid": {"align_corners": False},
}
"""Defaults of torch's functions, under Paddle's names, where Paddle's do something else (3.3)."""
OPPOSITES = {"count_include_pad": "exclusive"}
"""Flags of torch's that mean the opposite of Paddle's."""


# Functions of one name that compute something else in Paddle 3.3, for arguments where that shows.


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMeaning:
    """A function of Paddle's that computes something else than torch's of its name.

    Attributes:
        words: what Paddle's does, and torch's, after the function's name.
        write: what computes torch's in Paddle; ``{axis}`` stands for an argument's value.
        compute: does, given the module, the arguments by name and Paddle's result; None where both mean the same.
        argument: the argument that they mean otherwise.
    """

    words: str
    write: str
    compute: Callable[[ModuleType, Options, Nested], Nested]
    argument: str = ""


def _log_softmax(paddle: ModuleType, given: Options, _result: Tensor) -> Tensor:
    x, axis = given["x"], -1 if given.get("axis") is None else given["axis"]
    far = float((x.max(axis=axis) - x.min(axis=axis)).max()) > LOGIT_FLOOR
    return x - paddle.logsumexp(x, axis=axis, keepdim=True) if far else None


def _cross_entropy(_paddle: ModuleType, given: Options, result: Tensor) -> Tensor:
    labels, ignored = given["label"], given["ignore_index"]
    plain = given["reduction"] == "mean" and given["weight"] is None and not labels.is_floating_point()
    kept = int((labels != ignored).sum()) if plain and ignored < 0 else 0
    return result * (labels.size / kept) if 0 < kept < labels.size else None


def _median(paddle: ModuleType, given: Options, result: Tensor) -> Tensor:
    if isinstance(result, tuple) or given["mode"] != "avg":
        return None
    lower = paddle.median(given["x"], given["axis"], given["keepdim"], mode="min")
    return lower[0] if isinstance(lower, tuple) else lower


def _pad(paddle: ModuleType, given: Options, _result: Tensor) -> Tensor:
    whole = len(given["pad"]) == 2 * given["x"].ndim and given["mode"] == "constant"
    last = {"value": given["value"], "pad_from_left_axis": False}
    return paddle.nn.functional.pad(given["x"], given["pad"], **last) if whole else None


OTHERWISE: Mapping[str, OtherMeaning] = {
    "logsoftmax": OtherMeaning(
        words=f"takes inputs more than {LOGIT_FLOOR:g} below the largest for {LOGIT_FLOOR:g} below, torch's takes them as they are",
        write="x - paddle.logsumexp(x, axis={axis}, keepdim=True)",
        compute=_log_softmax,
    ),
    "crossentropy": OtherMeaning(
        words="divides by all labels where `ignore_index` is negative, torch's by those that are another",
        write="F.cross_entropy(input, label, reduction='sum') / (label != ignore_index).sum()",
        compute=_cross_entropy,
        argument="ignore_index",
    ),
    "median": OtherMeaning(
        words="gives the mean of the two values in the middle, torch's the lower one",
        write="paddle.median(x, axis, mode='min')",
        compute=_median,
        argument="mode",
    ),
    "pad": OtherMeaning(
        words="counts numbers for all axes from the first axis, torch's from the last",
        write="F.pad(x, pad, pad_from_left_axis=False)",
        compute=_pad,
        argument="pad_from_left_axis",
    ),
    "svd": OtherMeaning(
        words="gives the transpose of the V that `torch.svd` gives",
        write="V.mT",
        compute=lambda _paddle, _given, result: (*result[:2], result[2].mT.conj()),
    ),
    "smoothl1": OtherMeaning(
        words="is Huber's loss, `delta` times as large as torch's",
        write="F.smooth_l1_loss(input, label, delta=delta) / delta",
        compute=lambda _paddle, given, result: None if given["delta"] == 1 else result / given["delta"],
        argument="delta",
    ),
}
"""By Paddle's function or layer in small letters, without underscores and without ``Loss``."""
