"""Functions that ports leave out, add or mistake for each other, and the arguments of functions that they get wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tipchain.parity.diagnose.acts import Unary, instead, then
from tipchain.parity.diagnose.acts import argument as argument_of
from tipchain.parity.diagnose.arguments import RATES, SLOPES
from tipchain.parity.diagnose.hypotheses import Hypothesis
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import LAYER, Op

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


RANK = 4
"""Axes of images: samples, channels, rows, columns."""
RARE: Mapping[str, frozenset[str]] = {
    "normalize": frozenset({"normalize", "norm", "vector_norm", "linalg_vector_norm"}), "exp": frozenset({"exp"}),
    "abs": frozenset({"abs", "absolute"}), "square": frozenset({"square", "pow"}),
}  # fmt: skip
"""Functions that are tried only where the reference calls something of the kind, by torch's names."""


def activations(paddle: Any, *, shape: Sequence[int]) -> Iterator[tuple[str, str, Unary]]:
    """Yield activations: torch's name, how Paddle's code writes it, and the function; the usual ones first."""
    f = paddle.nn.functional
    axes = [axis for axis in (-1, *range(len(shape) - 1)) if shape and shape[axis] > 1]
    yield "relu", "F.relu", f.relu
    yield "gelu", "F.gelu", f.gelu
    yield "silu", "F.silu", f.silu
    yield "relu6", "F.relu6", f.relu6
    yield "sigmoid", "F.sigmoid", f.sigmoid
    yield "tanh", "paddle.tanh", f.tanh
    for axis in axes:
        yield "softmax", f"F.softmax(axis={axis})", partial(f.softmax, axis=axis)
    yield "leaky_relu", "F.leaky_relu", f.leaky_relu
    yield "hardswish", "F.hardswish", f.hardswish
    yield "hardsigmoid", "F.hardsigmoid", f.hardsigmoid
    yield "elu", "F.elu", f.elu
    yield "gelu", "F.gelu(approximate=True)", partial(f.gelu, approximate=True)
    yield "mish", "F.mish", f.mish
    yield "softplus", "F.softplus", f.softplus
    for slope in filter(None, SLOPES):
        yield (
            "leaky_relu",
            f"F.leaky_relu(negative_slope={slope})",
            partial(f.leaky_relu, negative_slope=slope),
        )
    for axis in axes:
        yield "log_softmax", f"F.log_softmax(axis={axis})", partial(f.log_softmax, axis=axis)
    yield "hardsigmoid", "F.hardsigmoid(slope=0.2)", partial(f.hardsigmoid, slope=0.2)
    yield "selu", "F.selu", f.selu
    yield "hardtanh", "F.hardtanh", f.hardtanh
    yield "softsign", "F.softsign", f.softsign
    yield "logsigmoid", "F.log_sigmoid", f.log_sigmoid
    yield "quick_gelu", "x * F.sigmoid(1.702 * x)", lambda x: x * f.sigmoid(1.702 * x)
    yield "exp", "paddle.exp", paddle.exp
    yield "abs", "paddle.abs", paddle.abs
    yield "square", "paddle.square", paddle.square
    yield (
        "squared relu",
        "F.relu(x) ** 2",
        lambda x: f.relu(x) ** 2,
    )  # of what is not negative the square, too
    if -1 in axes:  # Paddle's norm reads beyond a number without axes
        yield "normalize", "F.normalize(axis=-1)", partial(f.normalize, axis=-1)


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
    if is_one:
        skip = argument_of(0)
        yield Hypothesis(
            code="extra-activation", acts={op.number: skip}, message=f"it applies `{kind}`{where}, the reference doesn't",
            fix=f"remove `{kind}`{where}",
        )  # fmt: skip
    for name, written, function in activations(paddle, shape=first.shape):
        rare = name in RARE
        if rare and not RARE[name] & set(piece.truth.names):
            continue
        confirmed = not rare and any(one.rstrip("_") == name for one in piece.truth.names)
        if is_one and not _is_same(kind, name, written):  # its settings are looked at elsewhere
            replace = instead(function)
            code = "other-activation"
            if name == "leaky_relu" and kind in ("leaky_relu", "LeakyReLU"):
                code = "negative-slope"
            elif name == "gelu" and kind in ("gelu", "GELU"):
                code = "gelu-form"
            elif name == "softmax" and kind in ("softmax", "Softmax"):
                code = "softmax-axis"
            yield Hypothesis(
                code=code, acts={op.number: replace}, confirmed=confirmed,
                message=f"it applies `{kind}`{where}, the reference `{written}`", fix=f"write `{written}` for `{kind}`{where}",
                place=op.path if op.name == LAYER else None,
            )  # fmt: skip
        append = then(function)
        yield Hypothesis(
            code="missing-activation", acts={op.number: append}, confirmed=confirmed,
            message=f"it lacks `{written}` after {called(op)}{where}",
            fix=f"apply `{written}` after {called(op)}{where}",
            place=op.path if op.layer is not None and op.result is op.args[0] else None,
        )  # fmt: skip


def _is_same(kind: str, name: str, written: str) -> bool:
    """Tell whether an activation is the one that is called, without settings of its own."""
    return kind.lower().replace("_", "") == name.replace("_", "") and "(" not in written


def by_resize_to_one(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield resizing to one row or column as torch does it: Paddle takes the first, torch the middle.

    Source: Paddle's ``interpolate`` has a ratio of 0 wherever the result has one pixel, whatever ``align_corners`` is.
    """
    made = op.result
    if (
        op.name not in ("interpolate", "upsample")
        or len(getattr(made, "shape", ())) != RANK
        or 1 not in made.shape[2:]
    ):
        return
    sizes, where = list(made.shape[2:]), place_of(op, piece)
    yield Hypothesis(
        code="resize-to-one", acts={op.number: instead(partial(_sampled, piece, sizes))},
        message=f"`{op.name}`{where} reduces an axis to one pixel: Paddle takes the first, the reference the middle one",
        fix=f"write `F.grid_sample` at the pixels' middles, `padding_mode='border'`, for `{op.name}`{where}: `{op.line}`",
    )  # fmt: skip


def _sampled(piece: Piece, sizes: Sequence[int], tensor: Any) -> Any:
    """Return a tensor resized with bilinear weights between pixels' middles."""
    paddle = piece.sides[1].framework.paddle  # type: ignore[attr-defined]
    rows, columns = ((2 * paddle.arange(size, dtype=tensor.dtype) + 1) / size - 1 for size in sizes)
    grid = paddle.stack(paddle.meshgrid(columns, rows), axis=-1).transpose([1, 0, 2])
    grid = grid.unsqueeze(0).expand([tensor.shape[0], -1, -1, -1])
    return paddle.nn.functional.grid_sample(tensor, grid, padding_mode="border", align_corners=False)


def by_other_direction(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a temporal shift the other way round: Paddle's first channels come from the step before, TSM's from the next."""
    if op.name != "temporal_shift":
        return
    where = place_of(op, piece)
    yield Hypothesis(
        code="shift-direction", acts={op.number: _backwards},
        message=f"`temporal_shift`{where} shifts the first channels from the step before and the next from the step after, the reference the other way round",
        fix=f"shift by slices as the reference does, for `temporal_shift`{where}: `{op.line}`",
    )  # fmt: skip


def _backwards(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a function of [samples times steps, ...] makes of the steps in reversed order, in theirs."""
    steps = kwargs.get("seg_num", args[1] if len(args) > 1 else 1)
    turned = [one.reshape([-1, steps, *one.shape[1:]]).flip(1).reshape(one.shape) for one in args[:1]]
    made = original(*turned, *args[1:], **kwargs)
    return made.reshape([-1, steps, *made.shape[1:]]).flip(1).reshape(made.shape)


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
