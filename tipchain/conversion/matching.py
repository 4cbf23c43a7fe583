"""Which tensor of a torch model is which of its Paddle port: by name, then by structure, else listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tipchain.conversion.layouts import UNSUPPORTED, LayerTensors, Slot
from tipchain.conversion.paddle_side import paddle_layers, split_names
from tipchain.conversion.structure import match_by_structure
from tipchain.conversion.torch_side import torch_layers
from tipchain.conversion.units import kind_text, paddle_units, tell, torch_units
from tipchain.errors import WeightsError, did_you_mean
from tipchain.layer_types import join

MATRIX_KINDS = ("Linear", "MultiheadAttention")
"""Kinds whose matrices torch and Paddle keep the other way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How the tensors of two models belong together.

    Attributes:
        slots: where the Paddle model keeps each torch tensor, by torch's name.
        tied: torch tensors that Paddle does not keep once more: the name of the same tensor in ``slots``.
        zeros: Paddle's constant zeros that torch does not have.
        names: Paddle's name by torch's of all layers and tensors that `paddle_layers` must be told.
        by_structure: torch's and Paddle's names of what was matched by structure.
    """

    slots: Mapping[str, Slot]
    tied: Mapping[str, str]
    zeros: tuple[Slot, ...]
    names: Mapping[str, str]
    by_structure: tuple[tuple[str, str], ...] = ()


class UnmatchedError(WeightsError):
    """Two models that do not belong together."""

    def __init__(self, problems: Sequence[str], file: Path | None = None) -> None:
        self.problems = tuple(problems)
        hint = None
        if any(one.startswith(("missing: ", "unknown: ", "ambiguous: ")) for one in problems):
            hint = "names: (in the case) or --names say what cannot be matched by kind, shape and order"
        super().__init__(
            "does not fit the model", file=file, found="".join(f"\n    {one}" for one in problems), hint=hint
        )


def match_models(torch_model: Any, paddle_model: Any, names: Mapping[str, str] | None = None) -> Match:
    """Match the tensors of a torch model with those of its Paddle port.

    Args:
        torch_model: a ``torch.nn.Module``.
        paddle_model: a ``paddle.nn.Layer``.
        names: Paddle's name by torch's, of tensors or of layers; what they say is not questioned.

    Raises:
        UnmatchedError: something could not be matched; all of it is listed, of both models.
    """
    names = names or {}
    torch, paddle = torch_layers(torch_model), paddle_layers(paddle_model, names)
    _refuse(_bad_names(names, torch, paddle_model) + _unsupported(paddle))
    ties = _ties(torch_model)
    if not _left(torch, paddle, ties):
        return _match(torch, paddle, ties, names)
    opened = to_open(torch, paddle)
    if opened:
        paddle = paddle_layers(paddle_model, names, opened)
    settled = {**_across_kinds(torch, paddle), **names}
    found = match_by_structure(torch_units(torch, names, settled, ties), paddle_units(paddle, settled))
    _refuse(found.problems)
    resolved = dict(settled)
    for unit, port in found.pairs:
        if not unit.given:
            resolved[unit.path] = port.path
            resolved.update({name: join(port.path, leaf) for name, leaf in unit.odd})
    paddle = paddle_layers(paddle_model, resolved)
    _refuse(_left(torch, paddle, ties))
    moved = tuple((unit.path, port.path) for unit, port in found.pairs if unit.path != port.torch_path)
    return _match(torch, paddle, ties, resolved, moved)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise UnmatchedError(problems)


def _bad_names(names: Mapping[str, str], torch: Sequence[LayerTensors], paddle_model: Any) -> list[str]:
    """Say which given names lead from or to nothing, or several to one."""
    ours = [slot.name for layer in torch for slot in layer.slots]
    theirs = list(paddle_model.state_dict())
    found, seen = [], dict[str, str]()
    for old, new in names.items():
        if not any(name == old or name.startswith(f"{old}.") for name in ours) and old:
            found.append(f"names: {old} is no tensor or layer of the torch model{_near(old, ours)}")
        targets = split_names(new)
        for one in targets:
            layer = len(targets) == 1 and any(name.startswith(f"{one}.") for name in theirs)
            if one and one not in theirs and not layer:
                found.append(f"names: {old} goes to {one}, which the port does not have{_near(one, theirs)}")
            if one in seen:
                found.append(f"names: {seen[one]} and {old} both go to {one}")
            seen[one] = old
    return found


def _near(name: str, names: Sequence[str]) -> str:
    """Return a hint at a name that is close, of a tensor or of a layer."""
    layers = {name.rpartition(".")[0] for name in names}
    hint = did_you_mean(name, (*names, *sorted(layers - {""})))
    return f", {hint}" if hint else ""


def _unsupported(paddle: Iterable[LayerTensors]) -> list[str]:
    return [
        f"not supported: {slot.parts[0].names[0]} belongs to a {layer.kind.removeprefix(UNSUPPORTED)}, "
        "of which is not known how torch would keep it"
        for layer in paddle
        if layer.kind.startswith(UNSUPPORTED)
        for slot in layer.slots
    ]


def _ties(torch_model: Any) -> dict[str, str]:
    """Return, by torch's name, the name under which the same tensor comes first."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(tensor), name)
        for name, tensor in torch_model.state_dict(keep_vars=True).items()
    }


def _by_name(
    torch: Iterable[LayerTensors], paddle: Iterable[LayerTensors]
) -> dict[str, tuple[Slot, str, str]]:
    """Return, by torch's name, the slot of that name and the kinds of both layers."""
    named: dict[str, tuple[Slot, str]] = {}
    for layer in paddle:
        for slot in layer.slots:
            named.setdefault(slot.name, (slot, layer.kind))
    found = {}
    for layer in torch:
        for slot in layer.slots:
            port = named.get(slot.name) or named.get(join(layer.path, slot.leaf))
            if port is not None:
                found[slot.name] = (*port, layer.kind)
    return found


def _tied(torch: Iterable[LayerTensors], named: Iterable[str], ties: Mapping[str, str]) -> dict[str, str]:
    first: dict[str, str] = {}
    for name in named:
        first.setdefault(ties.get(name, name), name)
    return {
        slot.name: first[ties[slot.name]]
        for layer in torch
        for slot in layer.slots
        if slot.name not in set(named) and ties.get(slot.name) in first
    }


def _left(
    torch: Sequence[LayerTensors], paddle: Sequence[LayerTensors], ties: Mapping[str, str]
) -> list[str]:
    """List what names alone leave unmatched, Paddle's first."""
    named = _by_name(torch, paddle)
    used = {id(slot) for slot, _, _ in named.values()}
    tied = _tied(torch, named.keys(), ties)
    return [
        f"missing: {tell(layer, slot)}"
        for layer in paddle
        for slot in layer.slots
        if id(slot) not in used and not slot.fixed and not slot.again
    ] + [
        f"unknown: {tell(layer, slot)}"
        for layer in torch
        for slot in layer.slots
        if slot.name not in named and slot.name not in tied
    ]


def _match(
    torch: Sequence[LayerTensors], paddle: Sequence[LayerTensors], ties: Mapping[str, str],
    names: Mapping[str, str], moved: tuple[tuple[str, str], ...] = (),
) -> Match:  # fmt: skip
    """Return the match that names make, now that they leave nothing.

    Raises:
        UnmatchedError: of a square matrix cannot be told whether it must be transposed.
    """
    named = _by_name(torch, paddle)
    _refuse(
        [
            f"layout: {name} {list(slot.shape)} belongs to {kind_text(kind)} in torch and to {kind_text(port_kind)} in "
            "the port; whether it must be transposed cannot be told of a square one: make both one type of layer"
            for name, (slot, port_kind, kind) in named.items()
            if kind != port_kind and len(slot.shape) == 2 and slot.shape[0] == slot.shape[1]
            and (kind in MATRIX_KINDS) != slot.parts[0].transpose
        ]
    )  # fmt: skip
    used = {id(slot) for slot, _, _ in named.values()}
    odd = {name: slot.parts[0].names[0] for name, (slot, _, _) in named.items() if slot.name != name}
    return Match(
        slots={name: slot for name, (slot, _, _) in named.items()},
        tied=_tied(torch, named.keys(), ties),
        zeros=tuple(slot for layer in paddle for slot in layer.slots if slot.fixed and id(slot) not in used),
        names={**names, **odd},
        by_structure=moved,
    )


def _across_kinds(torch: Iterable[LayerTensors], paddle: Iterable[LayerTensors]) -> dict[str, str]:
    """Return Paddle's name by torch's of tensors of one name and shape whose layers are of different kinds.

    Such is a framework's layer on one side and a user's own class on the other.
    """
    named = _by_name(torch, paddle)
    return {
        name: slot.parts[0].names[0]
        for layer in torch
        if all(slot.name in named for slot in layer.slots)
        for name, (slot, kind, ours), shape in (
            (slot.name, named[slot.name], slot.shape) for slot in layer.slots
        )
        if kind != ours and slot.shape == shape and len(slot.parts) == 1
    }


def to_open(torch: Sequence[LayerTensors], paddle: Sequence[LayerTensors]) -> frozenset[str]:
    """Return the paths of Paddle's packed layers for which torch has single layers."""
    kinds = {layer.kind for layer in torch}
    at = {(layer.path, layer.kind) for layer in torch}
    return frozenset(
        layer.path
        for layer in paddle
        if layer.inner
        and (layer.torch_path, layer.kind) not in at
        and (layer.kind not in kinds or any(one.path.startswith(f"{layer.torch_path}.") for one in torch))
    )
