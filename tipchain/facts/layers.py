"""The table of layers: torch's class and Paddle's, their arguments, and how both keep their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Literal

from tipchain.facts.packed import cell_tensors, cells_of, packed_tensors
from tipchain.facts.settings import (
    OWN_KIND,
    PRESENCE,
    UNTOLD,
    LayerKind,
    Shape,
    Storage,
    Trait,
    affine_properties,
    axis_of,
    bias_property,
    held,
    plain,
    row,
    tidy,
    write_presence,
)
from tipchain.facts.space import SPACE
from tipchain.framework_types import Model, Setting
from tipchain.numbers.tolerance import CONSTANT

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


EPSILON = Trait("eps", "epsilon", named="epsilon")
EMBEDDING = Storage(kind="Embedding")


def _padding_index(layer: Model, _shape: Shape | None) -> object:
    index = layer.padding_idx
    return index if index is None or index >= 0 else index + held(layer, "num_embeddings", "_num_embeddings")


def _padding_row(layer: Model, shape: Shape | None) -> object:
    """Return torch's row for the index of padding: the row as it is, where Paddle gives zeros whatever it holds."""
    index = _padding_index(layer, shape)
    return UNTOLD if index is None or not bool(layer.weight[index].any()) else "its row"


def _norm_type(layer: Model, _shape: Shape | None) -> Setting:
    return UNTOLD if held(layer, "max_norm", "_max_norm") is None else held(layer, "norm_type", "_norm_type")


VALUES = (
    row(
        "Linear",
        bias_property(),
        # weight and spectral norm keep it as these
        storage=Storage(kind="Linear", transposed=frozenset({"weight", "weight_v", "weight_orig"})),
        attributes={"in_features": "{}.weight.shape[0]", "out_features": "{}.weight.shape[1]"},
    ),
    row("Bilinear", bias_property(), storage=Storage(kind="Bilinear")),
    row(
        "Embedding",
        Trait("padding_idx", read=_padding_index),
        Trait(
            "output at padding_idx",
            named="padding-row",
            read=_padding_row,
            read_paddle=lambda layer, shape: UNTOLD if _padding_index(layer, shape) is None else "zeros",
            lacking="pass `padding_idx=None` and stop the row's gradient",
            measured=True,
        ),
        Trait("max_norm"),
        Trait("norm_type", read=_norm_type),
        Trait("scale_grad_by_freq", visible=False),
        storage=EMBEDDING,
        differs="the row of `padding_idx` comes out as zeros, whatever it holds",
    ),
    row("EmbeddingBag", paddle=("Embedding",), storage=EMBEDDING, compared=False),
    row(
        "BatchNorm",
        EPSILON,
        Trait(
            "momentum",
            read=_torch_momentum,
            read_paddle=lambda layer, _: 1 - plain(layer._momentum),  # noqa: SLF001
            write=lambda momentum: tidy(1 - momentum) if isinstance(momentum, float | int) else momentum,
            formula="1 - {}",
            visible=False,
            slack=CONSTANT,
        ),
        Trait(
            "track_running_stats",
            "use_global_stats",
            named="statistics",
            read=lambda layer, _: USUAL if _tracks(layer) else BATCH,
            read_paddle=_paddle_statistics,
            write=lambda how: {USUAL: None, True: None, BATCH: False, False: False, RUNNING: True}[how],
            formula=PRESENCE,
        ),
        Trait(
            "act",
            named="activation",
            read=lambda _layer, _shape: None,
            read_paddle=lambda layer, _: getattr(layer, "_act", None),
            measured=True,
        ),
        *affine_properties(),
        torch=("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        paddle=("BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "SyncBatchNorm"),
        attributes={
            "momentum": "(1 - {}._momentum)",
            "track_running_stats": "({}._use_global_stats is None)",
            "affine": "({}.weight is not None)",
            "num_batches_tracked": "None",
        },
        storage=Storage(
            kind="BatchNorm",
            renamed={"running_mean": "_mean", "running_var": "_variance"},
            dropped=frozenset({"num_batches_tracked"}),
            buffers=frozenset({"running_mean", "running_var"}),
        ),
        family="norm",
        by_mode=True,
        differs="Paddle's momentum is 1 - torch's",
    ),
    row(
        "InstanceNorm",
        EPSILON,
        Trait(
            "track_running_stats",
            "momentum",
            named="statistics",
            read=lambda layer, _: "running in eval" if _tracks(layer) else "instance",
            read_paddle=lambda _layer, _shape: "instance",
            lacking="keep running statistics in a layer of your own: Paddle's has none",
        ),
        affine_properties()[0],
        torch=("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
        paddle=("InstanceNorm1D", "InstanceNorm2D", "InstanceNorm3D"),
        storage=Storage(kind="InstanceNorm", renamed={"weight": "scale"}),
        family="norm",
        differs="Paddle's keeps no running statistics",
    ),
    row(
        "LayerNorm",
        EPSILON,
        Trait("normalized_shape", write=list),
        *affine_properties("elementwise_affine"),
        storage=Storage(kind="LayerNorm"),
        family="norm",
    ),
    row(
        "GroupNorm",
        EPSILON,
        Trait("num_groups"),
        *affine_properties(),
        storage=Storage(kind="GroupNorm"),
        family="norm",
    ),
    # Both are recent, and ports of them are often the user's own classes with the same tensors.
    row("RMSNorm", EPSILON, storage=Storage(kind=OWN_KIND), family="norm", compared=False),
    row("LocalResponseNorm", Trait("size"), Trait("alpha"), Trait("beta"), Trait("k"), family="norm"),
)


# Layers without parameters of space: activations, dropout, shapes, distances.
#
# Sources: ``torch/nn/modules/{activation,dropout,flatten,distance}.py``; ``paddle/nn/layer/{activation,common,distance}.py``
# of Paddle 3.3. Classes that compute the same are one kind: torch's ReLU6 is a Hardtanh from 0 to 6.


SELU = (1.0507009873554805, 1.6732632423543772)
"""Scale and alpha, which torch does not let one choose (Klambauer et al. 2017)."""


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
    if not _named(layer, "Dropout"):
        return "channels"
    axis = plain(getattr(layer, "axis", None))
    if axis is None:
        return "elements"
    return "channels" if axis == (0, 1) else f"what shares axes {axis}"


DROPOUT_RATE = Trait("p", named="dropout-p", visible=False)
AXIS = Trait("dim", "axis", named="axis", axis=True)
SOFTMAX_AXIS = Trait("dim", "axis", named="softmax-axis", read=_softmax_axis, axis=True)
ALPHA, THRESHOLD = Trait("alpha"), Trait("lambd", "threshold", named="threshold")


def _activation(name: str, functions: str | tuple[str, ...], *properties: Trait, **facts: Setting) -> LayerKind:
    names = (functions,) if isinstance(functions, str) else functions
    return row(name, *properties, functions=names, family="activation", **facts)


FUNCTIONS = (
    *(
        _activation(name, name.lower())
        for name in ("ReLU", "Sigmoid", "Hardsigmoid", "Hardswish", "Tanh", "Mish", "Softsign", "Tanhshrink")
    ),
    _activation("LogSigmoid", "log_sigmoid"),
    _activation("SiLU", ("silu", "swish"), paddle=("Silu", "Swish", "SiLU")),
    _activation(
        "GELU",
        "gelu",
        Trait(
            "approximate",
            named="gelu-form",
            form=lambda how: "tanh" if how in (True, "tanh") else "none",
            write=lambda how: how == "tanh",
            formula="{} == 'tanh'",
        ),
    ),
    _activation("LeakyReLU", "leaky_relu", Trait("negative_slope")),
    _activation("ELU", "elu", ALPHA),
    _activation("CELU", "celu", ALPHA),
    _activation(
        "SELU",
        "selu",
        Trait("scale", read=lambda layer, _: plain(getattr(layer, "_scale", SELU[0]))),
        Trait("alpha", read=lambda layer, _: plain(getattr(layer, "_alpha", SELU[1]))),
    ),
    _activation(
        "Hardtanh",
        ("hardtanh", "relu6"),
        Trait("min_val", "min", named="bounds", read=lambda layer, _: _limits(layer, 0)),
        Trait("max_val", "max", named="bounds", read=lambda layer, _: _limits(layer, 1)),
        torch=("Hardtanh", "ReLU6"),
        paddle=("Hardtanh", "ReLU6"),
    ),
    _activation("Hardshrink", "hardshrink", THRESHOLD),
    _activation("Softshrink", "softshrink", THRESHOLD),
    _activation(
        "Threshold", ("threshold", "thresholded_relu"), Trait("threshold"), Trait("value"), paddle=("ThresholdedReLU",)
    ),
    _activation("Softplus", "softplus", Trait("beta"), Trait("threshold")),
    _activation("RReLU", "rrelu", Trait("lower"), Trait("upper"), by_mode=True),
    _activation(
        "PReLU",
        "prelu",
        Trait("num_parameters", named="slopes", read=lambda layer, _: int(held(layer, "weight", "_weight").shape[0])),
        storage=Storage(kind="PReLU", renamed={"weight": "_weight"}),
    ),
    _activation("Softmax", "softmax", SOFTMAX_AXIS, torch=("Softmax", "Softmax2d"), paddle=("Softmax", "Softmax2D")),
    _activation(
        "LogSoftmax", "log_softmax", SOFTMAX_AXIS, differs="inputs more than 64 below the largest count as 64 below it"
    ),
    _activation("GLU", "glu", AXIS),
    row("Identity", family="dropout"),
    row(
        "Dropout",
        DROPOUT_RATE,
        Trait(
            "class",
            "axis",
            named="dropout-axis",
            read=_dropped,
            write=lambda what: None if what == "elements" else [0, 1],
            visible=False,
        ),
        Trait("mode", named="dropout-mode", read=lambda layer, _: str(getattr(layer, "mode", "upscale_in_train"))),
        torch=("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"),
        paddle=("Dropout", "Dropout2D", "Dropout3D"),
        family="dropout",
        by_mode=True,
    ),
    row("AlphaDropout", DROPOUT_RATE, family="dropout", by_mode=True),
    row("FeatureAlphaDropout", DROPOUT_RATE, family="dropout", by_mode=True),
    row(
        "Flatten",
        Trait("start_dim", "start_axis", named="start-axis", axis=True),
        Trait("end_dim", "stop_axis", named="stop-axis", axis=True),
        family="flatten",
    ),
    row("Unflatten", AXIS, Trait("unflattened_size", "shape", named="shape", form=tuple, write=list), family="flatten"),
    row("CosineSimilarity", AXIS, Trait("eps", named="epsilon")),
    row(
        "PairwiseDistance",
        Trait("p", named="norm-type", kept=("norm", "")),
        Trait("eps", "epsilon", named="epsilon"),
        Trait("keepdim"),
    ),
)


# Layers over sequences: recurrent layers, attention, the layers of a Transformer.
#
# Sources: ``torch/nn/modules/{rnn,activation,transformer}.py``; ``paddle/nn/layer/{rnn,transformer}.py`` of Paddle 3.3.


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
    "bias_ih_attr, bias_hh_attr",
    read=lambda layer, _: (bool(layer.bias),) * 2,
    read_paddle=_paddle_biases,
    write=write_presence,
)
NONLINEARITY = Trait(
    "nonlinearity", "activation", named="activation", read_paddle=lambda layer, _: str(cells_of(layer)[0].activation)
)
TIME_ORDER = Trait(
    "batch_first",
    "time_major",
    named="time-order",
    read=lambda layer, _: not layer.batch_first,
    read_paddle=lambda layer, _: bool(getattr(layer, "time_major", not getattr(layer, "batch_first", True))),
    write=lambda first: first,
)


RECURRENT = "recurrent"


def _recurrent(name: str) -> Iterator[LayerKind]:
    own = [NONLINEARITY] if name == "RNN" else []
    if name == "LSTM":
        own = [Trait("proj_size", named="projection", read_paddle=lambda layer, _: cells_of(layer)[0].proj_size)]
    paddle = name.replace("RNN", "SimpleRNN")
    yield row(
        name,
        Trait("num_layers", named="layers", read_paddle=lambda layer, _: getattr(layer, "num_layers", 1)),
        Trait(
            "bidirectional",
            "direction",
            named="direction",
            read=lambda layer, _: "bidirectional" if layer.bidirectional else "forward",
            read_paddle=_paddle_direction,
            write=lambda way: "bidirect" if way == "bidirectional" else way,
        ),
        Trait(
            "dropout",
            named="dropout-p",
            read=lambda layer, _: plain(layer.dropout) if getattr(layer, "num_layers", 1) > 1 else 0.0,
            visible=False,
        ),
        TIME_ORDER,
        BIASES,
        *own,
        paddle=(paddle,),
        storage=Storage(kind=name),
        family=RECURRENT,
        by_mode=True,
    )
    yield row(
        f"{name}Cell",
        BIASES,
        *([NONLINEARITY] if name == "RNN" else []),
        paddle=(f"{paddle}Cell",),
        storage=Storage(kind=f"{name}Cell"),
        family=RECURRENT,
    )


def _attention_bias(layer: Model, _shape: Shape | None) -> bool:
    bias = layer.out_proj.bias if hasattr(layer, "in_proj_bias") else layer.q_proj.bias
    return bias is not None


def _transformer_activation(layer: Model, _shape: Shape | None) -> object:
    given = layer.activation
    name = str(getattr(given, "__name__", type(given).__name__)).lower().lstrip("_")
    return name if name in {function for one in FUNCTIONS for function in one.functions} else UNTOLD


TRANSFORMER = (
    Trait("norm_first", "normalize_before", named="norm-order"),
    Trait("activation", read=_transformer_activation),
)
SEQUENCES = (
    *(one for name in ("LSTM", "GRU", "RNN") for one in _recurrent(name)),
    row(
        "MultiheadAttention",
        Trait("num_heads"),
        Trait("dropout", named="dropout-p", visible=False),
        Trait("kdim", named="key-size"),
        Trait("vdim", named="value-size"),
        Trait("bias", "bias_attr", read=_attention_bias, write=write_presence),
        Trait(
            "add_bias_kv",
            named="added-bias",
            read=lambda layer, _: getattr(layer, "bias_k", None) is not None,
            lacking="append torch's bias_k and bias_v to keys and values",
        ),
        Trait(
            "add_zero_attn",
            named="added-zeros",
            read=lambda layer, _: bool(getattr(layer, "add_zero_attn", False)),
            lacking="append zeros to keys and values",
        ),
        replace(
            TIME_ORDER, lacking="swap the first two axes of what goes in and comes out: Paddle's takes batches first"
        ),
        paddle=("MultiHeadAttention", "MultiheadAttention"),
        storage=Storage(kind="MultiheadAttention"),
        by_mode=True,
    ),
    row(
        "TransformerEncoderLayer",
        *TRANSFORMER,
        inner=("self_attn", "linear1", "linear2", "norm1", "norm2", "dropout", "dropout1", "dropout2"),
    ),
    row(
        "TransformerDecoderLayer",
        *TRANSFORMER,
        storage=Storage(kind="TransformerDecoderLayer", children={"multihead_attn": "cross_attn"}),
        inner=tuple(
            "self_attn multihead_attn linear1 linear2 norm1 norm2 norm3 dropout dropout1 dropout2 dropout3".split()
        ),
    ),
)


LOSSES = tuple(
    row(name, compared=False)
    for name in """
        BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss
        KLDivLoss L1Loss MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss
        PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss
    """.split()
)
"""Two losses are compared by their results."""
OTHERS = tuple(row(name, compared=False) for name in ("Transformer", "TransformerEncoder", "TransformerDecoder"))
"""Layers that only hold others."""
KINDS = (*SPACE, *VALUES, *SEQUENCES, *FUNCTIONS, *LOSSES, *OTHERS)
"""The table."""
_BY_CLASS: tuple[Mapping[str, LayerKind], ...] = tuple(
    {name: one for one in KINDS if one.compared for name in one.classes[side]} for side in (0, 1)
)
_BY_NAME = {one.name: one for one in KINDS}
COMPAT = "paddle.compat.nn"
"""Where Paddle has layers that take torch's arguments and keep their tensors as torch does."""
INSIDE = "relu relu6 silu hardswish gelu tanh sigmoid hardsigmoid leaky_relu elu mish softplus".split()
"""Functions of one tensor that a layer may have inside or after it, under the name that both frameworks have them by."""
FAMILIES = {name.lower(): one.family for one in KINDS if one.family for side in one.classes for name in side}
"""The family of a class of either framework, by its name in small letters."""


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
    return kind is not None and kind.family == "activation"


def runs_as_built(layer: Model, side: Literal[0, 1]) -> bool:
    """Tell whether a layer's forward is that of the framework's class, and not a subclass's own."""
    found = _own_class(layer, side)
    return found is None or type(layer).forward is found.forward


def _own_class(layer: Model, side: Literal[0, 1]) -> type[Model] | None:
    known = _BY_CLASS[side]
    of_framework = (
        one for one in type(layer).__mro__ if one.__module__.startswith(("torch.nn.", "paddle.nn.", COMPAT))
    )
    return next((one for one in of_framework if one.__name__ in known), None)


OWN = Storage(kind=OWN_KIND)
"""Tensors that a user's own class holds directly: kept as they are."""
CONTAINERS = frozenset(
    {"Sequential", "ModuleList", "ModuleDict", "LayerList", "LayerDict", "ParameterList", "ParameterDict"}
)
STATISTICS = frozenset(leaf for one in KINDS if one.storage is not None for leaf in one.storage.buffers)
"""Buffers that training changes, which are no constants."""


def storage_of(layer: object, framework: Literal["torch", "paddle"]) -> Storage | None:
    """Return how a layer of a type, or of its bases, keeps its tensors; None of a framework's own that is not known."""
    kind: type = type(layer)
    return _storage(kind, framework)


@lru_cache(maxsize=1024)
def _storage(kind: type, framework: Literal["torch", "paddle"]) -> Storage | None:
    nn, side = import_module(f"{framework}.nn"), int(framework == "paddle")
    for base in (one for one in kind.__mro__ if side and one.__module__.startswith(COMPAT)):
        as_torch = _BY_CLASS[side][base.__name__].storage
        return OWN if as_torch is None else Storage(kind=as_torch.kind)
    for one in KINDS:
        classes = tuple(getattr(nn, name) for name in one.classes[side] if hasattr(nn, name))
        if one.storage is not None and issubclass(kind, classes):
            return one.storage
    base = nn.Module if framework == "torch" else nn.Layer
    # Every base class counts: a user's subclass of a type without a row stores its weights as that type does.
    kinds = [one for one in kind.__mro__ if not issubclass(base, one)]
    own = [one for one in kinds if one.__module__.startswith(f"{framework}.") and one.__name__ not in CONTAINERS]
    return None if any(not one.__module__.startswith(f"{framework}.vision.") for one in own) else OWN
