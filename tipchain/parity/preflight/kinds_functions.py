"""Layers without parameters of space: activations, dropout, shapes, distances.

Sources: ``torch/nn/modules/{activation,dropout,flatten,distance}.py``; ``paddle/nn/layer/{activation,common,distance}.py``
of Paddle 3.3. Classes that compute the same are one kind: torch's ReLU6 is a Hardtanh from 0 to 6.
"""

from __future__ import annotations

from typing import Any

from tipchain.parity.preflight.spelling import axis_of
from tipchain.parity.preflight.table import UNTOLD, Kind, Reader, Shape, held, kind, plain, prop

SELU = (1.0507009873554805, 1.6732632423543772)
"""Scale and alpha, which torch does not let one choose (Klambauer et al. 2017)."""


def _axis(code: str, torch: str, paddle: str, default: int | None = None) -> Any:
    def read(layer: Any, shape: Shape | None) -> Any:
        return axis_of(held(layer, torch, f"_{paddle}", paddle) if default is None else default, shape)

    return prop(code, torch, paddle, read=read, axis=True)


def _approximation(layer: Any, _shape: Shape | None) -> str:
    told = layer.approximate if hasattr(layer, "approximate") else layer._approximate  # noqa: SLF001
    return "tanh" if told in (True, "tanh") else "none"


def _named(layer: Any, name: str) -> bool:
    return any(one.__name__ == name for one in type(layer).__mro__)


def _limits(layer: Any, number: int) -> Any:
    if _named(layer, "ReLU6"):
        return (0.0, 6.0)[number]
    return plain(held(layer, ("min_val", "max_val")[number], ("_min", "_max")[number]))


def _softmax_axis(layer: Any, shape: Shape | None) -> Any:
    if _named(layer, "Softmax2d") or _named(layer, "Softmax2D"):
        return axis_of(-3, shape)
    axis = held(layer, "dim", "_axis")
    if axis is None:  # torch then takes 0 for 0, 1 and 3 dimensions, else 1
        return UNTOLD if shape is None else int(len(shape) not in (0, 1, 3))
    return axis_of(axis, shape)


def _selu(number: int, name: str) -> Reader:
    return lambda layer, _shape: plain(getattr(layer, name, SELU[number]))


def _dropped(layer: Any, _shape: Shape | None) -> Any:
    """Return what a dropout drops as a whole: single elements or channels."""
    if not _named(layer, "Dropout"):
        return "channels"
    axis = plain(getattr(layer, "axis", None))
    if axis is None:
        return "elements"
    return "channels" if axis == (0, 1) else f"what shares axes {axis}"


def _write_dropped(what: Any) -> Any:
    return None if what == "elements" else [0, 1]


def _dropout_mode(layer: Any, _shape: Shape | None) -> str:
    return str(getattr(layer, "mode", "upscale_in_train"))


def _slopes(layer: Any, _shape: Shape | None) -> int:
    weight = layer.weight if hasattr(layer, "weight") else layer._weight  # noqa: SLF001
    return int(weight.shape[0])


def _stop(layer: Any, shape: Shape | None) -> Any:
    return axis_of(held(layer, "end_dim", "stop_axis"), shape)


def _unflattened(layer: Any, _shape: Shape | None) -> Any:
    return tuple(plain(held(layer, "unflattened_size", "shape")))


def _dropout(name: str, *paddle: str, torch: tuple[str, ...] = ()) -> Kind:
    own = (
        prop("dropped", "class", "axis", read=_dropped, write=_write_dropped, visible=False),
        prop("dropout-mode", "mode", read=_dropout_mode),
    )
    return kind(
        name,
        paddle or (name,),
        prop("dropout", "p", visible=False),
        *(own if name == "Dropout" else ()),
        torch=torch,
    )


PLAIN = (
    ("ReLU", "ReLU"), ("Sigmoid", "Sigmoid"), ("Hardsigmoid", "Hardsigmoid"), ("Hardswish", "Hardswish"), ("Tanh", "Tanh"),
    ("Mish", "Mish"), ("Softsign", "Softsign"), ("LogSigmoid", "LogSigmoid"), ("Tanhshrink", "Tanhshrink"),
    ("Identity", "Identity"),
)  # fmt: skip
"""Kinds that nothing can be chosen about: torch's name and Paddle's."""
KINDS = (
    *(kind(ours, theirs) for ours, theirs in PLAIN),
    kind("SiLU", ("Silu", "Swish", "SiLU")),
    kind("GELU", "", prop("gelu-form", "approximate", read=_approximation, write=lambda how: how == "tanh")),
    kind("LeakyReLU", "", prop("negative-slope", "negative_slope")),
    kind("ELU", "", prop("alpha", "alpha")),
    kind("CELU", "", prop("alpha", "alpha")),
    kind("SELU", "", prop("scale", "scale", read=_selu(0, "_scale")), prop("alpha", "alpha", read=_selu(1, "_alpha"))),
    kind("Hardtanh", ("Hardtanh", "ReLU6"),
         prop("minimum", "min_val", "min", read=lambda layer, _: _limits(layer, 0)),
         prop("maximum", "max_val", "max", read=lambda layer, _: _limits(layer, 1)), torch=("Hardtanh", "ReLU6")),
    kind("Hardshrink", "", prop("threshold", "lambd", "threshold")),
    kind("Softshrink", "", prop("threshold", "lambd", "threshold")),
    kind("Threshold", "ThresholdedReLU", prop("threshold", "threshold"), prop("value", "value")),
    kind("Softplus", "", prop("beta", "beta"), prop("threshold", "threshold")),
    kind("RReLU", "", prop("lower", "lower"), prop("upper", "upper")),
    kind("PReLU", "", prop("slopes", "num_parameters", read=_slopes)),
    kind("Softmax", ("Softmax", "Softmax2D"), prop("axis", "dim", "axis", read=_softmax_axis, axis=True),
         torch=("Softmax", "Softmax2d")),
    kind("LogSoftmax", "", prop("axis", "dim", "axis", read=_softmax_axis, axis=True)),
    kind("GLU", "", _axis("axis", "dim", "axis")),
    _dropout("Dropout", "Dropout", "Dropout2D", "Dropout3D", torch=("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")),
    _dropout("AlphaDropout"),
    _dropout("FeatureAlphaDropout"),
    kind("Flatten", "", _axis("start-axis", "start_dim", "start_axis"),
         prop("stop-axis", "end_dim", "stop_axis", read=_stop, axis=True)),
    kind("Unflatten", "", _axis("axis", "dim", "axis"),
         prop("shape", "unflattened_size", "shape", read=_unflattened, write=list)),
    kind("CosineSimilarity", "", _axis("axis", "dim", "axis"), prop("epsilon", "eps")),
    kind("PairwiseDistance", "", prop("norm-type", "p", kept=("norm", "")), prop("epsilon", "eps", "epsilon"),
         prop("keepdim", "keepdim")),
)  # fmt: skip
"""Their kinds."""
