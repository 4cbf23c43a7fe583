"""Constructor arguments of Paddle's layers as causes: set to the reference's values first, then to usual ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from tipchain.parity.diagnose.hypotheses import Hypothesis, attributes
from tipchain.parity.diagnose.program import Act, Op

EPSILONS = (1e-5, 1e-3, 1e-6, 1e-12, 1e-4, 1e-8, 1e-2, 1e-7, 1e-10, 0.0)
"""Epsilons that are tried where neither side tells one, likeliest first: the defaults of both frameworks' norms, of
TensorFlow's (1e-3), BERT's (1e-12) and the powers of ten between."""
RATES = (0.0, 0.1, 0.2, 0.5, 0.3, 0.25, 0.4, 0.6, 0.7, 0.8, 0.05, 0.15, 0.9)
"""Dropout rates that are tried where neither side tells one: those of papers, in steps of 0.05 and 0.1; 0: none."""
MODES = ("nearest", "bilinear", "bicubic", "linear", "trilinear", "area")
PAD_MODES = ("constant", "reflect", "replicate", "circular")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """An argument of a layer's constructor.

    Attributes:
        code: the cause's slug.
        attribute: where Paddle's layer keeps it.
        argument: what Paddle's constructor calls it.
        torch: where torch's module keeps it; empty if it has none.
        usual: values that are common.
        read: turns torch's value into Paddle's.
    """

    code: str
    attribute: str
    argument: str
    torch: str = ""
    usual: Sequence[Any] = ()
    read: Callable[[Any], Any] | None = None


def _opposite(value: Any) -> Any:
    return not value


_EPSILON = Knob(code="epsilon", attribute="_epsilon", argument="epsilon", torch="eps", usual=EPSILONS)
_FLAGS = (True, False)
_POOL = (
    Knob(code="ceil-mode", attribute="ceil_mode", argument="ceil_mode", torch="ceil_mode", usual=_FLAGS),
    Knob(code="exclusive", attribute="exclusive", argument="exclusive", torch="count_include_pad", usual=_FLAGS, read=_opposite),
    Knob(code="padding", attribute="padding", argument="padding", torch="padding", usual=(0, 1, 2, 3)),
    Knob(code="stride", attribute="stride", argument="stride", torch="stride", usual=(1, 2, 3, 4)),
    Knob(code="kernel-size", attribute="ksize", argument="kernel_size", torch="kernel_size", usual=(2, 3, 4, 5)),
    Knob(code="kernel-size", attribute="kernel_size", argument="kernel_size", torch="kernel_size", usual=(2, 3, 4, 5)),
    Knob(code="divisor", attribute="divisor", argument="divisor_override", torch="divisor_override"),
)  # fmt: skip
SLOPES = (0.01, 0.1, 0.2, 0.3, 0.25, 0.05, 0.02, 0.15, 0.0)
"""Slopes of leaky ReLUs that are tried where neither side tells one: the default 0.01, DarkNet's 0.1, GANs' 0.2 and 0.02, RReLU's; 0: none."""
KNOBS: tuple[tuple[tuple[str, ...], tuple[Knob, ...]], ...] = (
    (("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm", "SyncBatchNorm"), (_EPSILON,)),
    (("GroupNorm",), (
        Knob(code="num-groups", attribute="_num_groups", argument="num_groups", torch="num_groups", usual=(1, 2, 4, 8, 16, 32)),
    )),
    (("LeakyReLU",), (
        Knob(code="negative-slope", attribute="_negative_slope", argument="negative_slope", torch="negative_slope", usual=SLOPES),
    )),
    (("ELU", "CELU", "SELU"), (
        Knob(code="alpha", attribute="_alpha", argument="alpha", torch="alpha", usual=(1.0, 0.1, 0.2, 0.5, 2.0)),
    )),
    (("GELU",), (
        Knob(code="gelu-form", attribute="_approximate", argument="approximate", torch="approximate", usual=_FLAGS,
             read=lambda value: value == "tanh"),
    )),
    (("Hardtanh",), (
        Knob(code="bounds", attribute="_min", argument="min", torch="min_val", usual=(-1.0, 0.0, -2.0)),
        Knob(code="bounds", attribute="_max", argument="max", torch="max_val", usual=(1.0, 6.0, 2.0)),
    )),
    (("Softplus",), (
        Knob(code="beta", attribute="_beta", argument="beta", torch="beta", usual=(1, 2, 0.5)),
        Knob(code="threshold", attribute="_threshold", argument="threshold", torch="threshold", usual=(20, 10)),
    )),
    (("Hardshrink", "Softshrink", "ThresholdedReLU"), (
        Knob(code="threshold", attribute="_threshold", argument="threshold", torch="lambd", usual=(0.5, 1.0, 0.1)),
    )),
    (("Softmax", "LogSoftmax"), (
        Knob(code="softmax-axis", attribute="_axis", argument="axis", torch="dim", usual=(-1, 1, 0, 2, 3)),
    )),
    (("GLU",), (Knob(code="axis", attribute="_axis", argument="axis", torch="dim", usual=(-1, 1, 2)),)),
    (("MaxPool", "AvgPool", "LPPool"), _POOL),
    (("AdaptiveAvgPool", "AdaptiveMaxPool"), (
        Knob(code="output-size", attribute="_output_size", argument="output_size", torch="output_size"),
    )),
    (("Upsample",), (
        Knob(code="align-corners", attribute="align_corners", argument="align_corners", torch="align_corners", usual=_FLAGS, read=bool),
        Knob(code="interpolation-mode", attribute="mode", argument="mode", torch="mode", usual=MODES),
        Knob(code="align-mode", attribute="align_mode", argument="align_mode", usual=(0, 1)),
        Knob(code="output-size", attribute="size", argument="size", torch="size"),
        Knob(code="scale-factor", attribute="scale_factor", argument="scale_factor", torch="scale_factor"),
    )),
    (("Dropout", "AlphaDropout"), (
        Knob(code="dropout-p", attribute="p", argument="p", torch="p", usual=RATES),
        Knob(code="dropout-mode", attribute="mode", argument="mode", usual=("upscale_in_train", "downscale_in_infer"),
             torch="p", read=lambda _: "upscale_in_train"),
        Knob(code="dropout-axis", attribute="axis", argument="axis", usual=(None, [0, 1])),
    )),
    (("Pad", "ConstantPad", "ReflectionPad", "ReplicationPad", "ZeroPad", "CircularPad"), (
        Knob(code="padding-mode", attribute="_mode", argument="mode", usual=PAD_MODES),
        Knob(code="padding-value", attribute="value", argument="value", torch="value", usual=(0.0, 1.0, -1.0)),
        Knob(code="padding", attribute="padding", argument="padding", torch="padding", read=list),
    )),
    (("LSTM", "GRU", "SimpleRNN"), (
        Knob(code="time-major", attribute="time_major", argument="time_major", torch="batch_first", usual=_FLAGS, read=_opposite),
        Knob(code="dropout-p", attribute="dropout", argument="dropout", torch="dropout", usual=RATES),
    )),
    (("PixelShuffle", "PixelUnshuffle"), (
        Knob(code="upscale-factor", attribute="_upscale_factor", argument="upscale_factor", torch="upscale_factor", usual=(2, 3, 4)),
    )),
    (("ChannelShuffle",), (Knob(code="groups", attribute="_groups", argument="groups", torch="groups", usual=(2, 3, 4)),)),
    (("Flatten",), (
        Knob(code="flatten-axes", attribute="start_axis", argument="start_axis", torch="start_dim", usual=(0, 1, 2)),
        Knob(code="flatten-axes", attribute="stop_axis", argument="stop_axis", torch="end_dim", usual=(-1, -2)),
    )),
    (("Embedding",), (
        Knob(code="padding-idx", attribute="_padding_idx", argument="padding_idx", torch="padding_idx", usual=(-1, 0),
             read=lambda value: -1 if value is None else value),
    )),
    (("LocalResponseNorm",), (
        Knob(code="size", attribute="size", argument="size", torch="size", usual=(2, 3, 5)),
        Knob(code="alpha", attribute="alpha", argument="alpha", torch="alpha", usual=(1e-4, 1e-3, 1e-5)),
        Knob(code="beta", attribute="beta", argument="beta", torch="beta", usual=(0.75, 0.5)),
        Knob(code="k", attribute="k", argument="k", torch="k", usual=(1.0, 2.0)),
    )),
    (("TransformerEncoderLayer", "TransformerDecoderLayer"), (
        Knob(code="norm-order", attribute="normalize_before", argument="normalize_before", torch="norm_first", usual=_FLAGS),
    )),
    (("MultiHeadAttention",), (
        Knob(code="num-heads", attribute="num_heads", argument="num_heads", torch="num_heads", usual=(1, 2, 4, 8)),
    )),
)  # fmt: skip


def by_arguments(layer: Any, reference: Any, path: str) -> Iterator[Hypothesis]:
    """Yield a layer with each constructor argument changed, the reference's value first; then its mode.

    Args:
        layer: the port's.
        reference: torch's module at its place, or None.
        path: what the layer is called in messages.
    """
    kind = kind_of(layer)
    for names, knobs in KNOBS:
        if any(kind == name or kind[:-2] == name for name in names):
            for knob in knobs:
                if hasattr(layer, knob.attribute):
                    yield from _values(layer, reference, path, knob)
    if "Norm" in kind or "Dropout" in kind:
        yield from _modes(layer, reference, path)


def _values(layer: Any, reference: Any, path: str, knob: Knob) -> Iterator[Hypothesis]:
    present = getattr(layer, knob.attribute)
    told: list[Any] = []
    if knob.torch and hasattr(reference, knob.torch):
        given = getattr(reference, knob.torch)
        told.append(given if knob.read is None else knob.read(given))
    for number, value in enumerate([*told, *knob.usual]):
        if _same(value, present) or any(_same(value, one) for one in [*told, *knob.usual][:number]):
            continue
        changes = {knob.attribute: value}
        if knob.attribute == "num_heads":
            if layer.embed_dim % value:
                continue
            changes["head_dim"] = layer.embed_dim // value
        confirmed = number < len(told)
        yield Hypothesis(
            code=knob.code, message=f"its `{knob.argument}` is {present!r}, the reference's {'' if confirmed else 'behaves like '}{value!r}",
            fix=f"pass `{knob.argument}={value!r}` to `{path}`", confirmed=confirmed,
            within=partial(attributes, layer, **changes),
        )  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _modes(layer: Any, reference: Any, path: str) -> Iterator[Hypothesis]:
    """Yield the layer in the other of train and eval mode."""
    training = not layer.training
    confirmed = reference is not None and getattr(reference, "training", None) == training
    if "Dropout" in kind_of(layer):
        code = "dropout-in-eval" if layer.training else "dropout-off"
    else:
        code = "batch-norm-mode"
    modes = ("train", "eval") if training else ("eval", "train")
    yield Hypothesis(
        code=code, message=f"it is in {modes[1]} mode, the reference is in {modes[0]} mode", confirmed=confirmed,
        fix=f"call `{path}.{modes[0]}()` before the model runs", within=partial(attributes, layer, training=training),
    )  # fmt: skip
    if hasattr(layer, "_use_global_stats"):
        for value in (None, True, False):
            if value is not layer._use_global_stats:  # noqa: SLF001
                yield Hypothesis(
                    code="use-global-stats", message=f"its `use_global_stats` is {layer._use_global_stats}, the reference behaves like {value}",  # noqa: SLF001
                    fix=f"pass `use_global_stats={value}` to `{path}`",
                    within=partial(attributes, layer, _use_global_stats=value),
                )  # fmt: skip


def by_geometry(op: Op, reference: Any, paddle: Any, path: str) -> Iterator[Hypothesis]:
    """Yield a convolution with other padding, stride, dilation or groups.

    Args:
        op: the call of the port's convolution.
        reference: torch's module at its place, or None; then usual values are tried too.
        paddle: the framework.
        path: what the layer is called in messages.
    """
    layer, kind = op.layer, kind_of(op.layer)
    if not kind.startswith("Conv") or not hasattr(layer, "_padding"):
        return
    dims = len(layer._kernel_size)  # noqa: SLF001
    convolve = getattr(paddle.nn.functional, f"conv{dims}d" + ("_transpose" if "Transpose" in kind else ""))
    present = _present(layer, kind)

    def variant(code: str, values: Mapping[str, Any], *, confirmed: bool = False) -> Hypothesis:
        act: Act = lambda _, args, __: convolve(args[0], layer.weight, layer.bias, **{**present, **values})  # noqa: E731
        how = "" if confirmed else "behaves like "
        told = [
            f"`{name}` is {present[name]!r}, the reference's {how}{value!r}" for name, value in values.items()
        ]
        return Hypothesis(
            code=code, message=f"its {', '.join(told)}", acts={op.number: act}, confirmed=confirmed,
            fix=f"pass {', '.join(f'`{name}={value!r}`' for name, value in values.items())} to `{path}`",
        )  # fmt: skip

    wanted = _wanted(reference, present, dims)
    for name, value in wanted.items():
        yield variant(name.replace("_", "-"), {name: value}, confirmed=True)
    if len(wanted) > 1:
        yield variant(next(iter(wanted)).replace("_", "-"), wanted, confirmed=True)
    yield from _padding_modes(op, reference, paddle, path, convolve)
    for name, value in _usual(present, dims) if reference is None else ():
        yield variant(name, {name: value})
    if "Transpose" in kind:
        for number in (0, 1, 2):
            yield variant("output-padding", {"output_padding": number})
        return
    sizes = layer._kernel_size  # noqa: SLF001
    for sides in product(*[((size - 1, 0), (0, size - 1), ((size - 1) // 2, size // 2), (size // 2, (size - 1) // 2)) for size in sizes]):  # fmt: skip
        flat = [one for side in sides for one in side]
        if _pairs(flat, dims) != [
            (one, one) if isinstance(one, int) else one for one in _pairs(present["padding"], dims)
        ]:
            yield variant("padding-side", {"padding": flat if dims > 1 else list(sides[0])})
    yield from _leading(op, paddle, path, convolve, sizes)


def _usual(present: Mapping[str, Any], dims: int) -> Iterator[tuple[str, int]]:
    """Yield usual values of a convolution's arguments, those that it does not have."""
    for number in range(4):
        for name in ("padding", *(("stride", "dilation") if number else ())):
            if _pairs(present[name], dims) != [number] * dims:
                yield name, number


def _present(layer: Any, kind: str) -> dict[str, Any]:
    """Return the arguments that a Paddle convolution has, those first that name a cause best."""
    found = {name: getattr(layer, f"_{name}") for name in ("stride", "dilation", "groups", "padding")}
    return {**found, "output_padding": layer.output_padding} if "Transpose" in kind else found


def _wanted(reference: Any, present: Mapping[str, Any], dims: int) -> dict[str, Any]:
    """Return the arguments that torch's module has otherwise, as Paddle writes them."""
    found = {}
    for name, value in present.items():
        given = getattr(reference, name, None)
        if given is None:
            continue
        told = given.upper() if isinstance(given, str) else list(given) if isinstance(given, tuple) else given
        if (told != value) if name == "groups" else (_pairs(told, dims) != _pairs(value, dims)):
            found[name] = told
    return found


def _leading(op: Op, paddle: Any, path: str, convolve: Any, sizes: Sequence[int]) -> Iterator[Hypothesis]:
    """Yield the same padding in all, but on one side of each axis."""
    layer = op.layer
    padded = _pairs(layer._padding, len(sizes))  # noqa: SLF001
    whole = [2 * one if isinstance(one, int) else sum(one) if isinstance(one, tuple) else 0 for one in padded]
    pad = getattr(paddle.nn.functional.pad, "__wrapped__", paddle.nn.functional.pad)
    for side in ("before", "after"):
        amounts = [one for size in reversed(whole) for one in ((size, 0) if side == "before" else (0, size))]
        layout = {1: "NCL", 2: "NCHW", 3: "NCDHW"}[len(sizes)]

        def act(_: Any, args: Any, __: Any, amounts: Any = amounts, layout: str = layout) -> Any:
            padded = pad(args[0], amounts, mode="constant", value=0.0, data_format=layout)
            return convolve(padded, layer.weight, layer.bias, stride=layer._stride, padding=0, dilation=layer._dilation, groups=layer._groups)  # noqa: SLF001  # fmt: skip

        yield Hypothesis(
            code="padding-side", message=f"its padding stands on both sides, the reference's {side} the data",
            fix=f"pad {amounts} with `F.pad` in front of `{path}`, and pass `padding=0` to it", acts={op.number: act},
        )  # fmt: skip


def _pairs(padding: Any, dims: int) -> list[Any]:
    if isinstance(padding, str):
        return [padding.upper()] * dims
    if isinstance(padding, int):
        return [padding] * dims
    if isinstance(padding, list | tuple) and len(padding) == dims:
        return list(padding)
    if isinstance(padding, list | tuple) and len(padding) == 2 * dims:
        return [tuple(padding[2 * number : 2 * number + 2]) for number in range(dims)]
    return [0] * dims


def _padding_modes(op: Op, reference: Any, paddle: Any, path: str, convolve: Any) -> Iterator[Hypothesis]:
    """Yield a convolution whose input is padded with other values."""
    layer = op.layer
    dims = len(layer._kernel_size)  # noqa: SLF001
    pad = getattr(paddle.nn.functional.pad, "__wrapped__", paddle.nn.functional.pad)
    wanted = getattr(reference, "padding_mode", "")
    given = getattr(reference, "padding", None)
    told = given if isinstance(given, int | tuple | list) else layer._padding  # noqa: SLF001
    amounts = [
        one
        for size in reversed(_pairs(told, dims))
        for one in (size if isinstance(size, tuple) else (0, 0) if isinstance(size, str) else (size, size))
    ]
    layout = {1: "NCL", 2: "NCHW", 3: "NCDHW"}[dims]
    for mode in PAD_MODES:
        shown = "zeros" if mode == "constant" else mode
        if shown == layer._padding_mode:  # noqa: SLF001
            continue

        def act(_: Any, args: Any, __: Any, mode: str = mode) -> Any:
            padded = pad(args[0], amounts, mode=mode, data_format=layout)
            return convolve(padded, layer.weight, layer.bias, stride=layer._stride, padding=0, dilation=layer._dilation, groups=layer._groups)  # noqa: SLF001  # fmt: skip

        yield Hypothesis(
            code="padding-mode", message=f"its `padding_mode` is {layer._padding_mode!r}, the reference's {shown!r}",  # noqa: SLF001
            fix=f"pass `padding_mode={shown!r}` to `{path}`", acts={op.number: act}, confirmed=shown == wanted,

        )  # fmt: skip


def kind_of(layer: Any) -> str:
    """Return the name of the layer's class, or of Paddle's class that the user's is derived from."""
    for one in type(layer).__mro__:
        if one.__module__.startswith("paddle.nn.") and one.__name__ != "Layer":
            return str(one.__name__)
    return type(layer).__name__
