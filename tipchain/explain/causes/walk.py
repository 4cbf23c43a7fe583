"""Where the port's code parts from the reference's: both are followed side by side, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, zip_longest
from typing import NamedTuple

import numpy as np

from tipchain.explain.causes.lines import Frame, codes_of, forwards, innermost, likeness, only_return, only_unlike
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import LAYER, LAYOUT, Act, Op, Program, has_own_backward, is_plain, numpy_of
from tipchain.explain.findings import Diagnosis, shown_path, source_of
from tipchain.explain.locate.differences import HIDING, MOST_AXES, Sketch, distance, hidden_by, relative, rms, same_mask
from tipchain.framework_types import Array, Function, Nested, Options, Tensor
from tipchain.frameworks.base import map_nested
from tipchain.numbers.tolerance import NOISE, ROUGH, SAME_DOUBLE, SAME_ENLARGED, SAME_SINGLE

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


class ShownParting(NamedTuple):
    """What is said of two calls that part: both with their values, what to do, and the statement of each side."""

    said: str
    fix: str
    here: Frame
    there: Frame


class Walk:
    """The port's calls, done again one by one with the reference's tensors wherever these part."""

    def __init__(self, piece: Piece, ops: Program, error: float) -> None:
        self.piece, self.ops, self.ended_alike = piece, ops, error <= NOISE
        self.tolerance = max(SAME_DOUBLE, min(SAME_SINGLE, ROUGH * error)) if piece.double else SAME_ENLARGED
        self.steps: Program = piece.record
        self.values = self.steps.values
        self.makers, self.makers_of, self.consumers = self.steps.makers, ops.makers, ops.consumers
        self.sizes: dict[int, list[int]] = {}
        arrays = [(number, one) for number, one in enumerate(self.values) if one is not None]
        for number, one in arrays:
            self.sizes.setdefault(one.size, []).append(number)
        self.sketches = {
            size: np.stack([Sketch(self.values[one]).numbers for one in some]) for size, some in self.sizes.items()
        }
        self.masks = [number for number, one in arrays if hidden_by(one) is not None]
        self.hiding = {number for number, one in arrays if one.dtype.kind == "f" and (one <= HIDING).any()}
        self.shared: set[int] = set()
        self.mended: set[int] = set()
        self.matched: dict[int, tuple[int, ...]] = {}
        self.healed: dict[int, Tensor] = {}
        self.open: dict[int, tuple[Op, ...]] = {}
        self.partings: list[Parting] = []
        self.leaves: dict[int, tuple[Tensor, Tensor]] = {}
        self.called: dict[str, list[Op]] = {}
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
                if key in self.makers_of or self.matched[key] or key in self.leaves:
                    continue
                found = self._counterpart(op, key, one, numpy_of(one), leaf=True)
                if found is not None:
                    self.leaves[key] = one, found[1]
                    self.healed[key] = found[1]
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
        if not ended or any(one.size == array.size and self._same(one, array) for one in ours):
            return
        for number in self.sizes.get(array.size, ()):
            value = self.values[number]
            wanted = any(one.shape == value.shape and self._same(one, value) for one in ours)
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
        self.matched[key] = self.find(numpy_of(tensor))
        self.shared.update(self.matched[key])

    def find(self, array: Array) -> tuple[int, ...]:
        """Return the reference's tensors that hold the same, in whatever layout; of masks those that hide the same."""
        if not array.size:
            return ()
        hides, every = array.dtype.kind == "f" and bool((array <= HIDING).any()), self.sizes.get(array.size, [])
        if hides:
            close = [number for number in every if number in self.hiding]
        else:
            alike = Sketch(array).among(self.sketches[array.size], max(self.tolerance, SAME_DOUBLE)) if every else ()
            close = [number for number, one in zip(every, alike, strict=True) if one]
        found = [number for number in close if self._same(self.values[number], array)]
        masked = self.masks if hides or array.dtype.kind == "b" else ()
        return tuple(dict.fromkeys([*found, *(one for one in masked if same_mask(self.values[one], array))]))

    def _same(self, ours: Array, theirs: Array) -> bool:
        if ours.shape == theirs.shape:
            if ours.dtype.kind == theirs.dtype.kind == "f" and (ours <= HIDING).any():
                hidden = ours <= HIDING  # how far what is hidden is pushed down says nothing
                if not np.array_equal(hidden, theirs <= HIDING):
                    return False
                ours, theirs = ours[~hidden], theirs[~hidden]
            return relative(ours, theirs) <= self.tolerance
        if relative(ours.reshape(-1), theirs.reshape(-1)) <= self.tolerance:
            return True
        return any(relative(one, theirs) <= self.tolerance for one in arranged(ours, theirs.shape))

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
            right = self.find(numpy_of(now))
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
            whole = replace(self.parting(op, old, tensor, key, segment, step), alike=alike)
            self.partings += self._elements(op, step) or [whole]

    def as_ports(self, array: Array) -> Tensor:
        """Return values of the reference's as a tensor of the port's."""
        return self.piece.sides.port.tensor(np.ascontiguousarray(array), gradient=False)

    def parting(self, op: Op, old: Tensor, new: Tensor, key: int, ops: tuple[Op, ...], step: Op) -> Parting:
        """Return a parting, with the reference's calls since the last tensors that both have."""
        chain = self.steps.with_makers([step], lambda number, _: number not in self.shared | self.mended)
        return Parting(op=op, old=old, new=new, key=key, ops=ops, step=step, steps=tuple(chain))

    def _elements(self, op: Op, step: Op) -> list[Parting]:
        """Return the partings of the tensors that both put together, where each is the counterpart of the one in its place."""
        parts = op.args[0] if op.name in ("stack", "concat") and op.args else None
        if op.name != step.name or not isinstance(parts, list | tuple) or len(parts) != len(step.given):
            return []
        keys = [key for one in parts if (key := self.number_of(op, one)) is not None]
        if all(set(self.matched[key]) & set(step.given) for key in keys):  # they stand in another order
            return []
        found, others = [], set(step.given)

        def leads(number: int, maker: Op) -> bool:
            return set(self.matched[number]) <= others or maker.name in LAYOUT

        for key, old, number in zip(keys, parts, step.given, strict=True):
            if number in self.matched[key]:
                continue
            maker, made, value = self.makers_of.get(key), self.makers.get(number), self.values[number]
            elsewhere = set(self.matched[key]) - others  # it is right, and does not belong here
            if maker is None or made is None or value is None or value.size != old.size or elsewhere:
                return []
            new = self.as_ports(next(arranged(value, tuple(old.shape), flat=True)))
            before = self.open.get(key) or tuple(self.ops.with_makers([maker], leads))
            found.append(self.parting(maker, old, new, key, before, made))
        return found

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
        masked = self._mask_for(key, old, array, op.number - leaf) if known is None else None
        if masked is not None:
            return masked

        def unlikely(number: int) -> tuple[bool, bool]:
            maker = self.makers.get(number)
            return (maker is not None) is leaf, maker is not None and maker.name != op.name

        sized = sorted(self.sizes.get(array.size, ()), key=unlikely)
        for number in known if known is not None else sized:
            ours = self.values[number]
            if number in self.shared or (number not in self.makers and not leaf) or ours is None:
                continue
            if leaf and number in self.makers and not self.is_table(number):
                continue
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
        given = [self.values[one] for one in numbers if one not in self.makers]
        lost = any(self.values[one] is None for one in numbers)
        return not lost and not any(np.array_equal(each, one) for each in self.piece.ours.inputs for one in given)

    def _mask_for(self, key: int, old: Tensor, array: Array, since: int) -> tuple[int, object] | None:
        """Return the reference's mask that mends all that follows, in the port's form."""
        ours = hidden_by(array)
        for number in self.masks if ours is not None else ():
            hidden = None if number in self.shared else hidden_by(self.values[number])
            if hidden is None or ours is None:
                continue
            try:
                hidden, like = np.broadcast_arrays(hidden, ours)
            except ValueError:
                continue
            hidden = hidden if (hidden == like).mean() >= 0.5 else ~hidden
            form = hidden if array.dtype.kind == "b" else np.where(hidden, array.min(), 0.0)
            tensor = self.as_ports(form)
            tensor = tensor.astype(old.dtype) if tensor.dtype != old.dtype else tensor
            if self._makes_right(key, tensor, since, number):
                return number, tensor
        return None

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
            return any(one.size == new.size and self._same(one, numpy_of(new)) for one in ours)
        same = {number, *self.find(numpy_of(new))}
        for one in later:
            results = self.redone(one, {key: new})
            if results is None:
                continue
            if one.name in LAYOUT:
                made = list(self.made(one))
                if len(made) == len(results) == 1 and self._makes_right(made[0], results[0], one.number, number):
                    return True
            elif results and all(set(self.find(numpy_of(each))) - same for each in results):
                return True
        return False

    def alters(self, op: Op) -> bool:
        """Tell whether a call takes tensors of the reference's and makes one that it lacks."""
        return not any(map(self.matched.get, self.made(op))) and all(map(self.matched.get, self.given(op)))

    def rests(self, key: int, other: int) -> bool:
        """Tell whether one of the port's tensors was made of another."""
        maker = self.makers_of.get(key)
        ops = [] if maker is None else self.ops.with_makers([maker], lambda *_: True)
        return any(other in op.given for op in ops)

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

    def first_apart(self, *, proved: bool) -> tuple[Op, Op]:
        """Return the first call of each program whose result the other lacks.

        If it is ``proved`` that the error comes from the partings, of those that these rest on, else that the end rests on.
        """
        partings = self.partings if proved else []
        ends = {one.key for one in partings}, {number for one in partings for number in one.step.made}
        known = {one for found in self.matched.values() for one in found}
        theirs = _frontier(self.ops, ends[0], lambda key: not self.matched.get(key))
        ours = _frontier(self.steps, ends[1], lambda number: number not in known)
        pairs = [
            (op, step, (op.name == step.name) + self._given_alike(op, step))
            for step in ours or self.steps[-1:]
            for op in theirs or self.ops[:1]
        ]
        op, step, _ = max(pairs, key=lambda one: one[2])  # of those alike the first
        for _ in self.ops:  # back to where the port arranges a tensor otherwise
            key, number, arranged = self._unlike(op, step)
            if not arranged or (key not in self.makers_of and number not in self.makers):
                break
            op, step = self.makers_of.get(key, op), self.makers.get(number, step)
        return op, step

    def gradients_apart(self) -> tuple[Op, Op] | None:
        """Return the first calls of the last tensor that both programs have with other gradients; None where there is none."""
        ours, theirs = self.steps.gradients, self.ops.gradients
        least = SAME_SINGLE * max((rms(one) for one in ours.values()), default=0.0)

        def alike(key: int, number: int) -> bool:
            value = self.values[number]
            actual = theirs.get(key, np.zeros(value.size))
            expected = ours.get(number, np.zeros(value.shape))
            fitting = arranged(expected, actual.shape, flat=True)
            return any(distance(one, actual) <= max(least, ROUGH * rms(expected)) for one in fitting)

        # A tensor that is only arranged has a share of the gradient of what it was.
        for op in (one for one in reversed(self.ops) if one.name not in LAYOUT):
            for key in self.ops.watched.intersection(op.made):
                size = self.ops.values[key].size
                found = [
                    number
                    for number in self.steps.watched.intersection(self.matched[key])
                    if self.values[number].size == size and self.makers[number].name not in LAYOUT
                ]
                calls = (
                    self.consumers.get(key, []),
                    [step for one in found for step in self.steps.consumers.get(one, [])],
                )
                if all(calls) and not any(alike(key, number) for number in found):
                    return calls[0][0], calls[1][0]
        return None

    def _unlike(self, op: Op, step: Op) -> tuple[int, int, bool]:
        """Return the first tensors that two calls of one function are given in one place and that differ, though both have them.

        The last of the three tells whether one is the other arranged otherwise; the first two are -1 where there are none.
        """
        for key, number in zip(op.given, step.given, strict=False) if op.name == step.name else ():
            found, value = set(self.matched[key]), self.values[number]
            if value is None or not found:
                continue
            if number in found:
                otherwise = not self._laid_alike(value.squeeze(), numpy_of(self.ops.values[key]).squeeze())
            else:
                otherwise = bool(found & self._arranged_from(number))
            if otherwise or (number not in found and self.key_of(number) is not None):
                return key, number, otherwise
        return -1, -1, False

    def _laid_alike(self, one: Array, other: Array) -> bool:
        """Tell whether two arrays of the same values have them in the same places, whatever the order of axes."""
        merged = sorted(one.shape) != sorted(other.shape)  # or cut: no order of axes tells more
        return merged or any(self._same(each, other) for each in arranged(one, other.shape))

    def _arranged_from(self, number: int) -> set[int]:
        """Return the reference's tensors of which one is another arrangement."""
        maker = self.makers.get(number)
        steps = self.steps.with_layout([maker]) if maker is not None and maker.name in LAYOUT else []
        return {one for step in steps for one in step.given}

    def _given_alike(self, op: Op, step: Op) -> bool:
        """Tell whether two calls are given a tensor that both programs have, or none at all."""
        return any(set(self.matched[key]) & set(step.given) for key in self.given(op)) or not (op.given or step.given)

    @cached_property
    def only_unlike(self) -> tuple[Frame, Frame] | None:
        """The only statement of the port that reads otherwise than the reference's, and that one; None where there are several, or none."""
        mine, others = (codes_of(frame for one in calls for frame in one.frames) for calls in (self.ops, self.steps))
        return only_unlike([*mine, *forwards(self.piece.port)], others)

    def statements(self, op: Op, step: Op) -> tuple[Frame, Frame]:
        """Return the port's statement and the reference's where a call of each part.

        Of code that is written alike but for one statement, it is that. Where they call other functions, it is the port's
        statement that reads most like the reference's: that of the call, or of those that made what both calls are given.
        """
        if self.only_unlike is not None:
            return self.only_unlike
        here, there = innermost(op.frames), innermost(step.frames)
        shared = [key for key in (*op.made, *self.given(op)) if set(self.matched[key]) & set(step.given)]
        key, number, _ = self._unlike(op, step)
        if key >= 0:
            return _handed_on(self.ops, op, key), _handed_on(self.steps, step, number)
        if op.name == step.name or not shared:
            return here, there
        made = [self.makers_of[key].frames for key in shared if key in self.makers_of]
        makers = [next((one for one in each if one.code == here.code), innermost(each)) for each in made]
        return max([here, *makers], key=lambda one: likeness(one.reading, there.reading)), there

    def told_apart(self, op: Op, step: Op) -> ShownParting:
        """Return what is said of two calls that part, what to do, and where."""
        here, there = self.statements(op, step)
        mine = f"{here.place} (`{here.line}`)" if here.place else f"`{op.name}`"
        other = f"{there.place}: `{there.line}`" if there.place else f"`{step.said}`"
        said = f"the port's {self.statement(op)}; the reference's {self.statement(step)}"
        return ShownParting(said, f"do at {mine} what the reference does at {other}", here, there)

    def statement(self, call: Op) -> str:
        """Write a call, where it stands, and the values that go in and come out."""
        ports = call.function is not None
        program, numbers = (self.ops, self.given(call)) if ports else (self.steps, call.given)
        given, made = (
            ", ".join(glimpse(array) for one in each if (array := program.array(one)) is not None)
            for each in (numbers, call.made)
        )
        settings = {key: one for key, one in call.kwargs.items() if one is not None and is_plain(one)}
        named = {key: one for key, one in settings.items() if not key.isdigit() and key[0] != "_"}
        told = ", ".join(f"{key}={one}" for key, one in (dict.fromkeys(call.named, "…") | named).items())
        where = f" at {call.place}" if call.place else ""
        return f"`{call.said}({told})`{where} makes {made}{f' of {given}' if given else ''}"


def _handed_on(program: Program, call: Op, number: int) -> Frame:
    """Return the statement that hands a tensor on to a call, in the function that had it made."""
    maker = program.makers.get(number)
    while maker is not None and maker.name in LAYOUT and maker.given[:1] and maker.given[0] in program.makers:
        maker = program.makers[maker.given[0]]
    outwards = zip_longest(reversed(call.frames), reversed(maker.frames if maker is not None else ()))
    return next((one for one, other in outwards if one is not None and one != other), innermost(call.frames))


def _frontier(program: Program, ends: Collection[int], lacking: Callable[[int], bool]) -> list[Op]:
    """Return the calls that make of what both programs have the first tensors that the other lacks.

    Args:
        program: one side's calls.
        ends: the tensors that rest on them; where there are none, all that no call is given.
        lacking: tells of a tensor whether the other program lacks it.
    """
    made = [number for op in program for number in op.made]
    left = [
        number for number in made if (number in ends if ends else number not in program.consumers and lacking(number))
    ]
    found, seen = list[Op](), set[int]()
    while left:
        op = program.makers[left.pop()]
        if op.number in seen:
            continue
        seen.add(op.number)
        before = [
            one
            for one in op.given
            if lacking(one) and one not in op.made and one in program.makers and program.makers[one].frames
        ]
        left += before
        found += [] if before else [op]
    return sorted(found, key=lambda one: one.number)


def show(piece: Piece, walk: Walk) -> Diagnosis:
    """Show both statements at which two programs part, with the values that go in and come out."""
    path, parted = piece.theirs.path, walk.gradients_apart() if walk.ended_alike else None
    theirs, ours = parted or walk.first_apart(proved=False)
    statements, fix, here, there = walk.told_apart(theirs, ours)
    places = [here.source, there.source]
    own = next((op for op in walk.ops if has_own_backward(op)), None)
    if walk.ended_alike and (parted is None or here.reading == there.reading):
        fix = "look for what scales or stops gradients alone: an argument (`norm_by_times`), a hook, a part that is detached"
    if walk.ended_alike:
        statements = f"the values agree, and the gradients do not: {statements}"
    if walk.ended_alike and own is not None:
        backward = getattr(own.function, "__self__").backward  # noqa: B009  (a class that mypy does not know)
        line, begins = only_return(backward), source_of(backward)
        where = f" at {line.short} (`{line.code}`)" if line else f" at {begins.short}" if begins else ""
        places[0] = line or begins
        statements = f"the values agree, and the gradients do not: `{own.name}` has a backward of its own{where}"
        fix = f"compare the backward of `{own.name}`{where} with the reference's"
    return Diagnosis(
        code="parting",
        port_path=path,
        message=f"{shown_path(path)}: {statements}",
        evidence="",
        fix=fix,
        place=places[0],
        reference_place=places[1],
    )


MOST_SHOWN = 4
"""Values of a tensor that are shown of many."""


MOST_WHOLE = 12
"""Values of a tensor that is shown whole."""


def glimpse(array: Array) -> str:
    """Write a number, or the first values of an array and its shape."""
    shown = MOST_SHOWN if array.size > MOST_WHOLE else MOST_WHOLE
    values = [f"{one:.6g}" for one in array.reshape(-1)[:shown].tolist()]
    if array.size == 1:
        return values[0]
    more = ", …" if array.size > MOST_WHOLE else ""
    return f"[{', '.join(values)}{more}] ({'x'.join(map(str, array.shape))})"


def arranged(array: Array, shape: Sequence[int], *, flat: bool = False) -> Iterator[Array]:
    """Yield an array in a shape: as it is, with its axes in another order, or, if ``flat``, by its order in memory."""
    if array.shape == tuple(shape):
        yield array
    elif sorted(array.shape) == sorted(shape) and array.ndim <= MOST_AXES:
        for axes in permutations(range(array.ndim)):
            if tuple(array.shape[axis] for axis in axes) == tuple(shape):
                yield array.transpose(axes)
    elif flat and array.size == int(np.prod(shape)):
        yield array.reshape(shape)


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
