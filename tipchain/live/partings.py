"""The first quantity in which two training loops part: learning rate, loss, gradients, parameters, buffers, and the lines that made it."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any

import numpy as np

from tipchain.explain.causes.statements import CodeRun, explain_programs
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, SourceLine, of_piece
from tipchain.explain.locate.differences import distance
from tipchain.explain.locate.gradients import Laid
from tipchain.framework_types import Array, Function, Nested, Tensor
from tipchain.frameworks.paddle_ import PaddleUpdates, own_schedule, parameter_groups
from tipchain.frameworks.randomness import attributes
from tipchain.frameworks.torch_ import TorchUpdates
from tipchain.live.request import STEP
from tipchain.live.training import Apart, Lockstep, Loop, Recipe, State, held_by, paired, tensors_apart
from tipchain.numbers.tolerance import EXPLAINED, SAME_SINGLE, TINY
from tipchain.weights.sides import assemble

Gradients = Mapping[str, Array]
Places = tuple[SourceLine | None, SourceLine | None]
LIBRARIES = ("torch", "paddle", "tipchain", "contextlib")
"""Packages whose lines are no step's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A backward pass or update, with its gradients, those before, and its start."""

    place: SourceLine | None
    gradients: Gradients
    before: Gradients = field(default_factory=dict)
    loss: Array = field(default_factory=lambda: np.zeros(1))
    rates: Mapping[str, float] = field(default_factory=dict)
    scheduled: int = 0


class Watch:
    """The calls of one loop in a step: backward passes, updates, steps of the schedule.

    ``lent``: what the step of the watch ``lender``, which runs first, replaces: gradients after each ``"backward"`` pass, or those of
    ``"updates"``, as the optimizer gets them.
    """

    def __init__(self, loop: Loop, lent: str = "", lender: Watch | None = None) -> None:
        self.loop, self.lent, self.lender = loop, lent, lender
        self.backwards: list[Moment] = []
        self.updates: list[Moment] = []
        self.scheduled, self._inside = 0, False
        framework: Any = loop.side.framework
        self.optimizer: PaddleUpdates | TorchUpdates = (
            PaddleUpdates(framework, loop.slots(), loop.optimizer)
            if loop.number
            else TorchUpdates(framework, dict(loop.model.named_parameters()), loop.optimizer)
        )
        held = [value for _, value in held_by(loop.kept)]
        for schedule in {id(one): one for one in (loop.schedule, own_schedule(loop.optimizer), *held)}.values():
            if hasattr(schedule, "last_epoch") and hasattr(schedule, "step"):
                schedule.step = _watched(schedule.step, self._schedule)
        loop.optimizer.step = _watched(loop.optimizer.step, self._update)
        loop.call = partial(self._call, loop.call)

    def gradients(self, clipped: Mapping[int, Tensor] = MappingProxyType({})) -> dict[str, Array]:
        """Return the gradients that there are, as the reference keeps them; those in ``clipped`` by its tensors' ids."""
        framework, found = self.loop.side.framework, {}
        for name, slot in self.loop.slots().items():
            tensors = [part.tensor for part in slot.parts] if self.loop.number else [self.optimizer.tensor(name)]
            gradients = [clipped.get(id(one), framework.gradient(one)) for one in tensors]
            if all(one is None for one in gradients):
                continue
            pairs = zip(tensors, gradients, strict=True)
            arrays = [np.zeros(tuple(one.shape)) if given is None else framework.array(given) for one, given in pairs]
            array = assemble(arrays, slot) if self.loop.number else arrays[0]
            laid = self._laid(name)
            found[name] = array if laid is None else laid.layout.back(array)
        return found

    def _laid(self, name: str) -> Laid | None:
        path, _, leaf = name.rpartition(".")
        return self.loop.recipe.laid.get(path, {}).get(leaf) if self.loop.number else None

    def _give(self, lent: Sequence[Moment]) -> None:
        """Replace the gradients by those of the first of the lender's moments, where there is one."""
        if lent:
            assert isinstance(self.optimizer, PaddleUpdates)  # the reference is lent nothing
            given = {name: lent[0].gradients.get(name) for name in self.loop.slots() if self._laid(name) is None}
            with self.loop.side.recording(gradient=False):
                self.optimizer.give(given)

    def _call(self, call: Function, number: int) -> Nested:
        """Take a step on an empty record; its backward passes are recorded."""
        framework: Any = self.loop.side.framework
        engine = framework.paddle.base.core.eager if self.loop.number else framework.torch.autograd
        name = "run_backward" if self.loop.number else "backward"
        self.backwards, self.updates = [], []
        with attributes(engine, **{name: partial(self._start, getattr(engine, name))}):
            return call(number)

    def _start(self, backward: Function, tensors: Nested, *args: Nested, **options: Nested) -> Nested:
        if self._inside:  # a pass within a pass: of what is computed anew
            return backward(tensors, *args, **options)
        roots = tensors if isinstance(tensors, list | tuple) else [tensors]
        loss = np.array([sum(float(self.loop.side.array(one).sum()) for one in roots)])
        before, self._inside = self.gradients(), True
        try:
            found = backward(tensors, *args, **options)
        finally:
            self._inside = False
        if self.lender and self.lent == "backward":
            self._give(self.lender.backwards[len(self.backwards) :])
        self.backwards.append(Moment(place=self._caller, gradients=self.gradients(), before=before, loss=loss))
        return found

    def _update(self, update: Function, *args: Nested, **options: Nested) -> Nested:
        clips = [getattr(self.loop.optimizer, "_grad_clip", None)]
        clips += [group.get("grad_clip") for group, _ in parameter_groups(self.loop.optimizer)]
        kinds: set[Any] = {type(one) for one in clips if hasattr(one, "_dygraph_clip")}
        rates = self.optimizer.rates()
        if self.lender and self.lent == "updates":
            self._give(self.lender.updates[len(self.updates) :])
        given, clipped = self.gradients(), dict[int, Tensor]()
        with ExitStack() as stack:
            for kind in kinds:
                clip = self._clipping(kind._dygraph_clip, clipped)  # noqa: SLF001
                stack.enter_context(attributes(kind, _dygraph_clip=clip))
            found = update(*args, **options)
        # torch's optimizers may clip in their own step; what is cleared there is no gradient.
        used = self.gradients(clipped) if clipped or not self.loop.number else given
        used = used if any(one.any() for one in used.values()) else given
        self.updates.append(Moment(place=self._caller, gradients=used, rates=rates, scheduled=self.scheduled))
        return found

    def _clipping(self, clip: Function, clipped: dict[int, Tensor]) -> Function:
        def clipping(rule: object, pairs: Sequence[tuple[Tensor, Tensor]]) -> Nested:
            found = pairs if self.lent == "updates" else clip(rule, pairs)
            clipped.update((id(parameter), gradient) for parameter, gradient in found)
            return found

        return clipping

    @property
    def _caller(self) -> SourceLine | None:
        frame: FrameType | None = sys._getframe(1) if self.loop.recipe.steps else None  # noqa: SLF001
        while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES:
            frame = frame.f_back
        return None if frame is None else SourceLine.at(frame.f_code.co_filename, frame.f_lineno)

    def _schedule(self, step: Function, *args: Nested, **options: Nested) -> Nested:
        self.scheduled += 1
        return step(*args, **options)


def _watched(function: Function, watch: Function) -> Function:
    """Return what calls ``watch`` with a function and its arguments, and looks like that function."""
    return functools.wraps(function)(partial(watch, function))


PIECE_OF = {"loss": "loss", "learning-rate": "scheduler", "clipping": "optimizer", "updates": "optimizer"}
"""Pieces that partings of a training with a loss belong to; others concern the model."""
LENT = {
    "loss": ("backward", "the reference's gradients after each backward pass"),
    "gradients": ("backward", "the reference's gradients after each backward pass"),
    "clipping": ("updates", "the gradients of the reference's updates"),
}
"""Reference's gradients lent to the port's loop where one parts first, and their names."""


def loop_causes(recipe: Recipe, step: int) -> tuple[Diagnosis, ...]:
    """Return the first quantity in which two loops part by ``step``; lending shows its share."""
    taken = Lockstep(recipe, measured=True)
    search, number = _Search(taken), 0
    # Later steps tell more of an update that is yet to come.
    while number <= step or (search.waiting and not search.found and number < recipe.asked.iterations):
        taken.step(number)
        search.step(number)
        number += 1
    gap = _gap(taken.start, taken.states)
    # The first parting; after one before an update, that of the update's gradients too.
    partings = search.found or [one for one in (search.waiting or search.returned,) if one]
    ends = search.ends.get(partings[0].message) if recipe.steps and partings else None
    if ends is not None and (told := _statements(recipe, search.number, partings[0], ends)):
        return (told,)
    for at, parting in enumerate(partings):
        if gap > SAME_SINGLE and parting.name in LENT:
            lent, named = LENT[parting.name]
            reference, port = recipe.open()
            start = reference.state()
            Watch(port, lent, Watch(reference))
            for earlier in range(number):
                reference.step(earlier)
                port.step(earlier)
            share = max(0.0, 1 - _gap(start, (reference.state(), {}, port.state())) / gap)
            shown = f"with {named} in the port's loop {share:.2%} of the difference is gone"
            partings[at] = replace(parting, explained=share, evidence=f"{shown}; {parting.evidence}")
            if share >= EXPLAINED:
                return (partings[at],)
    return tuple(partings[:1])


def _statements(recipe: Recipe, number: int, parting: Diagnosis, ends: tuple[Array, Array]) -> Diagnosis | None:
    """Return the statements where two steps part before their losses or writes; None: not known."""
    loops = recipe.open()
    for earlier in range(number):
        for loop in loops:
            loop.step(earlier)
    programs = CodeRun((loops[0].side,)), CodeRun((loops[1].side,))
    for program, loop in zip(programs, loops, strict=True):
        program.run(partial(loop.step, number))
    told = explain_programs(programs, ends, STEP, parting.message)
    if told is None:
        return None
    return replace(told, name=parting.name, fix=parting.fix if parting.name == "kept" else told.fix)


def _gap(start: State, states: tuple[State, State, State]) -> float:
    """Return how far two loops' tensors are apart, relative to how far the reference's have moved."""
    reference, _, port = states
    gaps = [0.0]
    for what, other in paired(reference, port).items():
        before = start.get(what, {})
        moved = max((distance(before[name], one) for name, one in reference[what].items() if name in before), default=0)
        pairs = ((one, port[other].get(name)) for name, one in reference[what].items() if moved)
        fitting = ((one, two) for one, two in pairs if two is not None and two.shape == one.shape)
        gaps += [min(distance(*two) / moved, 1e6) for two in fitting]
    return float(np.linalg.norm(gaps))


class _Search:
    """Compares both loops quantity by quantity until one parts."""

    def __init__(self, taken: Lockstep) -> None:
        self.taken = taken
        self.reference, self.port = Watch(taken.reference), Watch(taken.port)
        self.moved = Watch(taken.moved or taken.reference)
        self.found: list[Diagnosis] = []
        self.waiting: Diagnosis | None = None
        self.returned: Diagnosis | None = None
        self._paths, self.number = taken.recipe.paths, 0
        self.ends: dict[str, tuple[Array, Array]] = {}

    def step(self, number: int) -> None:
        """Compare the last step's actions and results, unless a parting is known."""
        if self.found:
            return
        self.number = number
        # What parts before an update and is undone there, such as the scale of a loss, is none.
        self.waiting = self.waiting or next(self._before_update(number), None)
        self.found = next(self._in_update(number), []) or list(self._after_update(number))[:1]
        if self.port.updates:
            self.waiting = None
        for apart in [] if self.returned else self.taken.losses_apart():
            message = f"after step {number} {apart.told(self._paths)}, though gradients and parameters agree"
            fix = "return the loss that the reference returns: before, or after, it is divided"
            self.returned = self._parting("loss", message, fix, self._lines(r"^\s*return\b"))

    def _before_update(self, number: int) -> Iterator[Diagnosis]:
        held = [one.backwards for one in (self.reference, self.moved, self.port)]
        alike = len(held[0]) == len(held[2])
        # A loss may be summed before backward, or its parts' gradients by it: then the last pass alone is compared.
        for passes in zip(*(one if alike else one[-1:] for one in held), strict=False):
            expected, _, actual = passes
            places = expected.place, actual.place
            for apart in self._gradients_apart(*(one.before for one in passes))[:alike]:
                message = f"at step {number}, before backward, {apart.told(self._paths)}: gradients of earlier steps are not cleared alike"
                fix = "clear the port's gradients where the reference clears its own: optimizer.clear_grad()"
                yield self._parting("gradients", message, fix, self._lines("zero_grad|clear_grad", else_at=places))
            if alike and self._gradients_apart(*({"": one.loss} for one in passes)):
                loss, port_loss = float(expected.loss[0]), float(actual.loss[0])
                made = actual.gradients
                pairs = [(one, made[name]) for name, one in expected.gradients.items() if name in made]
                size = sum(float((one * one).sum()) for one, _ in pairs)
                factor = sum(float((one * other).sum()) for one, other in pairs) / max(size, TINY)
                rest = sum(float(np.square(other - factor * one).sum()) for one, other in pairs)
                # Gradients may have a single factor between them.
                ratio, scaled = factor if factor and rest <= SAME_SINGLE**2 * factor**2 * size else None, ""
                fix = "start the port's backward from the reference's loss"
                if ratio is not None:
                    scaled = f": its gradients are {ratio:.6g} times the reference's"
                    fix = f"multiply the port's loss by {1 / ratio:.6g} before backward()"
                    if ratio > 1:
                        fix = f"divide the port's loss by {ratio:.6g} before backward()"
                message = f"at step {number} backward starts from a loss of {port_loss:.9g} in the port, {loss:.9g} in the reference{scaled}"
                if ratio is None:
                    self.ends[message] = expected.loss, actual.loss
                yield self._parting("loss", message, fix, places)
            for apart in self._gradients_apart(*(one.gradients for one in passes))[:1]:
                message = f"at step {number}, after backward, {apart.told(self._paths)}"
                yield self._parting("gradients", message, "compare the lines of both steps up to backward()", places)

    def _in_update(self, number: int) -> Iterator[list[Diagnosis]]:
        held = [one.updates for one in (self.reference, self.moved, self.port)]
        if len(held[0]) != len(held[2]):
            message = f"calls of optimizer.step() in step {number}: {len(held[2])} in the port, {len(held[0])} in the reference"
            fix = "call the port's optimizer.step() in the steps in which the reference calls its own"
            yield [self._parting("updates", message, fix, self._lines(r"\.step\("))]
        for updates in zip(*held, strict=False):
            expected, _, actual = updates
            places = expected.place, actual.place
            apart_rates = {
                name: (expected.rates[name], rate)
                for name, rate in actual.rates.items()
                if abs(rate - expected.rates.get(name, rate)) > SAME_SINGLE * abs(rate)
            }
            for name, (rate, port_rate) in [*apart_rates.items()][:1]:
                rates = f"the learning rate of {name} is {port_rate:.9g} in the port, {rate:.9g} in the reference"
                if len(apart_rates) == len(actual.rates) and len(set(apart_rates.values())) == 1:
                    rates = f"the learning rate is {port_rate:.9g} in the port, {rate:.9g} in the reference"
                fix, stepped = "give the port's optimizer and schedule the reference's learning rates", ""
                counts = actual.scheduled, expected.scheduled
                if counts[0] != counts[1]:
                    fix = "step the port's schedule where the reference steps its own"
                    stepped = f"; steps of the schedule by then: {counts[0]} in the port, {counts[1]} in the reference"
                lines = self._lines(r"sched\w*\.step\(", else_at=places)
                yield [self._parting("learning-rate", f"at step {number} {rates}{stepped}", fix, lines)]
            for apart in self._gradients_apart(*(one.gradients for one in updates))[:1]:
                agreed = "" if self.waiting else ", though the gradients after backward agree"
                message = f"at step {number}, as the optimizer gets it, {apart.told(self._paths)}{agreed}"
                fix = "unscale and clip the port's gradients between backward and the update as the reference does"
                lines = self._lines(r"^(?!\s*def ).*(clip|unscale)", else_at=places)
                yield [*([self.waiting] if self.waiting else []), self._parting("clipping", message, fix, lines)]

    def _after_update(self, number: int) -> Iterator[Diagnosis]:
        if missing := self.taken.missing():
            yield self._parting("kept", missing, "let the port's step keep the same", (None, None))
        last, port_last = (one.updates[-1].place if one.updates else None for one in (self.reference, self.port))
        for apart in self.taken.tensors_apart():
            told = apart.told(self._paths)
            if apart.what != "model":
                kept = apart.what, paired(self.taken.start, self.taken.states[2])[apart.what]
                fix = f"update {kept[1]} of the port's step as the reference updates {kept[0]}, on the same side of optimizer.step()"
                lines = self._lines(*(rf"\b{what.rpartition('.')[2]}\b" for what in kept))
                message = f"after step {number} {told}, though the models agree"
                self.ends[message] = apart.expected, apart.actual
                yield self._parting("kept", message, fix, lines)
            elif apart.name.replace(":", ".").lstrip(".") in self.reference.loop.slots():
                fix = "compare the optimizers' arguments, and what else both steps write to the parameters"
                message = f"after step {number} {told}, though learning rates and gradients agree"
                yield self._parting("parameters", message, fix, (last, port_last))
            else:
                fix = "call the port's layers as often, and in the mode, in which the reference's are called"
                message = f"after step {number} {told}, though gradients and parameters agree"
                yield self._parting("buffers", message, fix, (None, None))

    def _gradients_apart(self, *held: Gradients) -> list[Apart]:
        """Return the tensors that are apart of the reference's, the moved one's and the port's; a missing one is zero."""
        zeros = {name: np.zeros(one.shape) for each in held for name, one in each.items()}
        return tensors_apart("gradient", zeros, *({**zeros, **each} for each in held))

    def _parting(self, code: str, message: str, fix: str, places: Places) -> Diagnosis:
        """Return a parting as a cause, with both sides' lines."""
        both = zip(SIDE_NAMES, places, strict=True)
        lines = [f"{who} {place.short} `{place.code}`" for who, place in both if place is not None]
        path, shown = STEP if self.taken.recipe.steps else PIECE_OF.get(code, ""), "; ".join(lines)
        cause = of_piece(path, "parting", message, shown or "both steps were compared quantity by quantity", fix)
        return replace(cause, name=code, place=places[1], reference_place=places[0])

    def _lines(self, *patterns: str, else_at: Places = (None, None)) -> Places:
        """Return the last line of both steps' sources in which a pattern stands; of two patterns the port's is the second."""
        found = list(else_at)
        for number, loop in enumerate((self.reference.loop, self.port.loop)):
            for source in (loop.recipe.steps[number], type(loop.kept), loop.kept) if loop.recipe.steps else ():
                source = getattr(source, "func", source)  # noqa: PLW2901  (a partial's)
                with suppress(OSError, TypeError):
                    lines, first = inspect.getsourcelines(source)
                    file = inspect.getsourcefile(source) or ""
                    for at, text in enumerate(lines, first):
                        if re.search(patterns[number % len(patterns)], text):
                            found[number] = SourceLine(file=file, line=at, code=text.strip())
        return found[0], found[1]
