"""How layers of torch and Paddle keep the same parameters: by the layer's type, never by name or shape.

Neither framework is imported until a model of it is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tipchain.errors import WeightsError

Kind = Literal["parameter", "buffer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRule:
    """What one type of layer calls its tensors in the two frameworks, and how it stores them.

    Attributes:
        torch: class names in ``torch.nn``.
        paddle: class names in ``paddle.nn``.
        transposed: torch's names of the tensors that Paddle stores transposed.
        renamed: Paddle's name by torch's, where they differ.
        dropped: torch's names of tensors that Paddle does not have.
        buffers: torch's names of buffers that Paddle keeps as parameters.
    """

    torch: tuple[str, ...]
    paddle: tuple[str, ...]
    transposed: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()


RULES = (
    LayerRule(torch=("Linear",), paddle=("Linear",), transposed=frozenset({"weight"})),
    LayerRule(
        torch=("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        paddle=("BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "SyncBatchNorm"),
        renamed={"running_mean": "_mean", "running_var": "_variance"},
        dropped=frozenset({"num_batches_tracked"}),
        buffers=frozenset({"running_mean", "running_var"}),
    ),
    LayerRule(
        torch=("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        paddle=("Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
    ),
    LayerRule(
        torch=("Embedding", "LayerNorm", "GroupNorm"),
        paddle=("Embedding", "LayerNorm", "GroupNorm"),
    ),
    LayerRule(
        torch=("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
        paddle=("InstanceNorm1D", "InstanceNorm2D", "InstanceNorm3D"),
        renamed={"weight": "scale"},
    ),
    LayerRule(torch=("PReLU",), paddle=("PReLU",), renamed={"weight": "_weight"}),
)
OWN = LayerRule(torch=(), paddle=())
"""Tensors that a user's own class holds directly: kept as they are."""
CONTAINERS = frozenset(
    {"Sequential", "ModuleList", "ModuleDict", "LayerList", "LayerDict", "ParameterList", "ParameterDict"}
)


def rule_for(layer: object, framework: Literal["torch", "paddle"]) -> LayerRule | None:
    """Return the rule of a layer's type (subclasses included), or None if the framework's type has none."""
    from importlib import import_module

    nn = import_module(f"{framework}.nn")
    for rule in RULES:
        names: tuple[str, ...] = getattr(rule, framework)
        if isinstance(layer, tuple(getattr(nn, name) for name in names)):
            return rule
    base = nn.Module if framework == "torch" else nn.Layer
    # Every base class counts: a user's subclass of LSTM packs its weights as LSTM does.
    kinds = [kind for kind in type(layer).__mro__ if not issubclass(base, kind)]
    return None if any(_packs(kind, framework) for kind in kinds) else OWN


def _packs(kind: type, framework: str) -> bool:
    """Tell whether ``kind`` is the framework's own and decides how tensors are stored."""
    module = kind.__module__
    own = module.startswith(f"{framework}.") and not module.startswith(f"{framework}.vision.")
    return own and kind.__name__ not in CONTAINERS


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleName:
    """Where a torch tensor goes: Paddle's name (None: dropped) and whether it is transposed."""

    name: str | None
    transpose: bool = False


def paddle_name(torch_name: str, rule: LayerRule, names: Mapping[str, str]) -> PaddleName:
    """Return Paddle's name of the torch tensor ``torch_name``, owned by a layer with ``rule``.

    Args:
        torch_name: dotted name in torch's state dict.
        rule: the rule of the layer that owns it.
        names: Paddle's name by torch's: of a tensor (taken as it stands) or of a layer (a prefix; the
            longest wins).
    """
    prefix, _, leaf = torch_name.rpartition(".")
    if leaf in rule.dropped:
        return PaddleName(name=None)
    transpose = leaf in rule.transposed
    if torch_name in names:
        return PaddleName(name=names[torch_name], transpose=transpose)
    return PaddleName(
        name=_join(_renamed_layer(prefix, names), rule.renamed.get(leaf, leaf)), transpose=transpose
    )


def _renamed_layer(path: str, names: Mapping[str, str]) -> str:
    parts = path.split(".")
    for stop in range(len(parts), 0, -1):
        head = ".".join(parts[:stop])
        if head in names:
            return ".".join([names[head], *parts[stop:]])
    return path


def _join(prefix: str, leaf: str) -> str:
    return f"{prefix}.{leaf}" if prefix else leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchView:
    """One tensor of a Paddle model as torch sees it.

    Attributes:
        torch_name: torch's name.
        paddle_name: name in Paddle's state dict.
        kind: ``"parameter"`` or ``"buffer"``.
        tensor: the live Paddle tensor; its gradient is ``tensor.grad``.
        transpose: whether value and gradient must be transposed for torch's layout.
    """

    torch_name: str
    paddle_name: str
    kind: Kind
    tensor: Any
    transpose: bool


def torch_view(model: Any, names: Mapping[str, str] | None = None) -> Iterator[TorchView]:
    """Yield every parameter and persistent buffer of a Paddle model under torch's name.

    A tensor that several layers share comes once, under its first name.

    Args:
        model: a ``paddle.nn.Layer``.
        names: as for `paddle_name`.

    Raises:
        WeightsError: a layer's type packs its tensors differently in torch (LSTM, GRU, ...).
    """
    inverse = {paddle: torch for torch, paddle in (names or {}).items()}
    seen: set[int] = set()
    for path, layer in model.named_sublayers(include_self=True):
        for leaf, kind, tensor in _own_tensors(layer):
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            name = _join(path, leaf)
            rule = rule_for(layer, "paddle")
            if rule is None:
                raise WeightsError(
                    "this layer's type is not supported: torch packs it differently",
                    key=name, found=f"paddle.nn.{type(layer).__name__}",
                )  # fmt: skip
            torch_leaf = {paddle: torch for torch, paddle in rule.renamed.items()}.get(leaf, leaf)
            yield TorchView(
                torch_name=inverse.get(name) or _join(_renamed_layer(path, inverse), torch_leaf),
                paddle_name=name,
                kind="buffer" if torch_leaf in rule.buffers else kind,
                tensor=tensor,
                transpose=torch_leaf in rule.transposed,
            )


def _own_tensors(layer: Any) -> Iterator[tuple[str, Kind, Any]]:
    for leaf, tensor in layer._parameters.items():  # noqa: SLF001
        if tensor is not None:
            yield leaf, "parameter", tensor
    hidden = layer._non_persistable_buffer_names_set  # noqa: SLF001
    for leaf, tensor in layer._buffers.items():  # noqa: SLF001
        if tensor is not None and leaf not in hidden:
            yield leaf, "buffer", tensor
