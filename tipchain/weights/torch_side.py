"""The layers of a torch model, in the terms that it is matched with a Paddle model in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tipchain.errors import WeightsError
from tipchain.layer_types import OWN, join, rule_for
from tipchain.weights.layouts import LayerTensors, TensorKind, TensorSlot, dtype_name, paddle_leaf


def torch_layers(model: Any) -> list[LayerTensors]:
    """Return the layers of a torch model that hold tensors, in the order of their declaration.

    Tensors that Paddle never has (``num_batches_tracked``) are left out.
    """
    return [layer for layer in _walk_torch(model, "") if layer.slots]


def _walk_torch(module: Any, path: str) -> Iterator[LayerTensors]:
    rule = rule_for(module, "torch") or OWN
    held = dict(_torch_tensors(module))
    _refuse_lazy(held, path)
    inside = dict(module._modules)  # noqa: SLF001
    if rule.kind == "MultiheadAttention":  # its out_proj is one of its tensors
        held.update({f"out_proj.{leaf}": found for leaf, found in _torch_tensors(inside.pop("out_proj"))})
    if hasattr(module, "parametrizations"):
        held.update((f"parametrizations.{leaf}", found) for leaf, found in _all_tensors(inside.pop("parametrizations")))
    slots = tuple(
        TensorSlot(
            name=join(path, leaf),
            leaf=paddle_leaf(leaf),
            shape=tuple(tensor.shape),
            dtype=dtype_name(tensor),
            kind=kind,
        )
        for leaf, (kind, tensor) in held.items()
        if leaf not in rule.dropped
    )
    yield LayerTensors(path=path, torch_path=path, kind=rule.kind, slots=slots)
    for name, child in inside.items():
        if child is not None:
            yield from _walk_torch(child, join(path, name))


def _refuse_lazy(held: Mapping[str, tuple[TensorKind, Any]], path: str) -> None:
    from torch.nn.parameter import is_lazy

    for leaf, (_, tensor) in held.items():
        if is_lazy(tensor):
            raise WeightsError(
                "has no shape yet",
                key=join(path, leaf),
                found="a lazy layer",
                hint="let the model's builder run it once on an input",
            )


def _torch_tensors(module: Any) -> Iterator[tuple[str, tuple[TensorKind, Any]]]:
    for leaf, tensor in module._parameters.items():  # noqa: SLF001
        if tensor is not None:
            yield leaf, ("parameter", tensor)
    for leaf, tensor in module._buffers.items():  # noqa: SLF001
        if tensor is not None and leaf not in module._non_persistent_buffers_set:  # noqa: SLF001
            yield leaf, ("buffer", tensor)


def _all_tensors(module: Any, path: str = "") -> Iterator[tuple[str, tuple[TensorKind, Any]]]:
    for leaf, found in _torch_tensors(module):
        yield join(path, leaf), found
    for name, child in module._modules.items():  # noqa: SLF001
        yield from _all_tensors(child, join(path, name))
