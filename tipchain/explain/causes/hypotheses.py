"""Causes as they are tried, and the diagnoses of those that explain an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import NamedTuple

from tipchain.core.progress import Pace
from tipchain.explain.causes.lines import innermost
from tipchain.explain.causes.piece import Edit, Piece
from tipchain.explain.causes.program import LAYER, Act, Op, numpy_of
from tipchain.explain.causes.walk import Parting, Walk, acts_of
from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine, shown_path
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.matching import common_path
from tipchain.explain.locate.verdicts import LayerVerdict, effective_bits
from tipchain.framework_types import Array, Function, Nested, Options
from tipchain.numbers.tolerance import EXPLAINED, NOISE, REMAINDER, SAME_DOUBLE, SAME_SINGLE


class Lines(NamedTuple):
    """The port's line and the reference's; None of one that is not known."""

    port: SourceLine | None = None
    reference: SourceLine | None = None


NO_LINES = Lines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One thing changed in the port's piece; the layer's name comes before the message.

    Attributes:
        code: the kind, one of `KINDS`.
        message: one sentence.
        fix: the line to change.
        name: the argument, function, operand, parameter or setting that it is about.
        acts: what stands in place of calls, by number.
        calls: calls that are changed alike.
        edit: what is done to the piece's outputs.
        within: a context in which the layer is changed; it takes the change back.
        confirmed: the reference has just this, as its construction or its code tells.
        changes: how many settings or places are changed at once.
        evidence: what is known beside the numbers.
        place: the path within the piece of the layer that is wrong; None: the layer whose code makes the calls.
        lines: the statement to change, and the reference's that does it otherwise.
        code_edit: what to change in it.
        constants: the reference's constant and the port's, where it is about such.
    """

    code: str
    message: str
    fix: str = ""
    name: str = ""
    calls: int = 1
    acts: Mapping[int, Act] = field(default_factory=dict)
    edit: Edit | None = None
    within: Callable[[], AbstractContextManager[None]] | None = None
    confirmed: bool = False
    changes: int = 1
    evidence: str = ""
    place: str | None = None
    lines: Lines = NO_LINES
    code_edit: CodeEdit | None = None
    constants: tuple[Array, Array] | None = None

    @property
    def said(self) -> str:
        """The message, with the number of calls."""
        return f"{self.message}, in {self.calls} calls" if self.calls > 1 else self.message


def holder_of(ops: Iterable[Op], piece: Piece) -> str:
    """Return the path within a piece of the innermost layer whose code, or code inside, makes some calls.

    What stands in a layer that is known to be right belongs to the code around it; a list of layers has no code.
    """
    place = common_path(op.holder for op in ops)
    right = [one for one in piece.cleared if place == one or place.startswith(f"{one}.")]
    place = min(right, key=len).rpartition(".")[0] if right else place
    layers = dict(piece.sides.port.layers(piece.port))
    while place and type(layers[place]).forward.__module__.startswith("paddle."):
        place = place.rpartition(".")[0]
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A hypothesis that was run.

    Attributes:
        hypothesis: which.
        explained: the fraction of the error that it takes away.
        whole: nothing but rounding is left.
        left: the relative error that is left.
    """

    hypothesis: Hypothesis
    explained: float
    whole: bool
    left: float

    @property
    def rank(self) -> tuple[bool, float, bool, int]:
        """Return the key that sorts trials.

        What leaves only rounding comes first, then what explains most; of equal ones what the reference has, and what
        changes least.
        """
        found = self.hypothesis
        share = 0.0 if self.whole else -self.explained
        return not self.whole, share, not found.confirmed, found.changes


MOST_RUNS = 200
"""How often a piece is run at most for one diagnosis."""


class Trials:
    """Runs hypotheses and keeps how they did."""

    def __init__(self, piece: Piece, pace: Pace | None = None) -> None:
        self.piece, self.pace = piece, pace or Pace()
        self.base = piece.run(keep=True)
        self.before = piece.error(self.base)
        self.trials: list[Trial] = []
        self.reserve: Sequence[Hypothesis] = ()
        self.failed = 0
        self.rest = 0.0  # the error that the reference's tensors leave

    @cached_property
    def walk(self) -> Walk:
        """Both programs side by side."""
        alone = self.piece.backward and not self.piece.loss  # then the results agree
        walk = Walk(self.piece, self.base.ops, 0.0 if alone else self.before)
        walk.run()
        return walk

    def run(self, hypotheses: Iterable[Hypothesis]) -> None:
        """Try hypotheses until time or runs are spent."""
        for one in hypotheses:
            if self.pace.over or self.piece.runs >= MOST_RUNS:
                return
            trial = self._tried(one)
            self.trials += [] if trial is None else [trial]

    def explains(self, one: Hypothesis) -> bool:
        """Tell whether a hypothesis explains the error, without keeping it."""
        trial = self._tried(one)
        if trial is None or trial.explained < EXPLAINED:
            return False
        self.rest = trial.left
        return True

    def mends(self, one: Hypothesis) -> Trial | None:
        """Return how a hypothesis did, without keeping it, if it leaves rounding, or twice the error of the reference's tensors there."""
        left = self._left(one)
        if left is None or left > min(max(SAME_SINGLE, 2 * self.rest), (1 - EXPLAINED) * self.before):
            return None
        return Trial(hypothesis=one, explained=1.0, whole=True, left=left)

    def makes(self, one: Hypothesis, partings: Sequence[Parting]) -> Trial | None:
        """Return how a hypothesis did that makes the reference's tensors at some partings, whatever comes of them."""
        made, acts = dict[int, Nested](), dict(one.acts)

        def seen(number: int, act: Act | None) -> Act:
            def acting(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
                result = original(*args, **kwargs) if act is None else act(original, args, kwargs)
                made[number] = self.piece.tensors(result)
                return result

            return acting

        for parting in partings:
            acts[parting.op.number] = seen(parting.op.number, one.acts.get(parting.op.number))
        if self._left(replace(one, acts=acts)) is None:
            return None
        for parting in partings:
            found, new = made.get(parting.op.number, ()), numpy_of(parting.new)
            fitting = [numpy_of(each) for each in found if list(each.shape) == list(new.shape)]
            if not any(distance(new, each) <= SAME_SINGLE * rms(new) for each in fitting):
                return None
        return Trial(hypothesis=one, explained=1.0, whole=True, left=0.0)

    def moves(self, partings: Sequence[Parting]) -> bool:
        """Tell whether the reference's tensors at some partings change the port's results by more than a cause may leave, or it raises."""
        try:
            made = self.piece.run(acts_of(partings, self.piece.paddle.assign)).outputs
        except Exception:  # noqa: BLE001  (an index that stands for a wrong number may be out of bounds)
            return True
        every = zip(self.piece.truth.outputs, self.base.outputs, made, strict=False)
        moved = sum((distance(before, after) / (rms(truth) or 1.0)) ** 2 for truth, before, after in every)
        return moved > ((1 - EXPLAINED) * self.before) ** 2

    def found(self) -> list[Trial]:
        """Return the explaining trials, best first, one per kind and name; wholes shut out parts."""
        good = sorted((one for one in self.trials if one.explained >= EXPLAINED), key=lambda one: one.rank)
        if good and good[0].whole:
            good = [one for one in good if one.whole]
        by_kind = {(one.hypothesis.code, one.hypothesis.name): one for one in reversed(good)}
        return [one for one in good if by_kind[one.hypothesis.code, one.hypothesis.name] is one]

    def settled(self) -> bool:
        """Whether something explains the error to rounding."""
        return any(one.whole for one in self.trials)

    def _left(self, one: Hypothesis) -> float | None:
        """Return the error that is left under a hypothesis; None where it cannot be run."""
        try:
            with one.within() if one.within is not None else nullcontext():
                outcome = self.piece.run(one.acts, one.edit, within=one.within is not None)
            return self.piece.error(outcome)
        except Exception:  # noqa: BLE001  (a change that cannot be run explains nothing; it is counted)
            self.failed += 1
            return None

    def _tried(self, one: Hypothesis) -> Trial | None:
        """Return how a hypothesis did; None if it makes the error larger, or cannot be run."""
        left = self._left(one)
        if left is None or left > self.before * (1 + SAME_DOUBLE):
            return None
        share = explained(self.before, left)
        whole = share >= EXPLAINED and left <= max(REMAINDER * min(self.before, 1.0), NOISE)
        return Trial(hypothesis=one, explained=share, whole=whole, left=left)


def explained(before: float, after: float) -> float:
    """Return the fraction of an error that is gone; one without size, or larger than the truth, counts as of the truth's own size.

    Else what makes nothing of results that are hundreds of times too large would explain 99 % of that.
    """
    before = min(before, 1.0)
    return max(0.0, 1 - after / before) if isfinite(after) and before else 0.0


def lower_precision(verdict: LayerVerdict) -> Diagnosis:
    """Return the diagnosis of a layer whose float64 result is right and float32 result wrong."""
    shown, bits = shown_path(verdict.port_path), effective_bits(verdict.own or 0.0)
    return Diagnosis(
        code="precision",
        port_path=verdict.port_path,
        message=f"{shown} computes with about {bits:.0f} significant bits, float32 has 24, float16 and TF32 have 11, bfloat16 has 8",
        evidence=f"in float64 it does what the reference does; in float32 its relative error is {verdict.own or 0.0:.3g}",
        fix=f"run {shown} in float32: leave out `paddle.amp.auto_cast` or a cast, or switch TF32 off (`NVIDIA_TF32_OVERRIDE=0`)",
    )


# How calls and layers are named in messages.


def class_of(layer: object) -> str:
    """Return the name of the layer's class, or of Paddle's class that the user's is derived from."""
    for one in type(layer).__mro__:
        if one.__module__.startswith("paddle.nn.") and one.__name__ != "Layer":
            return str(one.__name__)
    return type(layer).__name__


def called(op: Op) -> str:
    """Return the name of a call in messages."""
    return f"`{op.path}`" if op.name == LAYER and op.path else f"`{op.name}`" if op.name != LAYER else "the layer"


def place_of(op: Op, piece: Piece) -> str:
    """Return where a call stands, for messages."""
    return f" at {op.place}" if _has_line(op) else f" in {piece.shown}"


def lines_of(op: Op, step: Op | None = None) -> Lines:
    """Return the lines of a call and of the reference's counterpart."""
    port = innermost(op.frames).source if _has_line(op) else None
    return Lines(port, innermost(step.frames).source if step is not None else None)


def _has_line(op: Op) -> bool:
    return bool(op.place) and not (op.name == LAYER and not op.path)


def index_text(item: object) -> str:
    """Return an index as code writes it."""
    if isinstance(item, tuple):
        return ", ".join(map(index_text, item))
    if isinstance(item, slice):
        ends = ":".join("" if one is None else str(one) for one in (item.start, item.stop))
        return f"{ends}:{item.step}" if item.step is not None else ends
    return "..." if item is Ellipsis else str(item)


def same_setting(one: object, other: object) -> bool:
    """Tell whether two settings are the same; a list is a tuple of the same, a flag is no number."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same_setting(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def has_axis(op: Op, axis: object) -> bool:
    """Tell whether the first tensor of a call has some axes: some of Paddle's kernels read beyond it where not."""
    given = op.args[0] if op.args else op.kwargs.get("x")
    given = given[0] if isinstance(given, list | tuple) and given else given
    rank = len(getattr(given, "shape", ())) + (op.name == "stack")
    axes = axis if isinstance(axis, list | tuple) else (axis,)
    return all(-rank <= one < rank for one in axes if isinstance(one, int))


def below(path: str, around: str) -> str | None:
    """Return a layer's path within another; None if it is not inside."""
    if path == around or not around:
        return path if not around else ""
    return path.removeprefix(f"{around}.") if path.startswith(f"{around}.") else None
