"""The first calls at which two programs part, and what is said of them: both statements, and the values that go in and come out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from tipchain.core.language import listed
from tipchain.explain.causes.array_index import arranged, varies
from tipchain.explain.causes.lines import Frame, codes_of, innermost, likeness, only_return, opposite
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import LAYER, LAYOUT, Op, Program, has_own_backward, is_plain
from tipchain.explain.causes.walk import Parting, Walk
from tipchain.explain.findings import Diagnosis, shown_path, source_of
from tipchain.explain.locate.differences import distance, rms
from tipchain.facts.functions import LIKES
from tipchain.framework_types import Array
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE


class ShownParting(NamedTuple):
    """Two calls that part, in words: both with their values, the fix, and the statement of each side."""

    said: str
    fix: str
    here: Frame
    there: Frame


PLACELESS = frozenset({"add", "multiply", "maximum", "minimum"})
"""Functions that make the same of their tensors in whatever order."""
ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide"})
"""Functions of two tensors of which each tells the other."""
ANYWHERE = PLACELESS | {"subtract", "divide", "getitem"} | LAYOUT
"""Functions that stand everywhere: two of one name need not be each other's."""


class Divergence:
    """The place at which two walked programs part."""

    def __init__(self, walk: Walk) -> None:
        self.walk, self.piece, self.ops, self.steps = walk, walk.piece, walk.ops, walk.steps
        self.matched, self.makers, self.makers_of = walk.matched, walk.makers, walk.makers_of
        self.akin, self.has = walk.akin, walk.has

    # The first calls that part.

    def first(self, *, proved: bool) -> tuple[Op, Op]:
        """Return the first call of each program whose result the other lacks.

        If it is ``proved`` that the error comes from the partings, of those that these rest on, else that the end rests on.
        """
        partings = self.walk.partings if proved else []
        wrong = (one for one in self.ops if one.name == LAYER and one.path == self.piece.receiver)
        receiver = next((one for one in wrong if not any(self.matched[key] for key in one.made)), None)
        given_to = None if receiver is None or partings else self.walk.partner(receiver)
        op, step, common = self._nearest(partings[:1])
        if receiver is not None and given_to is not None:
            op, step, common = receiver, given_to, 1.0
        elif partings[1:] and not common:
            op, step, common = self._nearest(partings)
        partner = self.walk.partner(op)
        given = zip(op.given, () if partner is None else partner.given, strict=False)
        if partner is not None and any(number in step.made and not self.matched[key] for key, number in given):
            step = partner
        for _ in self.ops if common else ():  # back to where the port makes otherwise what it hands on
            key, number, back = self._unlike(op, step)
            if not back or (key not in self.makers_of and number not in self.makers):
                break
            op, step = self.makers_of.get(key, op), self.makers.get(number, step)
        return self._relaid(op, step) if step.name in LAYOUT else (op, step)

    def _relaid(self, op: Op, step: Op) -> tuple[Op, Op]:
        """Follow two calls back through what only arranges a tensor, to the first that the port arranges otherwise."""
        steps = self.steps.with_layout([step])
        every = [(one, array) for one in steps for array in self.steps.arrays(one.made[:1])]
        for one in self.ops.with_layout([op]):
            for made in self.ops.arrays(one.made[:1]) if one.name in LAYOUT else ():
                shaped = [(each, array) for each, array in every if array.shape == made.shape]
                if not any(self._equal(array, made) for _, array in shaped):
                    return one, shaped[-1][0] if shaped else step
        return op, step

    def _nearest(self, partings: Sequence[Parting]) -> tuple[Op, Op, float]:
        """Return the calls that lead first to some partings, or to the end, and how much they have in common."""
        keys, numbers = {one.key for one in partings}, {number for one in partings for number in one.step.made}
        ends = (
            {key for key in keys if not self.akin(key)} or keys,
            {number for number in numbers if not self.has(number)} or numbers,
        )
        theirs = _frontier(self.ops, ends[0], lambda key: not (self.akin(key) or self._is_proved(key)))
        ours = _frontier(self.steps, ends[1], lambda number: not self.has(number)) or self.steps[-1:]
        theirs = theirs or self._ends() or self.ops[:1]
        # What a call makes may equal what it is given: then another operand of it is what differs.
        idle = [
            maker
            for op in theirs
            for key in op.given
            if (maker := self.makers_of.get(key)) is not None and _changes_nothing(self.ops, maker)
        ]
        lacking = [step for step in self.steps if step.made and not any(map(self.has, step.made))]
        for steps in (ours, lacking):  # else what stands opposite rests on what the port lacks, too
            pairs = [(op, step, self._common(op, step)) for step in steps for op in (*theirs, *idle)]
            op, step, common = max(pairs, key=lambda one: one[2], default=(theirs[0], ours[0], 0.0))
            if common:
                return op, step, common
        return theirs[0], ours[0], 0.0

    def _is_proved(self, key: int) -> bool:
        """Tell whether the port makes of a tensor, element by element, one of the reference's: it may have another form."""
        left = [key]
        for one in left:
            value = self.ops.values[one]
            for op in (each for each in self.ops.consumers.get(one, ()) if each.made and each.name != LAYER):
                made, others = self.ops.values[op.made[0]], {*op.given} - {one}
                if others and not (op.name in ARITHMETIC and all(map(self.matched.get, others))):
                    continue
                if made.dtype == value.dtype and made.size >= value.size and (others or made.size == value.size):
                    if self.matched[op.made[0]] and _varies(self.ops, op.made[0]):
                        return True
                    left += [op.made[0]] if op.made[0] not in left else []
        return False

    def _ends(self) -> list[Op]:
        """Return the port's calls behind which the reference goes on."""
        wanted = self.piece.truth.outputs
        return [
            op
            for op in self.ops
            for key in op.made
            if key not in self.ops.consumers and not any(self._equal(one, self.ops.array(key)) for one in wanted)
        ]

    def _equal(self, one: Array, other: Array | None) -> bool:
        return other is not None and one.size == other.size and self.walk.index.same(one, other)

    def of_gradients(self) -> tuple[Op, Op] | None:
        """Return the first calls of the last tensor that both programs have with other gradients; None where there is none."""
        ours, theirs = self.steps.gradients, self.ops.gradients
        least = SAME_SINGLE * max((rms(one) for one in ours.values()), default=0.0)

        def alike(key: int, number: int) -> bool:
            value = self.steps.values[number]
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
                    if self.steps.values[number].size == size and self.makers[number].name not in LAYOUT
                ]
                calls = (
                    self.ops.consumers.get(key, []),
                    [step for one in found for step in self.steps.consumers.get(one, [])],
                )
                if all(calls) and not any(alike(key, number) for number in found):
                    return calls[0][0], calls[1][0]
        return None

    def _unlike(self, op: Op, step: Op) -> tuple[int, int, bool]:
        """Return the first tensors that two calls of one function are given in one place and that differ.

        The last of the three tells whether it is their makers that part; the first two are -1 where there are none.
        """
        for key, number in self._operands(op, step):
            found, value = set(self.matched[key]), self.steps.values[number]
            if value is None or (not found and (key not in self.makers_of or self.akin(key))):
                continue
            if number in found:
                back = not self.walk.laid_alike(key, number)
            else:
                back = (
                    not found
                    or bool(found & self._arranged_from(number))
                    or self._is_made_otherwise(key, number, op, step)
                )
            if back or (number not in found and self.walk.key_of(number) is not None):
                return key, number, back
        return -1, -1, False

    def _operands(self, op: Op, step: Op) -> list[tuple[int, int]]:
        """Pair the operands of two calls by place; of other functions, and where no place counts, the only ones that differ."""
        same = op.name == step.name
        placed = list(zip(op.given, step.given, strict=False)) if same else []
        if (op.name == LAYER) != (step.name == LAYER):  # a layer is given its input alone, a function its weight, too
            return list(zip(op.given[:1], step.given[:1], strict=False))
        if (same and op.name not in PLACELESS) or LAYER in (op.name, step.name):  # calls within a layer are not seen
            return placed
        keys = [key for key in op.given if not self.akin(key) & {*step.given} and (same or _varies(self.ops, key))]
        numbers = [
            number
            for number in step.given
            if not any(number in self.akin(key) for key in op.given) and (same or _varies(self.steps, number))
        ]
        return [(keys[0], numbers[0])] if len(keys) == len(numbers) == 1 < len(op.given) else placed

    def _is_made_otherwise(self, key: int, number: int, op: Op, step: Op) -> bool:
        """Tell whether the fault lies in the statement that makes the port's operand, not in the call.

        That is where the port has what the reference hands on, on the way to its own, within a statement, or hands on in its place what
        nothing else uses; where the reference goes on from what the port hands on, in a statement before, or nothing else uses it; or
        where the function that made both is one and the same.
        """
        maker, own, wanted, uses = (
            self.makers.get(number),
            self.makers_of.get(key),
            self.walk.key_of(number),
            self.ops.consumers,
        )
        twins = (own, maker) if maker is not None and own is not None and own.name == maker.name else None
        once = len(uses.get(key, ())) == 1
        if wanted is not None:
            apart = self._made_at(self.ops, key) != innermost(op.frames)
            places = {self._made_at(self.ops, wanted), *(innermost(one.frames) for one in uses.get(wanted, ()))}
            on_the_way = len(places) == 1 and self.walk.rests(key, wanted)
            return on_the_way or (twins is not None and self._turned(*twins)) or (once and wanted in uses and apart)
        if maker is None or self.has(number):
            return False
        behind = self.steps.with_makers([maker], lambda one, _: not self.has(one))
        goes_on = any(one in self.matched[key] for each in behind for one in each.given)
        before = once or innermost(maker.frames) != innermost(step.frames)
        return (goes_on and before) or (once and twins is not None)

    @staticmethod
    def _made_at(program: Program, number: int) -> Frame:
        maker = program.makers.get(number)
        return innermost(() if maker is None else maker.frames)

    def _turned(self, op: Op, step: Op) -> bool:
        """Tell whether two calls are given the same values in other places."""
        pairs = self._operands(op, step)
        return any(number in self.matched[key] and not self.walk.laid_alike(key, number) for key, number in pairs)

    def _arranged_from(self, number: int) -> set[int]:
        """Return the tensors that a tensor of the reference's only rearranges."""
        maker = self.makers.get(number)
        steps = self.steps.with_layout([maker]) if maker is not None and maker.name in LAYOUT else []
        return {one for step in steps for one in step.given}

    def _common(self, op: Op, step: Op) -> float:
        """Return how much two calls have in common: a tensor that both are given, the function, and that it mends the port."""
        near = {*step.given}.union(*map(self._arranged_from, step.given))
        given = any(self.akin(key) & near for key in self.walk.given(op)) or not (op.given or step.given)
        alike = given and step.name not in LIKES  # of which a shape alone counts
        same = op.name == step.name and (op.name != LAYER or self.piece.partners.get(op.path) == step.said)
        mends = any(one.op is op and one.step is step for one in self.walk.partings)
        return alike + (same and (alike or op.name not in ANYWHERE)) + (alike and mends) / 2

    # Their statements, and what is said of them.

    def statements(self, op: Op, step: Op) -> tuple[Frame, Frame]:
        """Return the port's statement and the reference's where a call of each part.

        Of code that is written alike but for one statement, it is that. Where the port lacks the reference's call on the way to
        its own, it is the statement of `before`.
        """
        if self.walk.only_unlike is not None:
            return self.walk.only_unlike
        here, there = innermost(op.frames), innermost(step.frames)
        key, number, _ = self._unlike(op, step)
        if key >= 0:
            return self._handing(op, step, key, number)
        lacks = op.name != step.name and (op.name in LAYOUT or self._leads_to(step, op.name))
        return (self.before(op, step), there) if lacks else (here, there)

    def _leads_to(self, step: Op, name: str) -> bool:
        """Tell whether the reference gives what a call makes, as it is or in another layout, to a function."""
        takers = [one for number in step.made for one in self.steps.consumers.get(number, ())]
        return any(one.name == name or (one.name in LAYOUT and self._leads_to(one, name)) for one in takers)

    def before(self, op: Op, step: Op) -> Frame:
        """Return the port's statement where a call of the reference's is missing on the way to one of the port's.

        Of those that make what both calls are given, and the call's own, it is the one that reads most like the reference's.
        """
        here, there = innermost(op.frames), innermost(step.frames)
        shared = [key for key in (*op.made, *self.walk.given(op)) if set(self.matched[key]) & set(step.given)]
        made = [self.makers_of[key].frames for key in shared if key in self.makers_of]
        makers = [next((one for one in each if one.code == here.code), innermost(each)) for each in made]
        against = opposite(there, codes_of(op.frames))
        beside = [against[0]] if against is not None and against[1] else []
        return max([here, *makers, *beside], key=lambda one: likeness(one.reading, there.reading))

    def _handing(self, op: Op, step: Op, key: int, number: int) -> tuple[Frame, Frame]:
        """Return the statements that hand two calls a tensor of the port's and the reference's, each in the place of the other."""
        wanted, made = self.walk.key_of(number), self._made_at(self.ops, key)
        right, used = (
            [one for one in self.ops.consumers.get(each, ()) if all(map(self.akin, one.made))]
            for each in (-1 if wanted is None else wanted, key)
        )
        if wanted is not None and made.place and made == self._made_at(self.ops, wanted) and not (right or used):
            return made, self._made_at(self.steps, number)  # each of two results stands where the other should
        other = next((one for one in self.matched[key] if one in self.makers), -1)
        others = [one for one in self.steps.consumers.get(other, ()) if all(map(self.has, one.made))]
        # Of two tensors of which the code is given the wrong one, the other's maker tells where that is.
        handed = key if key in self.makers_of or wanted is None else wanted
        return _handed_on(self.ops, op, handed, right), _handed_on(self.steps, step, number, others)

    def told(self, op: Op, step: Op) -> ShownParting:
        """Return what is said of two calls that part, what to do, and where."""
        here, there = self.statements(op, step)
        mine = f"{here.place} (`{here.line}`)" if here.place else f"`{op.name}`"
        other = f"{there.place}: `{there.line}`" if there.place else f"`{step.said}`"
        said = f"the port's {self.statement(op)}; the reference's {self.statement(step)}"
        return ShownParting(said, f"do at {mine} what the reference does at {other}", here, there)

    def statement(self, call: Op) -> str:
        """Write a call, where it stands, and the values that go in and come out."""
        ports = call.function is not None
        program, numbers = (self.ops, self.walk.given(call)) if ports else (self.steps, call.given)
        given, made = (listed([*map(glimpse, program.arrays(each))], MOST_SHOWN) for each in (numbers, call.made))
        settings = {key: one for key, one in call.kwargs.items() if one is not None and is_plain(one)}
        named = {key: one for key, one in settings.items() if not key.isdigit() and key[0] != "_"}
        told = ", ".join(f"{key}={one}" for key, one in (dict.fromkeys(call.named, "…") | named).items())
        where = f" at {call.place}" if call.place else ""
        return f"`{call.said}({told})`{where} makes {made}{f' of {given}' if given else ''}"


def _handed_on(program: Program, call: Op, number: int, others: Sequence[Op]) -> Frame:
    """Return the statement that hands a tensor on to a call, in the innermost function that it shares with the tensor's maker.

    Or with one of the ``others``, which are right and use the tensor that should stand there.
    """
    maker = program.makers.get(number)
    while maker is not None and maker.name in LAYOUT and maker.given[:1] and maker.given[0] in program.makers:
        maker = program.makers[maker.given[0]]
    known: list[Op | None] = [one for one in (maker, *others) if one is not None]
    return max((_branch(call, one) for one in known or [None]), key=lambda one: one[0])[1]


def _branch(call: Op, other: Op | None) -> tuple[int, Frame]:
    """Return how many functions two calls are in together, and the first one's statement in the last of them."""
    outwards = zip_longest(reversed(call.frames), reversed(other.frames if other is not None else ()))
    for depth, (one, two) in enumerate(outwards):
        if one is not None and one != two:
            return (depth if two is not None and one.code == two.code else 0), one
    return 0, innermost(call.frames)


def _frontier(program: Program, ends: Collection[int], lacking: Callable[[int], bool]) -> list[Op]:
    """Return the calls that make of what both programs have the first tensors that the other lacks.

    Args:
        program: one side's calls.
        ends: the tensors that rest on them; where there are none, the program's outputs, or else all that no call is given.
        lacking: tells of a tensor whether the other program lacks it.
    """
    made = [number for op in program for number in op.made]
    ends = ends or {number for number in program.ends if number in program.makers and lacking(number)}
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


def _varies(program: Program, number: int) -> bool:
    array = program.array(number)
    return array is not None and varies(array)


def _changes_nothing(program: Program, call: Op) -> bool:
    """Tell whether a call of several tensors makes what one of them is."""
    made, given = (program.arrays(numbers) for numbers in (call.made, call.given))
    return len(made) == 1 and len(given) > 1 and any(np.array_equal(one, made[0]) for one in given)


def show(piece: Piece, walk: Walk) -> Diagnosis:
    """Show both statements at which two programs part, with the values that go in and come out."""
    path, apart = piece.theirs.path, Divergence(walk)
    parted = apart.of_gradients() if walk.ended_alike else None
    theirs, ours = parted or apart.first(proved=False)
    statements, fix, here, there = apart.told(theirs, ours)
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
"""Values of a tensor that are shown of many, and tensors of a call."""
MOST_WHOLE = 6
"""Values of a tensor that is shown whole."""


def glimpse(array: Array) -> str:
    """Write a number, or the first values of an array and its shape."""
    shown = MOST_SHOWN if array.size > MOST_WHOLE else MOST_WHOLE
    values = [f"{one:.6g}" for one in array.reshape(-1)[:shown].tolist()]
    if array.size == 1:
        return values[0]
    more = ", …" if array.size > MOST_WHOLE else ""
    return f"[{', '.join(values)}{more}] ({'x'.join(map(str, array.shape))})"
