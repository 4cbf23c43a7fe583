"""Weights, buffers and inputs as causes: which differ, how, and their effect on a layer."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.causes.hypotheses import Hypothesis
from tipchain.explain.causes.piece import Piece
from tipchain.explain.locate.differences import equal
from tipchain.explain.locate.matching import common_path
from tipchain.explain.preflight.parameters import Told, describe_values, is_constant, port_array, same_values
from tipchain.facts.layers import STATISTICS
from tipchain.framework_types import Array, Model, Tensor
from tipchain.frameworks.live_models import Sides
from tipchain.numbers.tolerance import CONSTANT, UNIT
from tipchain.weights.sides import TensorSlot, divide, join, torch_view


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTensor:
    """A tensor of both layers.

    Attributes:
        name: torch's name within the layer.
        ours: the reference's values.
        theirs: the port's, in torch's layout.
        slot: where the port keeps it; None of what no checkpoint holds.
        tensor: that tensor itself, where there is no slot.
    """

    name: str
    ours: Array
    theirs: Array
    slot: TensorSlot | None = None
    tensor: Tensor = None

    @property
    def differs(self) -> bool:
        """Whether a value differs by more than a rounding to float32."""
        if self.ours.shape != self.theirs.shape or equal(self.ours, self.theirs):
            return False
        scale = float(np.abs(self.ours).max(initial=0.0))
        return not np.allclose(self.ours, self.theirs, rtol=0, atol=CONSTANT * scale, equal_nan=True)

    @property
    def rounded(self) -> bool:
        """Whether values differ by at most float32's rounding of a place among ``n``: ``n`` units.

        A table so long that one place more or less, a part ``1 / n``, is not four times that is not called rounded.
        """
        places = max(self.ours.shape, default=0)
        if self.ours.shape != self.theirs.shape or self.theirs.dtype.kind != "f" or 4 * places**2 * UNIT > 1:
            return False
        scale = float(np.abs(self.ours).max(initial=0.0))
        return bool(np.allclose(self.ours, self.theirs, rtol=0, atol=places * UNIT * scale))


def held_by(piece: Piece) -> list[SharedTensor]:
    """Return the tensors that both layers have, in float64 where they differ."""
    slots, both = {slot.name: slot for slot in _slots(piece)}, []
    for name, tensor in piece.reference.state_dict().items():
        if name in slots and tensor.is_floating_point():
            ours, theirs = piece.sides.reference.view(tensor), port_array(slots[name])
            if not equal(ours, theirs):
                ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
            both.append(SharedTensor(name=name, ours=ours, theirs=theirs, slot=slots[name]))
    return both


@contextmanager
def replaced(held: Sequence[SharedTensor]) -> Iterator[None]:
    """Let the port's layer have the reference's tensors for a while."""
    before = [[tensor.numpy() for tensor in _tensors(one)] for one in held]
    try:
        for one in held:
            _set(one, [one.ours] if one.slot is None else divide(one.ours, one.slot))
        yield
    finally:
        for one, arrays in zip(held, before, strict=True):
            _set(one, arrays)


def _tensors(held: SharedTensor) -> list[Tensor]:
    return [held.tensor] if held.slot is None else [part.tensor for part in held.slot.parts]


def _set(held: SharedTensor, arrays: Sequence[Array]) -> None:
    for tensor, array in zip(_tensors(held), arrays, strict=True):
        tensor.set_value(np.ascontiguousarray(array).astype(tensor.numpy().dtype))


def unsaved(
    sides: Sides, reference: Model, port: Model, judged: Container[str] = (), saved: Container[int] = ()
) -> list[SharedTensor]:
    """Return the tensors that the port's code keeps but no checkpoint holds, each with the reference's of its name and size.

    Buffers that are not saved and plain attributes; where no name fits, the one tensor of its size. Layers under ``judged``
    paths and ``saved`` tensors, by their ids, are left out.
    """
    ours = [
        (join(path, name), np.asarray(sides.reference.array(one), np.float64))
        for path, module in sides.reference.layers(reference)
        for name, one in (*module.named_buffers(recurse=False), *vars(module).items())
        if sides.reference.is_tensor(one)
    ]
    found = []
    for path, layer in sides.port.layers(port):
        own = {**layer._buffers, **vars(layer)}  # noqa: SLF001
        for name, one in own.items():
            if not sides.port.is_tensor(one) or id(one) in saved or path in judged:
                continue
            theirs = np.asarray(sides.port.array(one), np.float64)
            full = join(path, name)
            sized = [(known, array) for known, array in ours if array.shape == theirs.shape]
            named = [pair for pair in sized if pair[0] == full] or [
                pair for pair in sized if pair[0].rpartition(".")[2] == name
            ]
            fitting = named or (sized if len(sized) == 1 else [])
            if fitting:
                found.append(SharedTensor(name=full, ours=fitting[0][1], theirs=theirs, tensor=one))
    return found


def rounded_tables(sides: Sides, reference: Model, port: Model) -> list[SharedTensor]:
    """Return the tables that no checkpoint holds and both sides fill alike but for rounding: positions' sines, windows."""
    saved = set(map(id, port.state_dict().values()))
    return [one for one in unsaved(sides, reference, port, saved=saved) if one.differs and one.rounded]


def _slots(piece: Piece) -> list[TensorSlot]:
    try:
        return list(torch_view(piece.port))
    except WeightsError:
        return []


def describe(one: SharedTensor, own: str, wrong: Sequence[SharedTensor], state: Mapping[str, Array]) -> Told:
    """Return a slug, the fault of the reference's tensor ``own``, and its fix."""

    def elsewhere() -> str | None:
        beside = {other.name: other.ours for other in wrong if other is not one}
        held = {**beside, **{name: array for name, array in state.items() if name != own}}
        constant = is_constant(one.theirs)
        return None if constant else next((name for name in held if same_values(held[name], one.theirs)), None)

    return describe_values(one.ours, one.theirs, elsewhere)


# Weights and buffers as causes: the reference's are put into the port's layer, and what was there is described.


def by_tensors(piece: Piece, state: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """Yield the port's layer with the reference's tensors, each alone and all together."""
    wrong = [one for one in held_by(piece) if one.differs]
    if getattr(piece.port, "training", False):
        wrong = [one for one in wrong if one.name.rpartition(".")[2] not in STATISTICS]
    told = {one.name: describe(one, join(piece.ours.path, one.name), wrong, state) for one in wrong}
    for one in wrong:
        yield _given_values(piece, [one], told[one.name])
    if len(wrong) > 1:
        code, what, fix = told[wrong[0].name]
        names = ", ".join(one.name for one in wrong[:6])
        yield _given_values(piece, wrong, (code, f"several tensors are wrong ({names}); {wrong[0].name} {what}", fix))


def by_unsaved(piece: Piece, state: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """Yield the port's layer with the reference's values in buffers and attributes that no checkpoint holds."""
    saved = {id(part.tensor) for slot in _slots(piece) for part in slot.parts}
    kept = unsaved(piece.sides, piece.reference, piece.port, piece.judged, saved)
    wrong = [one for one in kept if one.differs]
    for one in wrong:
        told = describe(one, join(piece.ours.path, one.name), wrong, state)
        message = f"its buffer `{one.name}`, which no checkpoint holds, {told[1]}"
        fix = f"fill `{one.name}` of {piece.shown} as the reference does"
        given = _given_values(piece, [one], told)
        yield replace(given, code="buffer", name=one.name, message=message, fix=fix)


def _given_values(piece: Piece, held: Sequence[SharedTensor], told: tuple[str, str, str]) -> Hypothesis:
    code, what, fix = told
    message = f"its `{held[0].name}` {what}" if len(held) == 1 else what
    known = {path for path, _ in piece.sides.port.layers(piece.port)}
    paths = [one.name.rpartition(".")[0] for one in held]
    return Hypothesis(
        code="parameter",
        name=code,
        message=message,
        fix=fix.format(path=piece.theirs.path or "the model", name=held[0].name),
        within=partial(replaced, held),
        confirmed=True,
        changes=len(held),
        place=common_path(one if one in known else "" for one in paths),
        evidence=f"with the reference's {', '.join(one.name for one in held[:6])} the error is gone",
    )


def own_tensors(piece: Piece) -> list[tuple[str, Tensor]]:
    """Return the parameters and buffers of numbers that the piece's own code holds, by name."""
    found: list[tuple[str, Tensor]] = []
    for path, layer in piece.sides.port.layers(piece.port):
        if path not in piece.atomic:
            own = {"include_sublayers": False}
            held = [*layer.named_parameters(**own), *layer.named_buffers(**own)]
            found += [(join(path, name), one) for name, one in held if "bool" not in str(one.dtype)]
    return found
