"""Where the port's code parts from the reference's: both are followed side by side, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice

import numpy as np

from tipchain.explain.causes.array_index import ArrayIndex, arranged
from tipchain.explain.causes.lines import Frame, codes_of, forwards, namesake, only_unlike
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import LAYER, LAYOUT, Act, Op, Program, numpy_of
from tipchain.framework_types import Array, Function, Nested, Options, Tensor
from tipchain.frameworks.base import map_nested
from tipchain.numbers.tolerance import NOISE, ROUGH, SAME_DOUBLE, SAME_ENLARGED, SAME_SINGLE

MOST_COUNTERPARTS = 64
"""Tensors of the reference's that are tried in the place of one, the likeliest first: each takes a call."""
CASTING = frozenset({"astype", "clone", "detach", "contiguous"})
"""Those of them that leave the axes as they are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parting:
    """A tensor of the port's that the reference does not have, and the one that it has in its place.

    Attributes:
        op: the call that made it.
        old: it.
        new: the reference's, in its shape.
        key: which tensor it is.
        ops: the calls since the last tensors that both have, up to this.
        step: the reference's call that made its counterpart.
        steps: the reference's calls since the last tensors that both have.
        alike: what the port makes of its own tensor is the reference's all the same.
    """

    op: Op
    old: Tensor
    new: Tensor
    key: int
    ops: tuple[Op, ...]
    step: Op
    steps: tuple[Op, ...]
    alike: bool = False


class Walk:
    """The port's calls, done again one by one with the reference's tensors wherever these part."""

    def __init__(self, piece: Piece, ops: Program, error: float) -> None:
        self.piece, self.ops, self.ended_alike = piece, ops, error <= NOISE
        self.tolerance = max(SAME_DOUBLE, min(SAME_SINGLE, ROUGH * error)) if piece.double else SAME_ENLARGED
        self.steps: Program = piece.record
        self.makers, self.makers_of, self.consumers = self.steps.makers, ops.makers, ops.consumers
        arrays = {number: one for number, one in enumerate(self.steps.values) if one is not None}
        self.index = ArrayIndex(arrays, self.tolerance)
        self.shared: set[int] = set()
        self.mended: set[int] = set()
        self.matched: dict[int, tuple[int, ...]] = {}
        self.healed: dict[int, Tensor] = {}
        self.leaves: dict[int, int] = {}  # the reference's constants by the port's, which mend what comes after
        self.open: dict[int, tuple[Op, ...]] = {}
        self.partings: list[Parting] = []
        self.called: dict[str, list[Op]] = {}
        self._akin: dict[int, set[int]] = {}
        self._had: dict[int, bool] = {}
        for step in self.steps:
            if step.name == LAYER:
                self.called.setdefault(step.said, []).append(step)

    def run(self) -> list[Parting]:
        """Return where the programs part, in the order of the port's calls."""
        for op in self.ops:
            for key, one in self.given(op).items():
                if key not in self.matched:
                    self._match(key, one)
            for key, one in self.made(op).items():
                self._match(key, one)
        # Tensors that no call made are what the code is given, or keeps.
        for op in self.ops:
            for key, one in self.given(op).items():
                if key in self.makers_of or self.matched[key] or key in self.healed:
                    continue
                found = self._counterpart(op, key, one, numpy_of(one), leaf=True)
                if found is not None:
                    self.leaves[key], self.healed[key] = found
                    self.shared.add(found[0])
        for op in self.ops:
            self._follow(op)
        # What could not be told while another operand of what comes after was wrong may be told now.
        for op in [one for one in self.ops if any(key in self.open for key in self.made(one))]:
            if not any(key in self.healed for key in self.made(op)):
                self._follow(op)
        self.partings.sort(key=lambda one: one.op.number)
        last = {key: op for op in self.ops for key in self.made(op)}  # the last of those that hand a tensor on
        for key, op in last.items():
            self._end(op, key)
        return self.partings

    def _end(self, op: Op, key: int) -> None:
        """Note where the reference goes on after the port's last call."""
        ours = self.piece.truth.outputs
        made = self.made(op)[key]
        array = numpy_of(made)
        ended = self.matched[key] and all(key in self.made(one) for one in self.consumers.get(key, ()))
        if not ended or any(one.size == array.size and self.index.same(one, array) for one in ours):
            return
        for number in self.index.sizes.get(array.size, ()):
            value = self.steps.values[number]
            wanted = any(one.shape == value.shape and self.index.same(one, value) for one in ours)
            if wanted and number in self.makers and number not in self.shared:
                new = self.as_ports(next(arranged(value, array.shape, flat=True)))
                self.partings.append(self.parting(op, made, new, key, (op,), self.makers[number]))
                break

    def given(self, op: Op) -> dict[int, Tensor]:
        """Return the tensors that a call was given, as they were then; what it wrote to comes last."""
        numbers = op.given if op.written is None else (*op.given[1:], op.given[0])
        return {number: self.ops.values[number] for number in numbers}

    def made(self, op: Op) -> dict[int, Tensor]:
        """Return the tensors that a call made, as they were then."""
        return {number: self.ops.values[number] for number in op.made}

    def number_of(self, op: Op, tensor: object) -> int | None:
        """Return the number of an argument of a call; None of a non-tensor, and of what the call wrote to."""
        given = zip(self.ops.tensors((op.args, op.kwargs)), op.given, strict=True)
        written = None if op.written is None else op.args[0]
        return next((number for one, number in given if one is tensor and one is not written), None)

    def matched_given(self, op: Op, tensor: object) -> tuple[int, ...]:
        """Return the reference's tensors that equal an argument of a call; none of a non-tensor."""
        number = self.number_of(op, tensor)
        return () if number is None else self.matched[number]

    def _match(self, key: int, tensor: object) -> None:
        self.matched[key] = self.index.find(numpy_of(tensor))
        self.shared.update(self.matched[key])

    def _follow(self, op: Op) -> None:
        """Redo one call if its arguments were put right; seek its counterpart if still wrong."""
        made, given = self.made(op), self.given(op)
        if all(self.matched[key] for key in made):
            return
        again = list(made.values())
        touched = any(key in self.healed for key in given)
        if touched:
            again = self.redone(op) or again
        if len(again) != len(made):
            return
        before = [one for key in given for one in self.open.get(key, ())]
        segment = tuple(sorted({*before, op}, key=lambda one: one.number))
        for (key, old), now in zip(made.items(), again, strict=True):
            right = self.index.find(numpy_of(now))
            if right:
                self.healed[key] = now
                self.mended.update(right)
                continue
            found = self._counterpart(op, key, old, numpy_of(now))
            if found is None:
                self.open[key] = segment
                if touched:
                    self.healed[key] = now
                continue
            number, tensor = found
            self.healed[key] = tensor
            self.shared.add(number)
            step = self.makers[number]
            alike = self._makes_right(key, now, op.number, number)
            self.partings.append(replace(self.parting(op, old, tensor, key, segment, step), alike=alike))

    # Which tensors both programs have, whole or in parts.

    @cached_property
    def _ports(self) -> ArrayIndex:
        return ArrayIndex({key: numpy_of(self.ops.values[key]) for key in self.matched}, self.tolerance)

    @cached_property
    def _known(self) -> set[int]:
        return {one for found in self.matched.values() for one in found}

    @cached_property
    def only_unlike(self) -> tuple[Frame, Frame] | None:
        """The only statement of the port that reads otherwise than the reference's, and that one; None where there are several, or none."""
        mine, others = (codes_of(frame for one in calls for frame in one.frames) for calls in (self.ops, self.steps))
        if not all(namesake(one, others) for one in mine):  # then what differs may stand there
            return None
        return only_unlike([*mine, *forwards(self.piece.port)], others)

    def akin(self, key: int) -> set[int]:
        """Return the reference's tensors that one of the port's is, or is a part of, or is put together of."""
        if key not in self._akin:
            maker, array = self.makers_of.get(key), self.ops.array(key)
            self._akin[key] = set(self.matched[key])
            if not self._akin[key] and maker is not None and array is not None:
                self._akin[key] = self.index.akin(array, picked=partial(self.ops.selects, maker))
        return self._akin[key]

    def has(self, number: int) -> bool:
        """Tell whether the port has one of the reference's tensors, whole or in parts."""
        maker, array = self.makers.get(number), self.steps.array(number)
        if number in self._known or maker is None or array is None:
            return number in self._known
        if number not in self._had:
            self._had[number] = bool(self._ports.akin(array, picked=partial(self.steps.selects, maker)))
        return self._had[number]

    def as_ports(self, array: Array) -> Tensor:
        """Return values of the reference's as a tensor of the port's."""
        return self.piece.sides.port.tensor(np.ascontiguousarray(array), gradient=False)

    def parting(self, op: Op, old: Tensor, new: Tensor, key: int, ops: tuple[Op, ...], step: Op) -> Parting:
        """Return a parting, with the reference's calls since the last tensors that both have."""
        chain = self.steps.with_makers([step], lambda number, _: number not in self.shared | self.mended)
        return Parting(op=op, old=old, new=new, key=key, ops=ops, step=step, steps=tuple(chain))

    def redone(self, op: Op, more: Mapping[int, object] | None = None) -> list[object] | None:
        """Return a call's results of corrected arguments; None if it cannot be redone."""
        healed = {**self.healed, **(more or {})}
        given = zip(self.ops.tensors((op.args, op.kwargs)), op.given, strict=True)
        swaps = {id(one): healed.get(number, self.ops.values[number]) for one, number in given}
        args, kwargs = exchanged((op.args, dict(op.kwargs)), swaps)
        if op.written is not None:
            args = (args[0].clone(), *args[1:])
        try:
            result = op.function(*args, **kwargs)
        except Exception:  # noqa: BLE001  (another shape may not fit: then it is not the counterpart)
            return None
        return [args[0]] if op.written is not None else self.piece.tensors(result)

    def _counterpart(
        self, op: Op, key: int, old: Tensor, array: Array, *, leaf: bool = False
    ) -> tuple[int, object] | None:
        """Return the reference's tensor that mends a call's successors, and that in the call's shape."""
        step, made = self.partner(op), list(op.made)
        same = step is not None and key in made and len(made) == len(step.made)
        known = (
            [step.made[made.index(key)]] if same and step is not None else None
        )  # what its counterpart returned there

        latest = max((one for each in op.given for one in self.matched.get(each, ())), default=-1)

        def unlikely(number: int) -> tuple[bool, bool, bool]:
            maker = self.makers.get(number)
            return (maker is not None) is leaf, maker is not None and maker.name != op.name, number < latest

        def may_be(number: int) -> bool:
            if number in self.shared or self.steps.values[number] is None:
                return False
            return self.is_table(number) if leaf and number in self.makers else leaf or number in self.makers

        sized = filter(may_be, sorted(self.index.sizes.get(array.size, ()), key=unlikely))
        for number in filter(may_be, known) if known is not None else islice(sized, MOST_COUNTERPARTS):
            ours = self.steps.values[number]
            for one in arranged(ours, array.shape, flat=True):
                tensor = self.as_ports(one)
                tensor = tensor.astype(old.dtype) if tensor.dtype != old.dtype else tensor
                if known is not None or self._makes_right(key, tensor, op.number - leaf, number):
                    return number, tensor
        return None

    def is_table(self, number: int) -> bool:
        """Tell whether the reference makes a tensor of nothing that it is given, and of no layer: a table, which the port may keep."""
        made = [self.makers[number]] if number in self.makers else []
        steps = self.steps.with_makers(made, lambda *_: True)
        if any(step.name == LAYER for step in steps):
            return False
        numbers = {number, *(one for step in steps for one in step.given)}
        given = [self.steps.values[one] for one in numbers if one not in self.makers]
        lost = any(self.steps.values[one] is None for one in numbers)
        return not lost and not any(np.array_equal(each, one) for each in self.piece.ours.inputs for one in given)

    def partner(self, op: Op) -> Op | None:
        """Return the reference's call of the layer that is the counterpart of a layer of the port's, of the same turn."""
        path = self.piece.partners.get(op.path) if op.name == LAYER else None
        turn = sum(one.name == LAYER and one.path == op.path and one.number < op.number for one in self.ops)
        called = [] if path is None else self.called.get(path, [])
        return called[turn] if turn < len(called) else None

    def _makes_right(self, key: int, new: Tensor, since: int, number: int) -> bool:
        """Tell whether a call after this one gives a tensor of the reference's as soon as it is given this tensor."""
        later = [one for one in self.consumers.get(key, ()) if one.number > since]
        if not later:
            ours = self.piece.truth.outputs
            return any(one.size == new.size and self.index.same(one, numpy_of(new)) for one in ours)
        same = {number, *self.index.find(numpy_of(new))}
        for one in later:
            results = self.redone(one, {key: new})
            if results is None:
                continue
            if one.name in LAYOUT:
                made = list(self.made(one))
                if len(made) == len(results) == 1 and self._makes_right(made[0], results[0], one.number, number):
                    return True
            elif results and all(set(self.index.find(numpy_of(each))) - same for each in results):
                return True
        return False

    def alters(self, op: Op) -> bool:
        """Tell whether a call takes tensors of the reference's and makes one that it lacks."""
        return not any(map(self.matched.get, self.made(op))) and all(map(self.matched.get, self.given(op)))

    def rests(self, key: int, other: int, *, wrong: bool = False) -> bool:
        """Tell whether one of the port's tensors was made of another; ``wrong``: through tensors alone that the reference lacks."""
        maker = self.makers_of.get(key)
        ops = self.ops.with_makers([maker] if maker else [], lambda number, _: not (wrong and self.matched[number]))
        return any(other in op.given for op in ops)

    def laid_alike(self, key: int, number: int) -> bool:
        """Tell whether two tensors of the same values have them in the same places, whatever the order of axes."""
        one, other = self.steps.values[number].squeeze(), numpy_of(self.ops.values[key]).squeeze()
        merged = sorted(one.shape) != sorted(other.shape)  # or cut: no order of axes tells more
        return merged or any(self.index.same(each, other) for each in arranged(one, other.shape))

    def key_of(self, number: int) -> int | None:
        """Return the port's tensor that is one of the reference's; None where none is."""
        return next((key for key, found in self.matched.items() if number in found), None)

    def told(self, key: int) -> str:
        """Return the name of a port's tensor in messages."""
        maker = self.makers_of.get(key)
        if maker is not None:
            made = list(self.made(maker))
            number = "the result" if len(made) == 1 else f"result {made.index(key)}"
            line = f" in `{maker.line}`" if maker.line and not maker.path else ""
            return f"{number} of `{maker.path or maker.name}`{line}"
        taker = next((op for op in self.ops if key in self.given(op)), None)
        name = "" if taker is None else self.piece.argument_of(numpy_of(self.ops.values[key]))
        if name:
            return f"`{name}`"
        return "what goes in" if taker is None else f"what goes into `{taker.path or taker.line or taker.name}`"


def exchanged(value: object, tensors: Mapping[int, object]) -> Nested:
    """Return nested arguments with some tensors replaced, by identity."""
    return map_nested(lambda one: tensors.get(id(one), one), value)


def acts_of(partings: Sequence[Parting], assign: Callable[[Tensor, Tensor], Tensor]) -> dict[int, Act]:
    """Return the acts that give the reference's tensors where the programs part."""
    by_op: dict[int, list[Parting]] = {}
    for one in partings:
        by_op.setdefault(one.op.number, []).append(one)
    return {number: _handing(found, assign) for number, found in by_op.items()}


def _handing(partings: Sequence[Parting], assign: Callable[[object, object], object]) -> Act:
    op = partings[0].op
    if op.written is not None:
        new = partings[0].new

        def write(_original: Function, args: tuple[Nested, ...], _kwargs: Options) -> Nested:
            assign(new, args[0])
            return args[0] if op.name != "setitem" else None

        return write
    result = exchanged(op.result, {id(one.old): one.new for one in partings})
    return lambda _original, _args, _kwargs: result
