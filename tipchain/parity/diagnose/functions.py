"""Functions that ports leave out, add or mistake for each other, and the arguments of functions that they get wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tipchain.parity.diagnose.acts import Unary, instead, then, with_argument
from tipchain.parity.diagnose.acts import argument as argument_of
from tipchain.parity.diagnose.arguments import EPSILONS, MODES, PAD_MODES, RATES
from tipchain.parity.diagnose.hypotheses import Hypothesis
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import LAYER, Op

_FLAGS = (True, False)
MOST_EPSILON = 0.01
_SLOPES = (0.01, 0.1, 0.2, 0.3, 0.25, 0.05, 0.0)
_AXES = (-1, 1, 0, 2, 3)
ACTIVATIONS = frozenset(
    [
        "relu",
        "relu6",
        "leaky_relu",
        "elu",
        "celu",
        "selu",
        "gelu",
        "silu",
        "swish",
        "hardswish",
        "hardsigmoid",
        "sigmoid",
        "tanh",
        "softplus",
        "mish",
        "softmax",
        "log_softmax",
        "hardtanh",
        "softsign",
        "log_sigmoid",
        "tanhshrink",
        "hardshrink",
        "softshrink",
        "thresholded_relu",
        "prelu",
        "rrelu",
    ]
)
LAYER_ACTIVATIONS = frozenset(
    [
        "ReLU",
        "ReLU6",
        "LeakyReLU",
        "ELU",
        "CELU",
        "SELU",
        "GELU",
        "Silu",
        "Swish",
        "Hardswish",
        "Hardsigmoid",
        "Sigmoid",
        "Tanh",
        "Softplus",
        "Mish",
        "Softmax",
        "LogSoftmax",
        "Hardtanh",
        "Softsign",
        "LogSigmoid",
        "Tanhshrink",
        "Hardshrink",
        "Softshrink",
        "ThresholdedReLU",
        "PReLU",
        "RReLU",
    ]
)


RARE: Mapping[str, frozenset[str]] = {
    "normalize": frozenset({"normalize", "norm", "vector_norm", "linalg_vector_norm"}), "exp": frozenset({"exp"}),
    "abs": frozenset({"abs", "absolute"}), "square": frozenset({"square", "pow"}),
}  # fmt: skip
"""Functions that are tried only where the reference calls something of the kind, by torch's names."""


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
    "leaky_relu": (Argument(code="negative-slope", name="negative_slope", place=1, usual=_SLOPES),),
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
    "channel_shuffle": (Argument(code="groups", name="groups", place=1, usual=(2, 3, 4, 8)),),
    "tril": (Argument(code="causal-mask", name="diagonal", place=1, usual=(0, 1, -1)),),
    "triu": (Argument(code="causal-mask", name="diagonal", place=1, usual=(0, 1, -1)),),
    "flip": (Argument(code="axis", name="axis", place=1, usual=(0, 1, 2, 3, -1)),),
}  # fmt: skip


def activations(paddle: Any, *, rank: int, everything: bool = True) -> Iterator[tuple[str, str, Unary]]:
    """Yield activations: torch's name, how Paddle's code writes it, and the function; the usual ones first."""
    f = paddle.nn.functional
    yield "relu", "F.relu", f.relu
    yield "gelu", "F.gelu", f.gelu
    yield "silu", "F.silu", f.silu
    yield "relu6", "F.relu6", f.relu6
    yield "sigmoid", "F.sigmoid", f.sigmoid
    yield "tanh", "paddle.tanh", f.tanh
    for axis in dict.fromkeys((-1, *range(rank - 1))):
        yield "softmax", f"F.softmax(axis={axis})", partial(f.softmax, axis=axis)
    yield "leaky_relu", "F.leaky_relu", f.leaky_relu
    yield "hardswish", "F.hardswish", f.hardswish
    yield "hardsigmoid", "F.hardsigmoid", f.hardsigmoid
    if not everything:
        return
    yield "elu", "F.elu", f.elu
    yield "gelu", "F.gelu(approximate=True)", partial(f.gelu, approximate=True)
    yield "mish", "F.mish", f.mish
    yield "softplus", "F.softplus", f.softplus
    for slope in (0.1, 0.2, 0.3, 0.25, 0.05):
        yield (
            "leaky_relu",
            f"F.leaky_relu(negative_slope={slope})",
            partial(f.leaky_relu, negative_slope=slope),
        )
    for axis in dict.fromkeys((-1, *range(rank - 1))):
        yield "log_softmax", f"F.log_softmax(axis={axis})", partial(f.log_softmax, axis=axis)
    yield "hardsigmoid", "F.hardsigmoid(slope=0.2)", partial(f.hardsigmoid, slope=0.2)
    yield "selu", "F.selu", f.selu
    yield "hardtanh", "F.hardtanh", f.hardtanh
    yield "softsign", "F.softsign", f.softsign
    yield "logsigmoid", "F.log_sigmoid", f.log_sigmoid
    yield "quick_gelu", "x * F.sigmoid(1.702 * x)", lambda x: x * f.sigmoid(1.702 * x)
    yield "squared relu", "F.relu(x) ** 2", lambda x: f.relu(x) ** 2
    yield "exp", "paddle.exp", paddle.exp
    yield "abs", "paddle.abs", paddle.abs
    yield "square", "paddle.square", paddle.square
    if rank:  # Paddle's norm reads beyond a number without axes
        yield "normalize", "F.normalize(axis=-1)", partial(f.normalize, axis=-1)


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
            if argument.name == "axis" and not _has_axis(op, value):
                continue
            confirmed = number < len(told)

            act = with_argument(place, value, argument.name)

            yield Hypothesis(
                code=argument.code, acts={op.number: act}, confirmed=confirmed, cost=1.0 if confirmed else 1.1,
                message=f"`{argument.name}` of `{op.name}` at {op.place} is {'the default' if given is None else repr(given)}, the reference's behaves like {value!r}",
                fix=f"pass `{argument.name}={value!r}` to `{op.name}` at {op.place}: `{op.line}`",
            )  # fmt: skip


def _has_axis(op: Op, axis: Any) -> bool:
    """Tell whether the first tensor of a call has these axes: some of Paddle's kernels read beyond it where not."""
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


def by_activation(op: Op, piece: Piece, first: Any) -> Iterator[Hypothesis]:
    """Yield a call followed by an activation, or with another one in its place, or without it.

    Args:
        op: the call.
        piece: the piece it is in.
        first: the first tensor that it returned.
    """
    paddle = piece.sides[1].framework.paddle  # type: ignore[attr-defined]
    kind = type(op.layer).__name__ if op.name == LAYER else op.name
    is_one = kind in (LAYER_ACTIVATIONS if op.name == LAYER else ACTIVATIONS)
    where = place_of(op, piece)
    for name, written, function in activations(paddle, rank=len(first.shape)):
        rare = 0.5 if name in RARE else 0.0
        if rare and not RARE[name] & set(piece.truth.names):
            continue
        confirmed = not rare and any(one.rstrip("_") == name for one in piece.truth.names)
        extra = 0.0 if confirmed else 0.3
        if is_one:
            replace = instead(function)
            code = "other-activation"
            if name == "leaky_relu" and kind in ("leaky_relu", "LeakyReLU"):
                code = "negative-slope"
            elif name == "gelu" and kind in ("gelu", "GELU"):
                code = "gelu-form"
            elif name == "softmax" and kind in ("softmax", "Softmax"):
                code = "softmax-axis"
            yield Hypothesis(
                code=code, acts={op.number: replace}, confirmed=confirmed, cost=1.0 + extra,
                message=f"it applies `{kind}`{where}, the reference `{written}`", fix=f"write `{written}` for `{kind}`{where}",
            )  # fmt: skip
        missing = kind == "Identity"
        append = then(function)
        yield Hypothesis(
            code="missing-activation", acts={op.number: append}, confirmed=confirmed,
            cost=(1.0 if missing else 1.05 if not is_one else 1.4) + extra + rare,
            message=f"it lacks `{written}` after {called(op)}{where}",
            fix=f"apply `{written}` after {called(op)}{where}",
        )  # fmt: skip
    if is_one:
        skip = argument_of(0)
        yield Hypothesis(
            code="extra-activation", acts={op.number: skip}, message=f"it applies `{kind}`{where}, the reference doesn't",
            fix=f"remove `{kind}`{where}",
        )  # fmt: skip


def by_dropout(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call followed by dropout, where the reference drops: torch's probabilities first."""
    if not piece.reference.training:
        return
    functional = piece.sides[1].framework.paddle.nn.functional  # type: ignore[attr-defined]
    layers = [one for _, one in piece.sides[0].layers(piece.reference)]
    told = [one.p for one in layers if "Dropout" in type(one).__name__]
    for probability in dict.fromkeys([*told, *RATES]):
        act = then(partial(functional.dropout, p=probability, training=True))
        yield Hypothesis(
            code="missing-dropout", acts={op.number: act}, confirmed=probability in told,
            message=f"it lacks `dropout` with p={probability} after {called(op)}{place_of(op, piece)}",
            fix=f"apply `F.dropout(p={probability}, training=self.training)` after {called(op)}{place_of(op, piece)}",
        )  # fmt: skip


def called(op: Op) -> str:
    """Return what a call is called in messages."""
    return (
        f"`{op.path}`"
        if op.name == LAYER and op.path
        else f"`{op.name}`"
        if op.name != LAYER
        else "the layer"
    )


def place_of(op: Op, piece: Piece) -> str:
    """Return where a call stands, for messages."""
    return f" at {op.place}" if op.place and not (op.name == LAYER and not op.path) else f" in {piece.shown}"
