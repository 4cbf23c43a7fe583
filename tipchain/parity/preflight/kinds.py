"""Which kind a layer is of, and which layers of different kinds compute the same."""

from __future__ import annotations

from typing import Any, Literal

from tipchain.parity.preflight import kinds_functions, kinds_sequence, kinds_space, kinds_values
from tipchain.parity.preflight.spelling import ntuple, space
from tipchain.parity.preflight.table import Kind, Pair, held, kinds_by_class, plain, same

KINDS = (*kinds_space.KINDS, *kinds_values.KINDS, *kinds_sequence.KINDS, *kinds_functions.KINDS)
_BY_CLASS = kinds_by_class(KINDS, 0), kinds_by_class(KINDS, 1)
_BY_NAME = {one.name: one for one in KINDS}
_OWN_MODULES = ("torch.nn.", "paddle.nn.")
_ACTIVATIONS = frozenset(
    ("ReLU", "Sigmoid", "Hardsigmoid", "Hardswish", "Tanh", "Mish", "Softsign", "LogSigmoid", "Tanhshrink", "SiLU", "GELU",
     "LeakyReLU", "ELU", "CELU", "SELU", "Hardtanh", "Hardshrink", "Softshrink", "Threshold", "Softplus", "Softmax",
     "LogSoftmax", "GLU", "PReLU", "RReLU")
)  # fmt: skip
DROPOUTS = frozenset(("Dropout", "AlphaDropout", "FeatureAlphaDropout"))
_RECURRENT = frozenset(("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"))


def kind_of(layer: Any, side: Literal[0, 1]) -> Kind | None:
    """Return the kind of a torch module (side 0) or Paddle layer (side 1); None of a user's own class."""
    found = _own_class(layer, side)
    if found is not None:
        return _BY_CLASS[side][found.__name__]
    if side and type(layer).__name__ in ("RNN", "BiRNN"):
        name = kinds_sequence.paddle_recurrent(layer)
        return None if name is None else _BY_NAME[name]
    return None


def runs_as_built(layer: Any, side: Literal[0, 1]) -> bool:
    """Tell whether a layer's forward is that of the framework's class, and not a subclass's own."""
    found = _own_class(layer, side)
    return found is None or type(layer).forward is found.forward


def _own_class(layer: Any, side: Literal[0, 1]) -> Any:
    known = _BY_CLASS[side]
    of_framework = (one for one in type(layer).__mro__ if one.__module__.startswith(_OWN_MODULES))
    return next((one for one in of_framework if one.__name__ in known), None)


def never_alike(one: Kind, other: Kind) -> bool:
    """Tell whether layers of two kinds are no substitutes for each other, whatever they are made with."""
    names = {one.name, other.name}
    families = (_ACTIVATIONS, DROPOUTS, _RECURRENT)
    if any(names <= family for family in families):
        return True
    pools = {name.removeprefix("Adaptive") for name in names}
    if len(pools) == 2 and {name[:3] for name in pools} == {"Max", "Avg"}:
        return len({name[-2:] for name in pools}) == 1
    return "BatchNorm" in names and bool(names & {"LayerNorm", "GroupNorm", "InstanceNorm"})


def computes_the_same(pair: Pair, kinds: tuple[Kind, Kind]) -> bool:
    """Tell whether two layers of different kinds are made so that they compute the same."""
    functions = [
        _function(layer, kind) for layer, kind in zip((pair.reference, pair.port), kinds, strict=True)
    ]
    if None not in functions and same(functions[0], functions[1]):
        return True
    windows = [
        _window(layer, kind, None if pair.shapes is None else pair.shapes[side])
        for side, (layer, kind) in enumerate(zip((pair.reference, pair.port), kinds, strict=True))
    ]
    return None not in windows and windows[0] == windows[1]


def _function(layer: Any, kind: Kind) -> tuple[Any, ...] | None:
    """Return what an activation or dropout computes, in words that several kinds share."""
    name = kind.name
    if name in ("ELU", "CELU"):
        alpha = plain(held(layer, "alpha", "_alpha"))
        return ("elu",) if alpha == 1 else (name, alpha)
    slope = name == "LeakyReLU" and held(layer, "negative_slope", "_negative_slope") == 0
    cut = name == "Threshold" and (
        held(layer, "threshold", "_threshold"),
        held(layer, "value", "_value"),
    ) == (0, 0)
    if name == "ReLU" or slope or cut:
        return ("relu",)
    if name == "Identity" or (name in DROPOUTS and layer.p == 0):
        return ("identity",)
    return None


def _window(layer: Any, kind: Kind, shape: tuple[int, ...] | None) -> Any:
    """Return the windows of a pool that divides its input evenly; an adaptive pool has them if its sizes are known."""
    inputs = space(shape, getattr(layer, "data_format", getattr(layer, "_data_format", None)))
    if inputs is None or "Pool" not in kind.name or kind.name[:2] == "LP":
        return None
    what, axes = kind.name.removeprefix("Adaptive")[:3], len(inputs)
    if kind.name.startswith("Adaptive"):
        outputs = ntuple(held(layer, "_output_size", "output_size"), axes)
        wanted = [size if out is None else out for size, out in zip(inputs, outputs, strict=True)]
        if any(size % out for size, out in zip(inputs, wanted, strict=True)):
            return None
        return what, inputs, tuple(size // out for size, out in zip(inputs, wanted, strict=True))
    kernel = ntuple(held(layer, "ksize", "kernel_size"), axes)
    stride = kernel if layer.stride is None else ntuple(layer.stride, axes)
    even = all(size % length == 0 for size, length in zip(inputs, kernel, strict=True))
    single = kernel == tuple(inputs)
    plain_padding = ntuple(layer.padding, axes) == (0,) * axes
    return (what, inputs, kernel) if plain_padding and (single or (even and stride == kernel)) else None
