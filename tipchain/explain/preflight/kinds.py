"""Which kind a layer is of, and which layers of different kinds compute the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tipchain.explain.locate.matching import ACTIVATIONS
from tipchain.explain.preflight.table import (
    SPACE_KINDS,
    UNTOLD,
    LayerKind,
    PairedLayers,
    Shape,
    Trait,
    affine_properties,
    axis_of,
    bias_property,
    held,
    kind,
    kinds_by_class,
    ntuple,
    plain,
    same,
    space,
    tidy,
    write_presence,
)
from tipchain.framework_types import Model, Setting
from tipchain.numbers.tolerance import CONSTANT
from tipchain.weights.sides import RULES, cell_tensors, packed_tensors

# Layers that hold values: linear maps, embeddings, normalization.
#
# Sources: ``torch/nn/modules/{linear,sparse,batchnorm,instancenorm,normalization}.py``;
# ``paddle/nn/layer/{common,norm}.py`` and ``paddle/nn/functional/{norm,input}.py`` of Paddle 3.3.


USUAL, BATCH, RUNNING = "batch in training, running in eval", "batch", "running"


def _tracks(layer: Model) -> bool:
    return layer.running_mean is not None


def _torch_momentum(layer: Model, _shape: Shape | None) -> object:
    if not _tracks(layer):
        return UNTOLD
    return "cumulative" if layer.momentum is None else plain(layer.momentum)


def _paddle_statistics(layer: object, _shape: Shape | None) -> str:
    """Return whose mean and variance normalize.

    ``use_global_stats`` False makes ``F.batch_norm`` take the batch's in eval mode too; in the older ``BatchNorm`` its
    default, False, does not: there ``trainable_statistics`` does.
    """
    told = getattr(layer, "_use_global_stats", None)
    if told:
        return RUNNING
    if hasattr(layer, "_trainable_statistics"):
        return BATCH if layer._trainable_statistics else USUAL  # noqa: SLF001
    return USUAL if told is None else BATCH


EPSILON = Trait("epsilon", "eps", "epsilon")


def _padding_index(layer: Model, _shape: Shape | None) -> object:
    index = layer.padding_idx
    rows = layer.num_embeddings if hasattr(layer, "num_embeddings") else layer._num_embeddings  # noqa: SLF001
    return index if index is None or index >= 0 else index + rows


def _padding_row(layer: Model, shape: Shape | None) -> object:
    """Return what torch gives for the index of padding: the row as it is, where Paddle gives zeros whatever it holds."""
    index = _padding_index(layer, shape)
    return UNTOLD if index is None or not bool(layer.weight[index].any()) else "its row"


def _largest_norm(layer: Model, _shape: Shape | None) -> object:
    return layer.max_norm if hasattr(layer, "max_norm") else layer._max_norm  # noqa: SLF001


def _norm_type(layer: Model, shape: Shape | None) -> Setting:
    if _largest_norm(layer, shape) is None:
        return UNTOLD
    return layer.norm_type if hasattr(layer, "norm_type") else layer._norm_type  # noqa: SLF001


VALUE_KINDS = (
    kind("Linear", bias_property()),
    kind("Bilinear", bias_property()),
    kind(
        "Embedding",
        Trait("padding-idx", "padding_idx", read=_padding_index),
        Trait(
            "padding-row",
            "output at padding_idx",
            read=_padding_row,
            read_paddle=lambda layer, shape: UNTOLD if _padding_index(layer, shape) is None else "zeros",
            lacking="pass `padding_idx=None` and stop the row's gradient",
            measured=True,
        ),
        Trait("max-norm", "max_norm", read=_largest_norm),
        Trait("norm-type", "norm_type", read=_norm_type),
        Trait("scale-grad-by-freq", "scale_grad_by_freq", visible=False),
        torch=("Embedding",),
    ),
    kind(
        "BatchNorm",
        EPSILON,
        Trait(
            "momentum",
            "momentum",
            read=_torch_momentum,
            read_paddle=lambda layer, _: 1 - plain(layer._momentum),  # noqa: SLF001
            write=lambda momentum: tidy(1 - momentum) if isinstance(momentum, float | int) else momentum,
            visible=False,
            slack=CONSTANT,
        ),
        Trait(
            "statistics",
            "track_running_stats",
            "use_global_stats",
            read=lambda layer, _: USUAL if _tracks(layer) else BATCH,
            read_paddle=_paddle_statistics,
            write=lambda how: {USUAL: None, BATCH: False, RUNNING: True}[how],
        ),
        Trait(
            "activation",
            "act",
            read=lambda _layer, _shape: None,
            read_paddle=lambda layer, _: getattr(layer, "_act", None),
            measured=True,
        ),
        *affine_properties(),
    ),
    kind(
        "InstanceNorm",
        EPSILON,
        Trait(
            "statistics",
            "track_running_stats",
            "momentum",
            read=lambda layer, _: "running in eval" if _tracks(layer) else "instance",
            read_paddle=lambda _layer, _shape: "instance",
            lacking="keep running statistics in a layer of your own: Paddle's has none",
        ),
        affine_properties()[0],
    ),
    kind(
        "LayerNorm",
        EPSILON,
        Trait("normalized-shape", "normalized_shape", write=list),
        *affine_properties("elementwise_affine"),
    ),
    kind("GroupNorm", EPSILON, Trait("num-groups", "num_groups"), *affine_properties()),
    kind("LocalResponseNorm", Trait("size", "size"), Trait("alpha", "alpha"), Trait("beta", "beta"), Trait("k", "k")),
)
"""Their kinds."""


# Layers without parameters of space: activations, dropout, shapes, distances.
#
# Sources: ``torch/nn/modules/{activation,dropout,flatten,distance}.py``; ``paddle/nn/layer/{activation,common,distance}.py``
# of Paddle 3.3. Classes that compute the same are one kind: torch's ReLU6 is a Hardtanh from 0 to 6.


SELU = (1.0507009873554805, 1.6732632423543772)
"""Scale and alpha, which torch does not let one choose (Klambauer et al. 2017)."""


def _axis(code: str, torch: str, paddle: str) -> Trait:
    def read(layer: object, shape: Shape | None) -> Setting:
        return axis_of(held(layer, torch, f"_{paddle}", paddle), shape)

    return Trait(code, torch, paddle, read=read, axis=True)


def _approximation(layer: Model, _shape: Shape | None) -> str:
    told = layer.approximate if hasattr(layer, "approximate") else layer._approximate  # noqa: SLF001
    return "tanh" if told in (True, "tanh") else "none"


def _named(layer: object, name: str) -> bool:
    return any(one.__name__ == name for one in type(layer).__mro__)


def _limits(layer: object, number: int) -> object:
    if _named(layer, "ReLU6"):
        return (0.0, 6.0)[number]
    return plain(held(layer, ("min_val", "max_val")[number], ("_min", "_max")[number]))


def _softmax_axis(layer: object, shape: Shape | None) -> object:
    if _named(layer, "Softmax2d") or _named(layer, "Softmax2D"):
        return axis_of(-3, shape)
    axis = held(layer, "dim", "_axis")
    if axis is None:  # torch then takes 0 for 0, 1 and 3 dimensions, else 1
        return UNTOLD if shape is None else int(len(shape) not in (0, 1, 3))
    return axis_of(axis, shape)


def _dropped(layer: object, _shape: Shape | None) -> object:
    """Return what a dropout drops as a whole: single elements or channels."""
    if not _named(layer, "Dropout"):
        return "channels"
    axis = plain(getattr(layer, "axis", None))
    if axis is None:
        return "elements"
    return "channels" if axis == (0, 1) else f"what shares axes {axis}"


def _slopes(layer: Model, _shape: Shape | None) -> int:
    weight = layer.weight if hasattr(layer, "weight") else layer._weight  # noqa: SLF001
    return int(weight.shape[0])


def _dropout(name: str, *paddle: str, torch: tuple[str, ...] = ()) -> LayerKind:
    own = (
        Trait(
            "dropout-axis",
            "class",
            "axis",
            read=_dropped,
            write=lambda what: None if what == "elements" else [0, 1],
            visible=False,
        ),
        Trait("dropout-mode", "mode", read=lambda layer, _: str(getattr(layer, "mode", "upscale_in_train"))),
    )
    rate = Trait("dropout-p", "p", visible=False)
    return kind(name, rate, *(own if name == "Dropout" else ()), torch=torch, paddle=paddle)


SOFTMAX_AXIS = Trait("softmax-axis", "dim", "axis", read=_softmax_axis, axis=True)
PLAIN = "ReLU Sigmoid Hardsigmoid Hardswish Tanh Mish Softsign LogSigmoid Tanhshrink Identity".split()
"""Kinds that nothing can be chosen about; both call them so."""
FUNCTION_KINDS = (
    *map(kind, PLAIN),
    kind("SiLU", paddle=("Silu", "Swish", "SiLU")),
    kind("GELU", Trait("gelu-form", "approximate", read=_approximation, write=lambda how: how == "tanh")),
    kind("LeakyReLU", Trait("negative-slope", "negative_slope")),
    kind("ELU", Trait("alpha", "alpha")),
    kind("CELU", Trait("alpha", "alpha")),
    kind(
        "SELU",
        Trait("scale", "scale", read=lambda layer, _: plain(getattr(layer, "_scale", SELU[0]))),
        Trait("alpha", "alpha", read=lambda layer, _: plain(getattr(layer, "_alpha", SELU[1]))),
    ),
    kind(
        "Hardtanh",
        Trait("bounds", "min_val", "min", read=lambda layer, _: _limits(layer, 0)),
        Trait("bounds", "max_val", "max", read=lambda layer, _: _limits(layer, 1)),
        torch=("Hardtanh", "ReLU6"),
        paddle=("Hardtanh", "ReLU6"),
    ),
    kind("Hardshrink", Trait("threshold", "lambd", "threshold")),
    kind("Softshrink", Trait("threshold", "lambd", "threshold")),
    kind("Threshold", Trait("threshold", "threshold"), Trait("value", "value"), paddle=("ThresholdedReLU",)),
    kind("Softplus", Trait("beta", "beta"), Trait("threshold", "threshold")),
    kind("RReLU", Trait("lower", "lower"), Trait("upper", "upper")),
    kind("PReLU", Trait("slopes", "num_parameters", read=_slopes)),
    kind("Softmax", SOFTMAX_AXIS, torch=("Softmax", "Softmax2d"), paddle=("Softmax", "Softmax2D")),
    kind("LogSoftmax", SOFTMAX_AXIS),
    kind("GLU", _axis("axis", "dim", "axis")),
    _dropout("Dropout", "Dropout", "Dropout2D", "Dropout3D", torch=("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")),
    _dropout("AlphaDropout"),
    _dropout("FeatureAlphaDropout"),
    kind("Flatten", _axis("start-axis", "start_dim", "start_axis"), _axis("stop-axis", "end_dim", "stop_axis")),
    kind(
        "Unflatten",
        _axis("axis", "dim", "axis"),
        Trait(
            "shape",
            "unflattened_size",
            "shape",
            read=lambda layer, _: tuple(plain(held(layer, "unflattened_size", "shape"))),
            write=list,
        ),
    ),
    kind("CosineSimilarity", _axis("axis", "dim", "axis"), Trait("epsilon", "eps")),
    kind(
        "PairwiseDistance",
        Trait("norm-type", "p", kept=("norm", "")),
        Trait("epsilon", "eps", "epsilon"),
        Trait("keepdim", "keepdim"),
    ),
)
"""Their kinds."""


# Layers over sequences: recurrent layers, attention, the layers of a Transformer.
#
# Sources: ``torch/nn/modules/{rnn,activation,transformer}.py``; ``paddle/nn/layer/{rnn,transformer}.py`` of Paddle 3.3.


INNER = {
    "TransformerEncoderLayer": ("self_attn", "linear1", "linear2", "norm1", "norm2", "dropout", "dropout1", "dropout2"),
    "TransformerDecoderLayer": tuple(
        "self_attn multihead_attn linear1 linear2 norm1 norm2 norm3 dropout dropout1 dropout2 dropout3".split()
    ),
}
"""torch's names of the layers inside."""
_PADDLE_NAMES = {ours: theirs for rule in RULES for ours, theirs in rule.children.items()}


def inner_pairs(pair: PairedLayers, name: str) -> Iterator[PairedLayers]:
    """Yield the pairs of layers inside a pair of Transformer layers."""
    for ours in INNER.get(name, ()):
        theirs = _PADDLE_NAMES.get(ours, ours)
        reference, port = getattr(pair.reference, ours, None), getattr(pair.port, theirs, None)
        if reference is not None and port is not None:
            paths = (".".join(filter(None, one)) for one in ((pair.reference_path, ours), (pair.port_path, theirs)))
            yield PairedLayers(next(paths), reference, next(paths), port)


def _cells(layer: Model) -> list[Model]:
    if hasattr(layer, "num_layers"):
        return [one for number in range(layer.num_layers) for one in _cells(layer[number])]
    found = [getattr(layer, name) for name in ("cell", "cell_fw", "cell_bw") if hasattr(layer, name)]
    return found or [layer]


def _paddle_biases(layer: object, _shape: Shape | None) -> tuple[bool, bool]:
    packed = packed_tensors(layer)
    tensors = packed[1] if packed is not None else list(cell_tensors(layer))
    there = [one.leaf for one in tensors if not one.fixed]
    return any(leaf.startswith("bias_ih") for leaf in there), any(leaf.startswith("bias_hh") for leaf in there)


def _paddle_direction(layer: object, _shape: Shape | None) -> str:
    if getattr(layer, "num_directions", 1) == 2 or hasattr(layer, "cell_bw"):
        return "bidirectional"
    return "backward" if getattr(layer, "is_reverse", False) else "forward"


BIASES = Trait(
    "bias",
    "bias",
    "bias_ih_attr, bias_hh_attr",
    read=lambda layer, _: (bool(layer.bias),) * 2,
    read_paddle=_paddle_biases,
    write=write_presence,
)
NONLINEARITY = Trait(
    "activation",
    "nonlinearity",
    "activation",
    read=lambda layer, _: str(layer.nonlinearity),
    read_paddle=lambda layer, _: str(_cells(layer)[0].activation),
)
TIME_ORDER = Trait(
    "time-order",
    "batch_first",
    "time_major",
    read=lambda layer, _: not layer.batch_first,
    read_paddle=lambda layer, _: bool(getattr(layer, "time_major", False)),
    write=lambda first: first,
)


def _recurrent(name: str) -> Iterator[LayerKind]:
    own = [NONLINEARITY] if name == "RNN" else []
    if name == "LSTM":
        own = [Trait("projection", "proj_size", read_paddle=lambda layer, _: _cells(layer)[0].proj_size)]
    yield kind(
        name,
        Trait("layers", "num_layers", read_paddle=lambda layer, _: getattr(layer, "num_layers", 1)),
        Trait(
            "direction",
            "bidirectional",
            "direction",
            read=lambda layer, _: "bidirectional" if layer.bidirectional else "forward",
            read_paddle=_paddle_direction,
            write=lambda way: "bidirect" if way == "bidirectional" else way,
        ),
        Trait(
            "dropout-p",
            "dropout",
            read=lambda layer, _: plain(layer.dropout) if getattr(layer, "num_layers", 1) > 1 else 0.0,
            visible=False,
        ),
        TIME_ORDER,
        BIASES,
        *own,
    )
    yield kind(f"{name}Cell", BIASES, *([NONLINEARITY] if name == "RNN" else []))


def orders_comparable(pair: PairedLayers) -> bool | None:
    """Tell how two sequence layers are given their batches: alike (True), the other way round (False), unknown (None)."""
    if pair.shapes is None or any(len(shape) != 3 for shape in pair.shapes):
        return None
    ours, theirs = pair.shapes
    if len(set(ours[:2])) == 1:
        return None
    if ours == theirs:
        return True
    return False if ours == (theirs[1], theirs[0], theirs[2]) else None


def _attention_bias(layer: Model, _shape: Shape | None) -> bool:
    bias = layer.in_proj_bias if hasattr(layer, "in_proj_bias") else layer.q_proj.bias
    return bias is not None


def _transformer_activation(layer: Model, _shape: Shape | None) -> object:
    given = layer.activation
    name = str(getattr(given, "__name__", type(given).__name__)).lower().lstrip("_")
    return name if name in ACTIVATIONS.values() else UNTOLD


SEQUENCE_KINDS = (
    *(one for name in ("LSTM", "GRU", "RNN") for one in _recurrent(name)),
    kind(
        "MultiheadAttention",
        Trait("num-heads", "num_heads"),
        Trait("dropout-p", "dropout", visible=False),
        Trait("key-size", "kdim"),
        Trait("value-size", "vdim"),
        Trait("bias", "bias", "bias_attr", read=_attention_bias, write=write_presence),
        Trait(
            "added-bias",
            "add_bias_kv",
            read=lambda layer, _: getattr(layer, "bias_k", None) is not None,
            lacking="append torch's bias_k and bias_v to keys and values",
        ),
        Trait(
            "added-zeros",
            "add_zero_attn",
            read=lambda layer, _: bool(getattr(layer, "add_zero_attn", False)),
            lacking="append zeros to keys and values",
        ),
        TIME_ORDER,
    ),
    *(
        kind(
            name,
            Trait("norm-order", "norm_first", "normalize_before"),
            Trait("activation", "activation", read=_transformer_activation),
        )
        for name in ("TransformerEncoderLayer", "TransformerDecoderLayer")
    ),
)
"""Their kinds."""


KINDS = (*SPACE_KINDS, *VALUE_KINDS, *SEQUENCE_KINDS, *FUNCTION_KINDS)
_BY_CLASS = kinds_by_class(KINDS, 0), kinds_by_class(KINDS, 1)
_BY_NAME = {one.name: one for one in (*KINDS, kind("RMSNorm", EPSILON))}
DROPOUTS = frozenset(("Dropout", "AlphaDropout", "FeatureAlphaDropout"))
_RECURRENT = frozenset(("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"))


def kind_of(layer: object, side: Literal[0, 1]) -> LayerKind | None:
    """Return the kind of a torch module (side 0) or Paddle layer (side 1); None of a user's own class."""
    found = _own_class(layer, side)
    if found is not None:
        return _BY_CLASS[side][found.__name__]
    if side and type(layer).__name__ in ("RNN", "BiRNN"):
        # Over a cell that torch has whole.
        packed = packed_tensors(layer)
        name = None if packed is None or packed[0] == "MultiheadAttention" else packed[0]
        return None if name is None else _BY_NAME[name]
    return None


def named_kind(layer: object) -> LayerKind | None:
    """Return the kind of a Paddle layer; of a user's own class that of the layer it is called after: ``LayerNorm2d``."""
    name = type(layer).__name__
    return kind_of(layer, 1) or _BY_CLASS[1].get(name) or _BY_NAME.get(name) or _BY_NAME.get(name[:-2])


def is_activation(layer: object, side: Literal[0, 1]) -> bool:
    """Tell whether a layer of a framework's own is an activation."""
    kind = kind_of(layer, side)
    return kind is not None and kind.name in ACTIVATIONS


def runs_as_built(layer: Model, side: Literal[0, 1]) -> bool:
    """Tell whether a layer's forward is that of the framework's class, and not a subclass's own."""
    found = _own_class(layer, side)
    return found is None or type(layer).forward is found.forward


def _own_class(layer: Model, side: Literal[0, 1]) -> type[Model] | None:
    known = _BY_CLASS[side]
    of_framework = (one for one in type(layer).__mro__ if one.__module__.startswith(("torch.nn.", "paddle.nn.")))
    return next((one for one in of_framework if one.__name__ in known), None)


def never_alike(one: LayerKind, other: LayerKind) -> bool:
    """Tell whether layers of two kinds are no substitutes for each other, whatever they are made with."""
    names = {one.name, other.name}
    families = (ACTIVATIONS.keys(), DROPOUTS, _RECURRENT)
    if any(names <= family for family in families):
        return True
    pools = {name.removeprefix("Adaptive") for name in names}
    if len(pools) == 2 and {name[:3] for name in pools} == {"Max", "Avg"}:
        return len({name[-2:] for name in pools}) == 1
    return "BatchNorm" in names and bool(names & {"LayerNorm", "GroupNorm", "InstanceNorm"})


def computes_the_same(pair: PairedLayers, kinds: tuple[LayerKind, LayerKind]) -> bool:
    """Tell whether two layers of different kinds are made so that they compute the same."""
    layers = list(zip((pair.reference, pair.port), kinds, pair.shapes or (None, None), strict=True))
    one, other = (_function(layer, kind) for layer, kind, _ in layers)
    if one is not None and other is not None and same(one, other):
        return True
    window, port_window = (_window(layer, kind, shape) for layer, kind, shape in layers)
    return window is not None and window == port_window


def _function(layer: Model, kind: LayerKind) -> tuple[object, ...] | None:
    """Return what an activation or dropout computes, in words that several kinds share."""
    name = kind.name
    if name in ("ELU", "CELU"):
        alpha = plain(held(layer, "alpha", "_alpha"))
        return ("elu",) if alpha == 1 else (name, alpha)
    slope = name == "LeakyReLU" and held(layer, "negative_slope", "_negative_slope") == 0
    cut = name == "Threshold" and (held(layer, "threshold", "_threshold"), held(layer, "value", "_value")) == (0, 0)
    if name == "ReLU" or slope or cut:
        return ("relu",)
    if name == "Identity" or (name in DROPOUTS and layer.p == 0):
        return ("identity",)
    return None


def _window(layer: Model, kind: LayerKind, shape: tuple[int, ...] | None) -> object:
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
