"""Weights, buffers and inputs as causes: which differ, how, and their effect on a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, product

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.causes.hypotheses import NO_LINES, Hypothesis, called, lines_of, place_of
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import Op, constant, numpy_of
from tipchain.explain.causes.walk import Walk
from tipchain.explain.locate.differences import equal
from tipchain.explain.locate.matching import common_path
from tipchain.explain.preflight.parameters import Told, describe_values, is_constant, port_array, same_values
from tipchain.facts.functions import LIKES
from tipchain.facts.layers import STATISTICS
from tipchain.framework_types import Array, Model, Tensor
from tipchain.frameworks.live_models import LiveSide, Sides
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
        """Whether values differ by at most float32's rounding of an angle: at ``n`` places it turns by half a turn each, at most.

        That is rounded twice: ``2 pi n`` units. One place more or less, a part ``1 / n``, must be four times what is allowed. A table
        so long that it is not, at ``n`` units, is not called rounded.
        """
        places = max(self.ours.shape, default=0)
        if self.ours.shape != self.theirs.shape or self.theirs.dtype.kind != "f" or 4 * places**2 * UNIT > 1:
            return False
        scale = float(np.abs(self.ours).max(initial=0.0))
        allowed = min(2 * np.pi * places * UNIT, 1 / (4 * max(places, 1)))
        return bool(np.allclose(self.ours, self.theirs, rtol=0, atol=allowed * scale))


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


def rounded_tables(sides: Sides, reference: Model, port: Model) -> list[SharedTensor]:
    """Return the tables that no checkpoint holds and both sides fill alike but for rounding: positions' sines, windows."""
    saved = set(map(id, port.state_dict().values()))
    ours = [
        np.asarray(sides.reference.array(one), np.float64)
        for _, module in sides.reference.layers(reference)
        for one in (*module.buffers(recurse=False), *vars(module).values())
        if sides.reference.is_tensor(one)
    ]
    found = []
    for name, one in _kept(sides.port, port):
        theirs = None if id(one) in saved else np.asarray(sides.port.array(one), np.float64)
        pairs = (SharedTensor(name=name, ours=array, theirs=theirs, tensor=one) for array in ours if theirs is not None)
        found += [pair for pair in pairs if pair.rounded and pair.differs][:1]
    return found


def _kept(side: LiveSide, port: Model) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers and the tensors among the plain attributes of all of the port's layers."""
    for path, layer in side.layers(port):
        own = {**layer._buffers, **vars(layer)}  # noqa: SLF001
        yield from ((join(path, name), one) for name, one in own.items() if side.is_tensor(one))


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


MOST_TRIED = 8
"""The reference's constants that are tried in the place of one of the port's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constant:
    """A tensor that rests on no values of others: a buffer, an attribute, or what a call makes of plain numbers.

    Attributes:
        tensor: it.
        array: its values.
        maker: the call that makes it.
        taker: a call that is given it.
        wanted: the number of the tensor that the reference gives the call's counterpart there; None: not known.
    """

    tensor: Tensor
    array: Array
    maker: Op | None
    taker: Op
    wanted: int | None


def by_constants(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield the port with the reference's constants in the place of those that the reference lacks."""
    names = {id(one): name for name, one in _kept(piece.sides.port, piece.port)}
    for several in _constants(piece, walk):
        tried = {one: found for one in several if (found := list(islice(_in_place_of(one, walk), MOST_TRIED)))}
        for arrays in islice(product(*tried.values()), MOST_TRIED if tried else 0):
            yield _with_constants(dict(zip(tried, arrays, strict=True)), names, piece, walk)


def _constants(piece: Piece, walk: Walk) -> Iterator[list[Constant]]:
    """Group the constants that the reference lacks there by the line that makes, or takes, them."""
    found: dict[tuple[str, str], dict[int, Constant]] = {}
    for op in walk.ops:
        step, given = walk.partner(op), walk.given(op)
        for number, (key, tensor) in enumerate(given.items()):
            maker = walk.makers_of.get(key)
            if maker is not None and key in walk.given(maker):
                maker = None  # it hands on what it is given, such as a cast to the same type
            made = maker is not None and maker.name not in LIKES and bool(walk.given(maker))
            if made or not tensor.stop_gradient or (array := numpy_of(tensor)).dtype.kind == "c":
                continue
            if piece.argument_of(array):
                continue
            wanted = step.given[number] if step is not None and len(step.given) == len(given) else walk.leaves.get(key)
            known = walk.matched[key] if wanted is None else {wanted}.intersection(walk.matched[key])
            if any(walk.laid_alike(key, one) for one in known):
                continue
            beside = found.setdefault((op.name, op.place) if maker is None else (maker.name, maker.place), {})
            if key not in beside or beside[key].wanted is None:
                beside[key] = Constant(tensor=tensor, array=array, maker=maker, taker=op, wanted=wanted)
    tables = {step.name for step in walk.steps if not step.given}
    for several in found.values():
        one, *more = several.values()
        if more or one.maker is None or one.maker.name not in tables:  # else the maker's arguments are told
            yield [one, *more]


def _in_place_of(one: Constant, walk: Walk) -> Iterator[tuple[int, Array]]:
    """Yield the reference's constants in the shape of the port's, whole or one row or column of them; nothing where they are equal already.

    Those come first that hold the most of the port's numbers.
    """
    array, found = one.array, dict[bytes, tuple[int, Array]]()
    numbers = filter(walk.is_table, walk.index.arrays) if one.wanted is None else [one.wanted]
    for number in sorted(numbers, key=walk.shared.__contains__):
        value = walk.steps.values[number]
        if value is None:
            continue
        rows = (*value, *value.T) if value.ndim > 1 else ()
        for part in [value.reshape(array.shape)] if value.size == array.size else [value, *rows]:
            if part.dtype.kind == array.dtype.kind and part.shape == array.shape[array.ndim - part.ndim :]:
                whole = np.array(np.broadcast_to(part, array.shape), np.float64)
                found.setdefault(whole.tobytes(), (number, whole))
    if one.wanted is not None or not any(same_values(whole, array) for _, whole in found.values()):
        held = array.astype(np.float16)  # as many digits as tell one number of a table from the next
        yield from sorted(found.values(), key=lambda both: -np.isin(held, both[1].astype(np.float16)).mean())


def _with_constants(
    new: Mapping[Constant, tuple[int, Array]], names: Mapping[int, str], piece: Piece, walk: Walk
) -> Hypothesis:
    """Return the port with other values of some constants, which one line makes or is given."""
    (one, (number, array)), *_ = new.items()
    name, op, side = names.get(id(one.tensor), ""), one.maker or one.taker, piece.sides.port
    held = [SharedTensor(name=name, ours=ours, theirs=ours, tensor=each.tensor) for each, (_, ours) in new.items()]
    made = {
        each.maker.number: constant(side.tensor(ours, gradient=False).astype(each.tensor.dtype))
        for each, (_, ours) in new.items()
        if each.maker is not None
    }
    _, what, _ = describe_values(array, one.array.astype(np.float64), lambda: None)
    where = f"{called(op)}{place_of(op, piece)}"
    step = next((step for step in walk.steps if number in (*step.given, *step.made)), None)
    code, at = op.line, "" if step is None or not step.place else f"{step.place}: `{step.line}`"
    message = f"a constant that {where} {'makes' if made else 'is given'} {what}"
    fix = f"give {where} (`{code}`) the reference's values"
    return Hypothesis(
        code="buffer",
        name=name or op.name,
        message=f"its buffer `{name}`, which no checkpoint holds, {what}" if name else message,
        fix=f"fill `{name}` of {piece.shown} as the reference does" if name else f"{fix}, as at {at}" if at else fix,
        acts=made,
        within=None if made else partial(replaced, held),
        confirmed=True,
        changes=len(new),
        evidence="with the reference's values the error is gone",
        place=_place(piece, held) if name else None,
        lines=NO_LINES if name else lines_of(op, step),
        constants=(array, one.array),
    )


def _given_values(piece: Piece, held: Sequence[SharedTensor], told: tuple[str, str, str]) -> Hypothesis:
    code, what, fix = told
    message = f"its `{held[0].name}` {what}" if len(held) == 1 else what
    return Hypothesis(
        code="parameter",
        name=code,
        message=message,
        fix=fix.format(path=piece.theirs.path or "the model", name=held[0].name),
        within=partial(replaced, held),
        confirmed=True,
        changes=len(held),
        place=_place(piece, held),
        evidence=f"with the reference's {', '.join(one.name for one in held[:6])} the error is gone",
    )


def _place(piece: Piece, held: Sequence[SharedTensor]) -> str:
    """Return the path within the piece of the innermost layer that holds some tensors."""
    known = {path for path, _ in piece.sides.port.layers(piece.port)}
    return common_path(one if one in known else "" for one in (each.name.rpartition(".")[0] for each in held))


def own_tensors(piece: Piece) -> list[tuple[str, Tensor]]:
    """Return the parameters and buffers of numbers that the piece's own code holds, by name."""
    found: list[tuple[str, Tensor]] = []
    for path, layer in piece.sides.port.layers(piece.port):
        if path not in piece.atomic:
            own = {"include_sublayers": False}
            held = [*layer.named_parameters(**own), *layer.named_buffers(**own)]
            found += [(join(path, name), one) for name, one in held if "bool" not in str(one.dtype)]
    return found
