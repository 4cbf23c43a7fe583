"""Arguments of functions as the cause: a flag, an axis, a slope or an epsilon that a call does not get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tipchain.parity.diagnose.acts import with_argument
from tipchain.parity.diagnose.arguments import EPSILONS, MODES, PAD_MODES, RATES, SLOPES
from tipchain.parity.diagnose.hypotheses import Hypothesis
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import Op

_FLAGS = (True, False)
MOST_EPSILON = max(EPSILONS)
"""Largest number that is added to be taken for an epsilon: the largest of ``EPSILONS``."""
_AXES = (-1, 1, 0, 2, 3)
"""Axes that are tried, likeliest first: the last one, the channels', the others of a tensor with four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a function.

    Attributes:
        code: the cause's slug.
        name: the argument's name.
        place: its position.
        usual: values to try.
    """

    code: str
    name: str
    place: int
    usual: Sequence[Any]


_POOL = (
    Argument(code="padding", name="padding", place=3, usual=(0, 1, 2, 3)),
    Argument(code="stride", name="stride", place=2, usual=(1, 2, 3)),
    Argument(code="kernel-size", name="kernel_size", place=1, usual=(2, 3, 4, 5)),
)
_AVERAGE = (Argument(code="exclusive", name="exclusive", place=5, usual=_FLAGS),
            Argument(code="ceil-mode", name="ceil_mode", place=4, usual=_FLAGS), *_POOL)  # fmt: skip
_MAX = (Argument(code="ceil-mode", name="ceil_mode", place=5, usual=_FLAGS), *_POOL)
_REDUCED = (Argument(code="axis", name="axis", place=1, usual=(*_AXES, [2, 3], [-2, -1], [1, 2])),)
_RESIZE = (
    Argument(code="align-corners", name="align_corners", place=4, usual=_FLAGS),
    Argument(code="interpolation-mode", name="mode", place=3, usual=MODES),
    Argument(code="align-mode", name="align_mode", place=5, usual=(0, 1)),
)
ARGUMENTS: Mapping[str, Sequence[Argument]] = {
    "softmax": (Argument(code="softmax-axis", name="axis", place=1, usual=_AXES),),
    "log_softmax": (Argument(code="softmax-axis", name="axis", place=1, usual=_AXES),),
    "gelu": (Argument(code="gelu-form", name="approximate", place=1, usual=_FLAGS),),
    "leaky_relu": (Argument(code="negative-slope", name="negative_slope", place=1, usual=SLOPES),),
    "elu": (Argument(code="alpha", name="alpha", place=1, usual=(1.0, 0.1, 0.2, 0.5, 2.0)),),
    "celu": (Argument(code="alpha", name="alpha", place=1, usual=(1.0, 0.1, 0.2, 0.5, 2.0)),),
    "softplus": (Argument(code="beta", name="beta", place=1, usual=(1, 2, 0.5)),),
    "hardsigmoid": (Argument(code="slope", name="slope", place=1, usual=(1 / 6, 0.2)),),
    "glu": (Argument(code="axis", name="axis", place=1, usual=_AXES),),
    "avg_pool1d": _AVERAGE, "avg_pool2d": _AVERAGE, "avg_pool3d": _AVERAGE,
    "max_pool1d": _MAX, "max_pool2d": _MAX, "max_pool3d": _MAX,
    "interpolate": _RESIZE, "upsample": _RESIZE,
    "pad": (Argument(code="padding-mode", name="mode", place=2, usual=PAD_MODES),
            Argument(code="padding-value", name="value", place=3, usual=(0.0, 1.0, -1.0))),
    "smooth_l1_loss": (Argument(code="huber", name="is_huber", place=4, usual=_FLAGS),
                       Argument(code="beta", name="delta", place=3, usual=(1.0,))),
    "dropout": (Argument(code="dropout-p", name="p", place=1, usual=RATES),
                Argument(code="dropout-mode", name="mode", place=4, usual=("upscale_in_train", "downscale_in_infer")),
                Argument(code="dropout-in-eval", name="training", place=3, usual=_FLAGS)),
    "dropout2d": (Argument(code="dropout-p", name="p", place=1, usual=RATES),),
    "layer_norm": (Argument(code="epsilon", name="epsilon", place=4, usual=EPSILONS),),
    "batch_norm": (Argument(code="epsilon", name="epsilon", place=7, usual=EPSILONS),
                   Argument(code="batch-norm-mode", name="training", place=5, usual=_FLAGS)),
    "group_norm": (Argument(code="epsilon", name="epsilon", place=2, usual=EPSILONS),
                   Argument(code="num-groups", name="num_groups", place=1, usual=(1, 2, 4, 8, 16, 32))),
    "instance_norm": (Argument(code="epsilon", name="eps", place=7, usual=EPSILONS),),
    "rms_norm": (Argument(code="epsilon", name="epsilon", place=4, usual=EPSILONS),),
    "normalize": (Argument(code="norm-p", name="p", place=1, usual=(2, 1)),
                  Argument(code="axis", name="axis", place=2, usual=_AXES),
                  Argument(code="epsilon", name="epsilon", place=3, usual=EPSILONS)),
    "norm": (Argument(code="norm-p", name="p", place=1, usual=(2, 1)), Argument(code="axis", name="axis", place=2, usual=_AXES)),
    "scaled_dot_product_attention": (
        Argument(code="causal-mask", name="is_causal", place=5, usual=_FLAGS),
        Argument(code="mask", name="attn_mask", place=3, usual=(None,)),
        Argument(code="dropout-p", name="dropout_p", place=4, usual=RATES),
    ),
    "mean": _REDUCED, "sum": _REDUCED, "max": _REDUCED, "min": _REDUCED, "logsumexp": _REDUCED, "prod": _REDUCED,
    "cumsum": (Argument(code="axis", name="axis", place=1, usual=_AXES),),
    "concat": (Argument(code="axis", name="axis", place=1, usual=_AXES),),
    "stack": (Argument(code="axis", name="axis", place=1, usual=_AXES),),
    "split": (Argument(code="axis", name="axis", place=2, usual=_AXES),),
    "chunk": (Argument(code="axis", name="axis", place=2, usual=_AXES),),
    "std": (Argument(code="unbiased-variance", name="unbiased", place=2, usual=_FLAGS),
            Argument(code="axis", name="axis", place=1, usual=_AXES)),
    "var": (Argument(code="unbiased-variance", name="unbiased", place=2, usual=_FLAGS),
            Argument(code="axis", name="axis", place=1, usual=_AXES)),
    "matmul": (Argument(code="transposed-operand", name="transpose_y", place=3, usual=_FLAGS),
               Argument(code="transposed-operand", name="transpose_x", place=2, usual=_FLAGS)),
    "roll": (Argument(code="shift", name="shifts", place=1, usual=(1, -1, 2, -2)),),
    "pixel_shuffle": (Argument(code="upscale-factor", name="upscale_factor", place=1, usual=(2, 3, 4)),),
    "temporal_shift": (Argument(code="shift-ratio", name="shift_ratio", place=2, usual=(0.25, 0.125)),),
    "channel_shuffle": (Argument(code="groups", name="groups", place=1, usual=(2, 3, 4, 8)),),
    "tril": (Argument(code="causal-mask", name="diagonal", place=1, usual=(0, 1, -1)),),
    "triu": (Argument(code="causal-mask", name="diagonal", place=1, usual=(0, 1, -1)),),
    "flip": (Argument(code="axis", name="axis", place=1, usual=(0, 1, 2, 3, -1)),),
}  # fmt: skip


def by_function_arguments(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call with each of its arguments changed; numbers that the reference's code has come first."""
    for argument in (*ARGUMENTS.get(op.name, ()), *_small(op)):
        if op.name == "avg_pool1d" and argument.code in (
            "exclusive",
            "ceil-mode",
        ):  # (x, k, s, p, exclusive, ceil_mode)
            place = 4 if argument.code == "exclusive" else 5
        else:
            place = argument.place
        given = op.kwargs.get(argument.name, op.args[place] if place < len(op.args) else None)
        told = [
            value
            for name in _TORCH_NAMES.get(op.name, (op.name,))
            for value in piece.truth.constants.get(name, ())
            if _of_kind(value, argument.usual)
        ]
        tried: list[Any] = [] if given is None else [given]
        for number, value in enumerate([*told, *argument.usual]):
            if any(type(value) is type(one) and value == one for one in tried):
                continue
            tried.append(value)
            if argument.name == "axis" and not has_axis(op, value):
                continue
            confirmed = number < len(told)

            act = with_argument(place, value, argument.name)

            yield Hypothesis(
                code=argument.code, acts={op.number: act}, confirmed=confirmed,
                message=f"`{argument.name}` of `{op.name}` at {op.place} is {'the default' if given is None else repr(given)}, the reference's behaves like {value!r}",
                fix=f"pass `{argument.name}={value!r}` to `{op.name}` at {op.place}: `{op.line}`",
            )  # fmt: skip


def has_axis(op: Op, axis: Any) -> bool:
    """Tell whether the first tensor of a call has some axes: some of Paddle's kernels read beyond it where not."""
    given = op.args[0] if op.args else op.kwargs.get("x")
    given = given[0] if isinstance(given, list | tuple) and given else given
    rank = len(getattr(given, "shape", ())) + (op.name == "stack")
    axes = axis if isinstance(axis, list | tuple) else (axis,)
    return all(-rank <= one < rank for one in axes if isinstance(one, int))


def _small(op: Op) -> Sequence[Argument]:
    """Return the constant that a call adds, where it is as small as those that keep roots and divisions finite."""
    value = op.args[1] if op.name == "add" and len(op.args) > 1 else None
    if not isinstance(value, float) or not 0 < value <= MOST_EPSILON:
        return ()
    return (Argument(code="epsilon", name="y", place=1, usual=EPSILONS),)


_TORCH_NAMES = {
    "hardsigmoid": ("hardsigmoid",), "concat": ("cat", "concat"), "astype": ("to", "type"),
    "interpolate": ("interpolate", "upsample"), "upsample": ("interpolate", "upsample"),
}  # fmt: skip


def _of_kind(value: Any, usual: Sequence[Any]) -> bool:
    """Tell whether a constant of the reference's code can be a value of this argument."""
    return any(type(value) is type(one) for one in usual) and not isinstance(value, bool)
