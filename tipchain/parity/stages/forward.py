"""Step 1 of the guide, the network: its outputs in eval mode, then in train mode and with inputs that the case does not name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import product
from math import inf, isfinite
from os import sep
from os.path import relpath
from typing import TYPE_CHECKING

import numpy as np

from tipchain.core.blame import one_line
from tipchain.core.json_text import Json, JsonObject, as_json, parse_as
from tipchain.core.language import listed
from tipchain.errors import Outcome, RecordError, UsageError
from tipchain.framework_types import Array, Model, Nested
from tipchain.frameworks.base import flatten_outputs
from tipchain.frameworks.randomness import SAME_RATE, Draw, Draws
from tipchain.numbers.compare import common_factor
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE, Tolerance
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.case import LABEL
from tipchain.parity.settings import TRAIN
from tipchain.parity.stages import judging
from tipchain.parity.stages.backward import LOOK_AT_MOMENTUM
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details, tensor_paths
from tipchain.parity.stages.tensors import TensorFile

if TYPE_CHECKING:
    from tipchain.frameworks.live_models import LiveSide

__all__ = ["judge", "may_be_rounding", "record"]


def record(bench: Bench) -> Recording:
    """All outputs on the fake inputs, in eval mode; then those on inputs of every other shape, as ``name@SHAPE``.

    Beside the dump: outputs on inputs that are made of those, and in train mode, as ``train/name``; what the model draws there,
    and the buffers that it changes, as ``buffer/name``; outputs in float64, as ``double/name``.
    """
    arrays = _outputs(bench, bench.eval_output(), "")
    others = bench.inputs_of_other_shapes()
    if not others and bench.truth:
        return Recording(arrays=arrays)
    model, draws = bench.eval_model(), bench.eval_draws()
    with bench.framework.inference(), bench.framework.randomness(Draws(bench.case.seed)):
        for suffix, inputs in others.items():
            arrays |= _outputs(bench, model(*inputs), suffix)
    if bench.truth:
        return Recording(arrays=arrays)
    more = _Besides(bench, model, arrays)
    drawn, in_double = more.told(draws), {} if draws.made else more.in_double()
    tensors, inputs_facts = more.other_inputs()
    in_train_mode, train_facts = more.train_mode()
    facts = {EVAL_MODE: {"draws": drawn}, OTHER_INPUTS: inputs_facts, TRAIN_MODE: train_facts}
    return Recording(arrays=arrays, tensors={**tensors, **in_train_mode, **in_double}, details=facts)


def _outputs(bench: Bench, output: Nested, suffix: str) -> dict[str, Array]:
    named = flatten_outputs(bench.framework, output, bench.case.outputs)
    return {f"{name}{suffix}": bench.framework.array(value) for name, value in named.items()}


# What a model does besides, on one side.


EVAL_MODE, OTHER_INPUTS, TRAIN_MODE = "eval_mode", "other_inputs", "train_mode"
"""Facts beside the dump."""
BUFFER = "buffer/"
"""What the names of buffers begin with that the call in train mode changes: before and after it."""
DOUBLE = "double/"
"""What the names of outputs in float64 begin with."""
Besides = tuple[dict[str, Array], JsonObject]
"""Outputs by name, and facts."""


class _Besides:
    """Runs a model that is ready for the stage with other inputs and in train mode: copies of it, which stays as it is."""

    def __init__(self, bench: Bench, model: Model, arrays: Mapping[str, Array]) -> None:
        from tipchain.explain.locate.runs import ModelInputs
        from tipchain.frameworks.live_models import side_of

        self.bench, self.model = bench, model
        self.side: LiveSide = side_of(bench.framework)
        sets = {"": [array for name, array in bench.inputs.items() if name != LABEL]}
        for path, array in bench.other_inputs.items():
            sets.setdefault(path.rpartition("/")[0], []).append(array)
        self.named = frozenset(sets)
        # Of the shapes that the case names the smallest costs least, and shows as much; several samples may be mixed up.
        every = sorted(sets, key=lambda suffix: sum(one.size for one in sets[suffix]))
        several = next((suffix for suffix in every if sets[suffix][0].shape[:1] > (1,)), every[0])
        self.inputs, self.several = (ModelInputs(args=tuple(sets[one]), kwargs={}) for one in (every[0], several))
        self.outputs = [array for name, array in arrays.items() if "".join(name.partition("@")[1:]) == every[0]]

    def other_inputs(self) -> Besides:
        """Return the outputs for one sample of other sizes, the first that the model takes, called after one of other values."""
        from tipchain.explain.locate.other_runs import (
            answers,
            call_seeded,
            other_batch,
            other_inputs,
            others,
            told_shapes,
        )

        refused: dict[str, Json] = {}
        faults: list[Json] = []
        # Whether the last of three axes is the one that the model goes along, both sides must answer alike.
        ways = (False, True) if self.inputs.arrays()[0].ndim == 3 else (False,)
        for given in other_inputs(self.inputs, ways):
            shapes, seed = told_shapes(given), self.bench.case.seed
            suffix = "@" + ",".join("x".join(map(str, one.shape)) for one in given.arrays())
            if suffix in self.named:
                continue
            try:
                output = call_seeded(self.side, self._copied(), given, Draws(seed), seed=seed, before=others(given))
                made = _outputs(self.bench, output, suffix)
            except Exception as error:  # noqa: BLE001  (a model may raise anything at inputs that nobody meant for it)
                refused[shapes] = self._told(error)
                faults += [shapes] * self._is_fault(error)
                continue
            counts = len(self.inputs.arrays()[0]), len(given.arrays()[0])
            facts: JsonObject = {
                "shapes": shapes,
                "suffix": suffix,
                "answers": answers(self.outputs, [*made.values()], counts),
            }
            return made, {"refused": refused, "faults": faults, **facts}
        if refused:
            return {}, {"refused": refused, "faults": faults}
        batch = other_batch(self.inputs)
        return {}, {"without": "the inputs have no common first axis" if batch is None else "the case names them all"}

    def in_double(self) -> dict[str, Array]:
        """Return the outputs for a few samples, or for all, in eval mode and float64; none where the model does not run so."""
        from tipchain.explain.locate.other_runs import call_seeded
        from tipchain.explain.locate.runs import few_of

        seed, given = self.bench.case.seed, few_of(self.several) or self.several
        with suppress(Exception):
            made = self.side.copied(self.model, double=True)
            output = call_seeded(self.side, made, given, Draws(seed), seed=seed, double=True)
            return {f"{DOUBLE}{name}": one for name, one in _outputs(self.bench, output, "").items()}
        return {}

    def train_mode(self) -> Besides:
        """Return the outputs for a few samples, or for all, in train mode with the seed's random numbers, and what was drawn.

        In float64 where the batch's statistics count: of two samples they may make much of rounding.
        """
        from tipchain.explain.locate.other_runs import call_seeded, minds_mode, told_shapes, uses_statistics
        from tipchain.explain.locate.runs import few_of

        seed, refused, fault = self.bench.case.seed, "", True
        minds, precisions = (
            minds_mode(self.side, self.model),
            (True, False)[not uses_statistics(self.side, self.model) :],
        )
        few = few_of(self.several)
        for given, double in product((self.several,) if few is None else (few, self.several), precisions):
            draws = Draws(seed)
            try:
                made = self.side.copied(self.model, double=True) if double else self._copied()
                made.train()
                self.bench.framework.watch_variances(made)
                held = self._buffers(made)
                output = call_seeded(self.side, made, given, draws, seed=seed, double=double)
                outputs = {f"{TRAIN}/{name}": one for name, one in self._named(output).items()}
                left = self._buffers(made)
            except Exception as error:  # noqa: BLE001  (a model may lack what it needs in train mode)
                refused, fault = refused or self._told(error), fault and self._is_fault(error)
                continue
            for name in held.keys() & left.keys():
                if held[name].shape == left[name].shape and not np.array_equal(held[name], left[name]):
                    outputs[f"{BUFFER}{name}"] = np.stack([held[name], left[name]]).astype(np.float64)
            grown = sorted(name for name in left if name not in held or held[name].shape != left[name].shape)
            facts: JsonObject = {"shapes": told_shapes(given), "draws": self.told(draws), "buffers": sorted(left)}
            return outputs, {"minds": minds, "grown": list(grown), **facts}
        return {}, {"minds": minds, "refused": refused, "fault": fault}

    def _copied(self) -> Model:
        """Return a copy, built anew if it cannot be copied: what a call leaves in it counts for no other, for the sides may refuse others."""
        try:
            return self.side.lent(self.model)
        except Exception:  # noqa: BLE001  (a model may hold anything)
            self.bench.forget()
            return self.bench.eval_model()

    def _named(self, output: Nested) -> dict[str, Array]:
        """Return all outputs, named as far as the case names them: in train mode there may be others."""
        from tipchain.explain.locate.trace import take_out

        try:
            return _outputs(self.bench, output, "")
        except UsageError:
            _, tensors, places = take_out(output, self.side.is_tensor)
            names = [*self.bench.case.outputs, *places[len(self.bench.case.outputs) :]]
            return {name: self.bench.framework.array(one) for name, one in zip(names, tensors, strict=False)}

    def _buffers(self, model: Model) -> dict[str, Array]:
        return dict(self.bench.framework.buffers(model, self.bench.case.weights.names))

    def _told(self, error: Exception) -> str:
        """Return what was raised, with the project's files as seen from its root: a dump may go to another machine."""
        return one_line(error).replace(f"{self.bench.case.root.resolve()}{sep}", "")

    def _is_fault(self, error: Exception) -> bool:
        from tipchain.explain.locate.other_runs import is_fault

        return isinstance(error, UsageError) or is_fault(error, self.side, self.model)

    def told(self, draws: Draws) -> list[Json]:
        """Return what was drawn, with its files as seen from the project's root."""
        root = self.bench.case.root
        return [
            as_json(one if one.place is None else replace(one, place=(relpath(one.place[0], root), one.place[1])))
            for one in draws.made
        ]


# What both sides do besides, held against each other.


STAGE = "forward"
RANDOM = f"{STAGE}/eval", f"{STAGE}/{TRAIN}"
"""The verdicts on results in eval and in train mode of which the recordings do not tell whether they are random or wrong."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the outputs; where they agree, what both sides do with other inputs and in train mode."""
    judged = judging.judge(dumps, rules)
    drawn = [_draws(details(one), EVAL_MODE) for one in (dumps.reference, dumps.port)]
    failed = [one for one in judged.verdicts if one.outcome is Outcome.FAIL]
    values = all(one.diff is not None and one.diff.size for one in failed)
    if failed and values and all(drawn) and not _tells(*drawn, alike=True):
        others = (one for one in judged.verdicts if one not in failed)
        return replace(judged, verdicts=(*others, _random(*drawn, training=False)))
    if any(one.outcome is not Outcome.PASS for one in judged.verdicts):
        known = {one.subject for one in rules.deviations}
        if all(one.outcome is Outcome.PASS or one.subject in known for one in judged.verdicts):
            return replace(
                judged, notes=(*judged.notes, "other inputs and train mode were not compared: the outputs differ")
            )
        return judged
    sides = details(dumps.reference), details(dumps.port)
    if any(name not in one for name in (OTHER_INPUTS, TRAIN_MODE) for one in sides):
        return replace(
            judged, notes=(*judged.notes, "other inputs and train mode were not compared: a side did not record them")
        )
    with ExitStack() as stack:
        try:
            ours, theirs = (
                _Recorded(facts, stack.enter_context(TensorFile(path)) if _has_tensors(facts) else {})
                for facts, path in zip(sides, tensor_paths(dumps), strict=True)
            )
        except RecordError as error:
            return judged + Judged(verdicts=(Verdict(Outcome.ERROR, f"{STAGE}/tensors", str(error)),))
        besides = _judge_other_inputs(ours, theirs, rules) + _judge_train_mode(ours, theirs, rules)
        besides += _judge_buffers(ours, theirs) + _note_grown(ours, theirs)
        return judged + besides + _note_no_rounding(judged, ours, theirs)


def may_be_rounding(verdict: Verdict, rules: Rules) -> bool:
    """Tell whether an output, or the loss, is farther apart than the default tolerance, but not than rounding to float32 may make it."""
    stage, _, key = verdict.subject.partition("/")
    diff = verdict.diff
    if (
        (stage != STAGE and verdict.subject != "loss/loss")
        or verdict.outcome is not Outcome.FAIL
        or diff is None
        or not diff.expected_dtype.startswith("float")
    ):
        return False
    return (
        not rules.asks(stage, key)
        and diff.expected_shape == diff.actual_shape
        and diff.max_abs <= ROUGH * diff.expected_max_abs
    )


def _has_tensors(facts: JsonObject) -> bool:
    return "suffix" in facts[OTHER_INPUTS] or "draws" in facts[TRAIN_MODE]


def _draws(facts: JsonObject, mode: str) -> tuple[Draw, ...]:
    return parse_as(tuple[Draw, ...], facts.get(mode, {}).get("draws", []), "draws")


class _Recorded:
    """What one side did besides."""

    def __init__(self, facts: JsonObject, tensors: Mapping[str, Array]) -> None:
        self.inputs, self.train, self.tensors = facts[OTHER_INPUTS], facts[TRAIN_MODE], tensors
        self.draws = _draws(facts, TRAIN_MODE)

    def named(self, prefix: str = "", suffix: str = "") -> dict[str, Array]:
        """Return the outputs whose names begin and end so."""
        return {
            name: np.array(self.tensors[name])
            for name in self.tensors
            if name.startswith(prefix) and name.endswith(suffix)
        }


def _judge_other_inputs(ours: _Recorded, theirs: _Recorded, rules: Rules) -> Judged:
    for one in (ours, theirs):
        if "without" in one.inputs:
            return Judged(verdicts=(), notes=(f"other inputs were not compared: {one.inputs['without']}",))
    refused, suffix = theirs.inputs["refused"], ours.inputs.get("suffix")
    alone = [shapes for shapes in refused if shapes not in ours.inputs["refused"]]
    notes = [
        f"the port raises with inputs of shape {shapes}, the reference does not: {refused[shapes]}"
        for shapes in alone[:1]
    ]
    if alone[:1] == [ours.inputs.get("shapes")] and ours.inputs["answers"] and alone[0] in theirs.inputs["faults"]:
        return Judged(verdicts=(Verdict(Outcome.FAIL, f"{STAGE}/{next(iter(ours.named(suffix=suffix)))}", notes[0]),))
    if suffix is None or theirs.inputs.get("suffix") != suffix:
        if suffix is None:
            shapes, told = next(iter(ours.inputs["refused"].items()))
            notes.append(f"other inputs were not compared: the reference raises with those of shape {shapes}: {told}")
        elif not notes:
            notes.append("other inputs were not compared: the port takes such as the reference does not")
        return Judged(verdicts=(), notes=tuple(notes))
    how = f"with inputs of shape {ours.inputs['shapes']}"
    expected, actual = (one.named(suffix=suffix) for one in (ours, theirs))
    if not _are_finite(expected):
        notes.append("other inputs were not compared: the reference puts out NaN or Inf")
        return Judged(verdicts=(), notes=tuple(notes))
    return replace(_compare(expected, actual, rules, how), notes=tuple(notes))


def _judge_train_mode(ours: _Recorded, theirs: _Recorded, rules: Rules) -> Judged:
    """Judge train mode, where at least one side may do something else in it."""
    for one, who in ((ours, "reference"), (theirs, "port")):
        if "refused" not in one.train:
            continue
        why = one.train["refused"]
        if one is theirs and one.train["fault"]:
            told = f"in train mode the port raises, the reference does not: {why}"
            name = next(iter(ours.named(prefix=f"{TRAIN}/")))
            return Judged(verdicts=(Verdict(Outcome.FAIL, f"{STAGE}/{name}", told),))
        return Judged(verdicts=(), notes=(f"train mode was not compared: the {who} does not run in it: {why}",))
    if not (ours.train["minds"] or theirs.train["minds"]):
        return Judged(verdicts=())
    if ours.train["shapes"] != theirs.train["shapes"]:
        told = f"the reference runs with inputs of shape {ours.train['shapes']}, the port with {theirs.train['shapes']}"
        return Judged(verdicts=(), notes=(f"train mode was not compared: {told}",))
    expected, actual = (one.named(prefix=f"{TRAIN}/") for one in (ours, theirs))
    both = [name for name in expected if name in actual]
    notes = [
        f"in train mode only the {who} returns {', '.join(name.removeprefix(f'{TRAIN}/') for name in alone)}"
        for who, alone in (
            ("reference", [one for one in expected if one not in actual]),
            ("port", [one for one in actual if one not in expected]),
        )
        if alone
    ]
    if not both:
        return Judged(verdicts=(), notes=(*notes, "train mode was not compared: the sides return other outputs in it"))
    if not _are_finite(expected):
        return Judged(verdicts=(), notes=(*notes, "train mode was not compared: the reference puts out NaN or Inf"))
    found = _compare(
        {name: expected[name] for name in both},
        {name: actual[name] for name in both},
        rules,
        f"in train mode: {_both_told(ours.draws, theirs.draws)}" if ours.draws or theirs.draws else "in train mode",
    )
    agree, equal = all(one.outcome is Outcome.PASS for one in found.verdicts), _are_equal(ours.draws, theirs.draws)
    if (agree and equal) or (not agree and _tells(ours.draws, theirs.draws, alike=not notes)):
        return replace(found, notes=tuple(notes))
    return Judged(verdicts=(_random(ours.draws, theirs.draws, training=True),), notes=tuple(notes))


def _random(ours: Sequence[Draw], theirs: Sequence[Draw], *, training: bool) -> Verdict:
    """Return that results are random, so that only both models in one process can tell whether they are wrong."""
    told = _both_told(ours, theirs)
    reason = (
        f"in train mode the results are random, and the recordings do not tell more: {told}"
        if training
        else f"in eval mode, too, the results are random, and the recordings do not tell more: {told}"
    )
    return Verdict(Outcome.SKIP, RANDOM[training], reason)


def _both_told(ours: Sequence[Draw], theirs: Sequence[Draw]) -> str:
    return f"the reference draws {_told(ours)}, the port draws {_told(theirs)}"


def _note_no_rounding(judged: Judged, ours: _Recorded, theirs: _Recorded) -> Judged:
    """Note outputs within their tolerance that differ in float64, where little rounds, about as they do in float32."""
    expected, actual = (one.named(prefix=DOUBLE) for one in (ours, theirs))
    told = []
    for one in judged.verdicts:
        name = one.subject.removeprefix(f"{STAGE}/")
        reference, port = expected.get(f"{DOUBLE}{name}"), actual.get(f"{DOUBLE}{name}")
        if one.diff is None or reference is None or port is None or reference.shape != port.shape:
            continue
        largest = float(np.abs(reference).max(initial=0))
        apart = float(np.abs(reference - port).max(initial=0))
        single = one.diff.max_abs * largest / (one.diff.expected_max_abs or inf)
        if isfinite(apart) and apart > max(SAME_SINGLE * largest, single / 2):
            told.append(f"`{name}` (relative {apart / largest:.3g})")
    note = (
        f"the outputs are within their tolerance, but differ by more than rounding, in float64, too: {listed(told, SHOWN)}; "
        "`tipchain locate` with this case looks for the layer and the cause"
    )
    return Judged(verdicts=(), notes=(note,) if told else ())


def _judge_buffers(ours: _Recorded, theirs: _Recorded) -> Judged:
    """Judge how far the call in train mode moves the buffers that both sides have, such as a norm's statistics."""
    from tipchain.explain.locate.differences import rms

    kept = [
        {name.removeprefix(BUFFER): one for name, one in side.named(prefix=BUFFER).items()} for side in (ours, theirs)
    ]
    both = set(ours.train.get("buffers", ())) & set(theirs.train.get("buffers", ()))
    moved = sorted(both & (kept[0].keys() | kept[1].keys()))
    if not moved or ours.train["shapes"] != theirs.train["shapes"]:
        return Judged(verdicts=())
    if not _are_equal(ours.draws, theirs.draws):
        return Judged(
            verdicts=(), notes=("buffers in train mode were not compared: the sides draw other random numbers",)
        )
    if not _are_finite(kept[0]):
        return Judged(verdicts=(), notes=("buffers in train mode were not compared: the reference's are NaN or Inf",))
    wrong: list[str] = []
    shares: list[float] = []
    factors: list[float | None] = []
    for name in moved:
        held = next(side[name] for side in kept if name in side)
        expected, actual = (side[name][1] - side[name][0] if name in side else np.zeros(held[0].shape) for side in kept)
        allowed = ROUGH * rms(expected) + ROUNDING * rms(held)
        shares.append(rms(expected - actual) / allowed if expected.shape == actual.shape else inf)
        if not shares[-1] <= 1:
            factors.append(_factor(expected, actual))
            wrong.append(_moved(name, expected, actual, factors[-1]))
    subject = f"{STAGE}/{TRAIN}/buffers"
    if not wrong:
        told = f"{len(moved)} buffers change as the reference's"
        return Judged(verdicts=(Verdict(Outcome.PASS, subject, told, share=max(shares)),))
    hint = "" if factors[0] is None else f"; {LOOK_AT_MOMENTUM}"
    told = f"in train mode other buffers are left: {listed(wrong, SHOWN)}{hint}"
    return Judged(verdicts=(Verdict(Outcome.FAIL, subject, told, share=max(shares)),))


def _note_grown(ours: _Recorded, theirs: _Recorded) -> Judged:
    """Note buffers whose shape the call in train mode changes: how far it moves them cannot be told."""
    grown = dict.fromkeys([*ours.train.get("grown", ()), *theirs.train.get("grown", ())])
    names = listed([f"`{one}`" for one in grown], SHOWN) if grown else ""
    told = f"buffers in train mode were not compared: the shape of {names} changes"
    return Judged(verdicts=(), notes=(told,) if grown else ())


def _factor(expected: Array, actual: Array) -> float | None:
    """Return by what the port's change is the reference's, if both change."""
    both = expected.shape == actual.shape and np.any(expected) and np.any(actual)
    return common_factor(expected, actual) if both else None


def _moved(name: str, expected: Array, actual: Array, factor: float | None) -> str:
    if not np.any(actual) or not np.any(expected):
        return f"`{name}` changes in the {'reference' if np.any(expected) else 'port'} only"
    if factor is None:
        return f"`{name}` changes otherwise"
    return f"`{name}` changes by {factor:.4g} times what it does in the reference"


def _are_finite(arrays: Mapping[str, Array]) -> bool:
    return all(np.isfinite(one).all() for one in arrays.values() if one.dtype.kind in "fc")


def _compare(expected: Mapping[str, Array], actual: Mapping[str, Array], rules: Rules, how: str) -> Judged:
    """Compare outputs of a run besides: they are as close as the stage's own, or as rounding to float32 lets them be."""
    from tipchain.explain.locate.differences import relative

    plain = {name: name.removeprefix(f"{TRAIN}/").partition("@")[0] for name in (*expected, *actual)}
    own = rules.for_arrays(STAGE, {plain[name]: one for name, one in (*actual.items(), *expected.items())})
    tolerances = {name: own[plain[name]] for name in plain}
    verdicts: list[Verdict] = []
    kept: dict[str, Tolerance] = {}
    for one in compare(expected, actual, tolerances):
        name, subject = one.subject, f"{STAGE}/{one.subject}"
        if one.outcome is Outcome.PASS:
            kept[subject] = tolerances[name]
            verdicts.append(replace(one, subject=subject))
        elif one.diff is None or not one.diff.size or expected[name].dtype.kind != "f":
            verdicts.append(replace(one, subject=subject, reason=f"{how}: {one.reason}"))
        else:
            apart = relative(expected[name], actual[name])
            outcome = Outcome.PASS if apart <= ROUGH else Outcome.FAIL
            reason = f"relative {apart:.3g} · allowed {ROUGH:.3g}"
            words = reason if outcome is Outcome.PASS else f"{how} · {reason}"
            verdicts.append(Verdict(outcome, subject, words, diff=one.diff, share=apart / ROUGH))
    return Judged(verdicts=tuple(verdicts), tolerances=kept)


def _are_equal(ours: Sequence[Draw], theirs: Sequence[Draw]) -> bool:
    """Tell whether both sides were given the same numbers for the same rates, one after another."""
    return len(ours) == len(theirs) and all(
        one.fits(other) and one.is_as_frequent(other) for one, other in zip(ours, theirs, strict=True)
    )


def _tells(ours: Sequence[Draw], theirs: Sequence[Draw], *, alike: bool) -> bool:
    """Tell whether outputs that differ in train mode show a fault, and cannot be due to other numbers alone.

    They show one where both sides were given the same numbers, of which none can stand for another; and where one side draws
    what the other does not, or drops another share. What only one side returns may have drawn more: then they are not ``alike``.
    """
    numbers = [Counter((one.kind, one.size) for one in side) for side in (ours, theirs)]
    if any(one.kind == "own" for one in (*ours, *theirs)):
        return False
    if _are_equal(ours, theirs):
        placed = [one.shape for one in ours] == [one.shape for one in theirs]
        return placed and len(numbers[0]) == len(ours)
    if not alike or numbers[0] != numbers[1]:
        return alike and (numbers[0] <= numbers[1] or numbers[1] <= numbers[0])
    rates = [
        Counter((one.size, round(one.rate / SAME_RATE)) for one in side if one.rate is not None)
        for side in (ours, theirs)
    ]
    return all(one.total() == len(ours) for one in rates) and rates[0] != rates[1]


def _told(draws: Sequence[Draw]) -> str:
    """Return what a side draws, each kind with the line of its first."""
    kinds: dict[str, list[Draw]] = {}
    for one in draws:
        kinds.setdefault(str(one), []).append(one)
    told = []
    for words, several in kinds.items():
        place = several[0].place
        times = f"{len(several)} times {words}" if several[1:] else words
        told.append(times if place is None else f"{times} at {place[0]}:{place[1]}")
    return listed(told, SHOWN) if told else "nothing"


SHOWN = 3
"""Kinds of draws, and buffers, that a reason names."""
ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""How far a buffer may be off by the rounding of its values to float32, beside their RMS."""
