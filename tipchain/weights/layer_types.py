"""How layers of torch and Paddle keep the same parameters: by the layer's type, never by name or shape.

Neither framework is imported until a model of it is given. `tipchain.weights` applies these rules to models, and has
the layers that the two frameworks divide into tensors differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Literal

OWN_KIND = "own"
"""Kind of tensors that a user's own class holds directly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRule:
    """What one type of layer calls its tensors in the two frameworks, and how it stores them.

    Attributes:
        kind: the type's name, the same for both frameworks.
        torch: class names in ``torch.nn``; those that the installed version lacks are passed over.
        paddle: class names in ``paddle.nn``, likewise.
        transposed: torch's names of the matrices that Paddle stores transposed.
        renamed: Paddle's name by torch's, where they differ.
        dropped: torch's names of tensors that Paddle does not have.
        buffers: torch's names of buffers that Paddle keeps as parameters.
        children: Paddle's name of a layer inside by torch's, where they differ.
    """

    kind: str
    torch: tuple[str, ...] = ()
    paddle: tuple[str, ...] = ()
    transposed: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()
    children: Mapping[str, str] = field(default_factory=dict)


def _same(kind: str, *names: str) -> LayerRule:
    """Return the rule of a type that both frameworks store alike; ``names`` are Paddle's where they differ."""
    return LayerRule(kind=kind, torch=(kind,), paddle=names or (kind,))


RULES = (
    LayerRule(
        kind="Linear",
        torch=("Linear",),
        paddle=("Linear",),
        transposed=frozenset({"weight", "weight_v", "weight_orig"}),  # weight and spectral norm keep it as these
    ),
    LayerRule(
        kind="BatchNorm",
        torch=("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        paddle=("BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "SyncBatchNorm"),
        renamed={"running_mean": "_mean", "running_var": "_variance"},
        dropped=frozenset({"num_batches_tracked"}),
        buffers=frozenset({"running_mean", "running_var"}),
    ),
    LayerRule(kind="Conv", torch=("Conv1d", "Conv2d", "Conv3d"), paddle=("Conv1D", "Conv2D", "Conv3D")),
    LayerRule(
        kind="ConvTranspose",
        torch=("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        paddle=("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
    ),
    LayerRule(kind="Embedding", torch=("Embedding", "EmbeddingBag"), paddle=("Embedding",)),
    _same("LayerNorm"),
    _same("GroupNorm"),
    LayerRule(
        kind="InstanceNorm",
        torch=("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
        paddle=("InstanceNorm1D", "InstanceNorm2D", "InstanceNorm3D"),
        renamed={"weight": "scale"},
    ),
    LayerRule(kind="PReLU", torch=("PReLU",), paddle=("PReLU",), renamed={"weight": "_weight"}),
    _same("Bilinear"),
    _same("LSTMCell"),
    _same("GRUCell"),
    _same("RNNCell", "SimpleRNNCell"),
    _same("LSTM"),
    _same("GRU"),
    _same("RNN", "SimpleRNN"),
    _same("MultiheadAttention", "MultiHeadAttention"),
    LayerRule(
        kind="TransformerDecoderLayer",
        torch=("TransformerDecoderLayer",),
        paddle=("TransformerDecoderLayer",),
        children={"multihead_attn": "cross_attn"},
    ),
    # Both are recent, and ports of them are often the user's own classes with the same tensors.
    LayerRule(kind=OWN_KIND, torch=("RMSNorm",), paddle=("RMSNorm",)),
)
OWN = LayerRule(kind=OWN_KIND)
"""Tensors that a user's own class holds directly: kept as they are."""
CONTAINERS = frozenset(
    {"Sequential", "ModuleList", "ModuleDict", "LayerList", "LayerDict", "ParameterList", "ParameterDict"}
)


def rule_for(layer: object, framework: Literal["torch", "paddle"]) -> LayerRule | None:
    """Return the rule of a layer's type (subclasses included), or None if the framework's type has none."""
    kind: type = type(layer)
    return _rule_of(kind, framework)


@lru_cache(maxsize=1024)
def _rule_of(kind: type, framework: Literal["torch", "paddle"]) -> LayerRule | None:
    nn = import_module(f"{framework}.nn")
    for rule in RULES:
        names: tuple[str, ...] = getattr(rule, framework)
        if issubclass(kind, tuple(getattr(nn, name) for name in names if hasattr(nn, name))):
            return rule
    base = nn.Module if framework == "torch" else nn.Layer
    # Every base class counts: a user's subclass of a type without a rule stores its weights as that type does.
    kinds = [one for one in kind.__mro__ if not issubclass(base, one)]
    return None if any(_decides(one, framework) for one in kinds) else OWN


def _decides(kind: type, framework: str) -> bool:
    """Tell whether ``kind`` is the framework's own and decides how tensors are stored."""
    module = kind.__module__
    own = module.startswith(f"{framework}.") and not module.startswith(f"{framework}.vision.")
    return own and kind.__name__ not in CONTAINERS


def join(path: str, leaf: str) -> str:
    """Return the dotted name of ``leaf`` in the layer at ``path``; the root's path is empty."""
    return f"{path}.{leaf}" if path and leaf else path or leaf
