"""Data, metrics and deployment code around the models: the same samples through both, and where results part.

What each model is called with and what it returns is watched. So a fault before the model shows in what it is given, and one
after it when the port's code is run once more with the reference's outputs in place of its own model's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from tipchain.core.blame import blame, placed
from tipchain.errors import Outcome
from tipchain.explain.causes.apart import glimpse
from tipchain.explain.causes.code import (
    CodePair,
    Leaf,
    Leaves,
    differs,
    is_numeric,
    leaves,
    pair_names,
    recorded,
    shown_apart,
)
from tipchain.explain.causes.data_sources import call_with_raw
from tipchain.explain.causes.losses import open_fields
from tipchain.explain.causes.statements import CodeRun, Edit
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck
from tipchain.explain.locate.differences import distance
from tipchain.explain.locate.trace import put_back, take_out
from tipchain.framework_types import Array, Function, Model, Nested, Options
from tipchain.frameworks.live_models import LiveSide
from tipchain.live.request import PREDICT, LiveRequest, as_callable, required
from tipchain.live.training import FACTOR, shake
from tipchain.numbers.tolerance import UNIT


class _Reached(BaseException):
    """Raised out of a prediction when the model is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One side's prediction for one raw sample.

    Attributes:
        result: its leaves by path.
        given: the arrays that the model was given, by path, those of later calls with their number.
        returned: the arrays that each call returned.
    """

    result: Leaves
    given: dict[str, Array]
    returned: list[list[Array]]


@dataclass(slots=True)
class _Deployed:
    side: LiveSide
    predict: Function
    model: Model
    seed: int

    def run(self, raw: object, replaced: Sequence[Sequence[Array]] | None = None, *, halt: bool = False) -> Predicted:
        """Predict for a raw sample; the model's outputs are ``replaced``, call by call, where they are given."""
        given: dict[str, Array] = {}
        returned: list[list[Array]] = []

        def before(_: Model, args: tuple[Nested, ...], kwargs: Options) -> None:
            _, tensors, names = take_out({"args": list(args), **kwargs}, self.side.is_tensor)
            call = f"call{len(returned) + 1}." if returned else ""
            given.update((f"{call}{name}", self.side.array(one)) for name, one in zip(names, tensors, strict=True))
            if halt:
                raise _Reached

        def after(_: object, output: object) -> Nested:
            structure, tensors, _names = take_out(output, self.side.is_tensor)
            number = len(returned)
            returned.append([self.side.array(one) for one in tensors])
            if replaced is None:
                return None
            pairs = zip(replaced[number], tensors, strict=True)
            made = [(self.side.tensor(one, gradient=False), two.dtype) for one, two in pairs]
            paddle = self.side.name == "paddle"
            cast = [one.astype(kind) if paddle else one.to(kind) for one, kind in made]
            return open_fields(put_back(structure, cast))

        self.side.seed(self.seed)
        with self.side.recording(gradient=False):
            remove = self.side.watch(self.model, before, after)
            try:
                predict: Function = partial(self.predict, self.model)
                if len(required(self.predict)) == 1:
                    predict = as_callable(predict(), "predict(model)", "raw")
                result = call_with_raw(predict, copy.deepcopy(raw))
            except _Reached:
                result = None
            finally:
                remove()
        read = {path: _told(one) for path, one in leaves(result, [self.side])}
        return Predicted(result=read, given=given, returned=returned)


def check_predictions(asked: LiveRequest) -> PieceCheck:
    """Compare both deployment codes' results for raw samples, with copied models in eval mode.

    A FAIL tells the first sample and entry that differ, and whether that is before, in or after the model.
    """
    ours, theirs, moved = (
        _Deployed(
            asked.sides[at], asked.pieces[PREDICT][at], asked.copied(at, double=False, training=False), asked.seed
        )
        for at in (0, 1, 0)
    )
    shake(asked.sides.reference, moved.model, UNIT, asked.seed)
    found: list[tuple[Predicted, Predicted]] = []
    first: tuple[int, str] | None = None
    for number, raw in enumerate(asked.raws):
        runs: list[Predicted] = []
        for who, one in zip((*SIDE_NAMES, SIDE_NAMES[0]), (ours, theirs, moved), strict=True):
            try:
                runs.append(one.run(raw))
            except (Exception, SystemExit) as error:  # noqa: BLE001, PERF203  (user code)
                reason = f"sample {number}: the {who}'s prediction raised {blame(error)}"
                return PieceCheck(outcome=Outcome.ERROR, reason=reason)
        expected, actual, drifted = runs
        found.append((expected, actual))
        apart = _first_apart(expected.result, actual.result, drifted.result)
        first = first or (None if apart is None else (number, apart))
    if not any(one.result for pair in found for one in pair):
        return PieceCheck(outcome=Outcome.ERROR, reason="nothing was compared: the predictions returned nothing")
    if first is None:
        entries = len(next(expected.result for expected, _ in found))
        reason = f"{len(found)} raw samples give equal results ({entries} {'entries' if entries > 1 else 'entry'} each)"
        return PieceCheck(outcome=Outcome.PASS, reason=reason)
    number, told = first
    where, causes = _where((ours, theirs), asked.raws, found, number)
    diagnoses = tuple(causes) if asked.causes else ()
    return PieceCheck(outcome=Outcome.FAIL, reason=f"sample {number}: {told}; {where}", diagnoses=diagnoses)


def _told(result: Leaf) -> Leaf:
    """Return a result of any objects as numbers, else as strings, element by element."""
    if isinstance(result, str) or result.dtype != np.dtype(object):
        return result
    try:
        return result.astype(np.float64)
    except (TypeError, ValueError):
        return np.array([str(one) for one in result.flat]).reshape(result.shape)


def _first_apart(ours: Leaves, theirs: Leaves, drifted: Leaves) -> str | None:
    """Return the first entry of two results that is further apart than rounding of the parameters allows, with both values."""
    only = [path for path in ours if path not in theirs], [path for path in theirs if path not in ours]
    if any(only):
        shown = ((who, ", ".join(map(repr, names[:3]))) for who, names in zip(SIDE_NAMES, only, strict=True))
        said = "; ".join(f"{names} only in the {who}'s" for who, names in shown if names)
        return f"the results have other entries: {said}"
    for path, one in ours.items():
        near, drift = drifted.get(path, one), 0.0
        if is_numeric(one) and is_numeric(near):
            drift = FACTOR * distance(one, near) if near.shape == one.shape else 0.0
        elif differs(one, near):
            drift = np.inf
        if differs(one, theirs[path], drift):
            return f"{path or 'the result'} differs: {shown_apart(one, theirs[path])}"
    return None


def _where(
    both: tuple[_Deployed, _Deployed], raws: Sequence[object], found: Sequence[tuple[Predicted, Predicted]], first: int
) -> tuple[str, Iterator[Diagnosis]]:
    """Say whether results part before, in or after the model, with the causes."""
    silent = " and ".join(who for who, one in zip(SIDE_NAMES, found[first], strict=True) if not one.given)
    if silent:
        told = f"the {silent}'s code does not call the model itself: where the results differ first is not known"
        return told, iter(())
    said, causes = [], list[Iterator[Diagnosis]]()
    before, after = _before(both, raws, found), _after(both, raws, found)
    if any(first in off for off in before.apart.values()):
        said += ["the models get different inputs: the cause is in the code before the model"]
        causes += [before.causes()]
    if after is not None and after.apart:
        said += [
            "given the reference's outputs, the port's code makes other results of them: the cause is in the code after the model"
        ]
        causes += [after.causes()]
    told = "both models get the same inputs, and equal outputs give equal results: the cause is in the model; see the other stages"
    return "; ".join(said or [told]), chain(*causes)


def _before(
    both: tuple[_Deployed, _Deployed], raws: Sequence[object], found: Sequence[tuple[Predicted, Predicted]]
) -> CodePair:
    """Return what the models are given; both codes are followed to the models' first call."""
    names: dict[str, str] = {}
    for one, other in found:
        names |= pair_names(one.given, other.given)
        names |= {name: name for name in (*one.given, *other.given) if name not in (*names, *names.values())}

    def again(side: int, at: int, edit: Edit | None) -> tuple[CodeRun, Leaves]:
        program, made = recorded([one.side for one in both], edit, lambda: both[side].run(raws[at], halt=True).given)
        # A batch of one is mostly made where the model is called.
        return program, {name: one[0] if one.ndim > 1 and len(one) == 1 else one for name, one in made.items()}

    return CodePair(
        path=PREDICT,
        what="samples",
        inputs=[str(at) for at in range(len(found))],
        names=names,
        values=[(one.given, other.given) for one, other in found],
        again=again,
        evidence=_places(both),
        fix="compare what both do before the model",
    )


def _after(
    both: tuple[_Deployed, _Deployed], raws: Sequence[object], found: Sequence[tuple[Predicted, Predicted]]
) -> CodePair | None:
    """Return the reference's results beside the port's code's of the reference's outputs; None if it refuses them."""

    def run(side: int, at: int) -> Leaves:
        return both[side].run(raws[at], found[at][0].returned if side else None).result

    for one in found:
        shapes, port_shapes = ([[array.shape for array in arrays] for arrays in side.returned] for side in one)
        if shapes != port_shapes:
            return None
    try:
        values = [(one.result, run(1, at)) for at, (one, _) in enumerate(found)]
    except Exception:  # noqa: BLE001  (the port's code may look at more of its model than its output)
        return None
    outputs = [", ".join(glimpse(one) for arrays in side.returned for one in arrays) for side, _ in found]
    return CodePair(
        path=PREDICT,
        what="samples",
        inputs=[f"{at} ({arrays})" for at, arrays in enumerate(outputs)],
        names={name: name for pair in values for side in pair for name in side},
        values=values,
        again=lambda side, at, edit: recorded([one.side for one in both], edit, lambda: run(side, at)),
        allowed=0.0,
        evidence=_places(both),
        fix="compare what both do after the model",
    )


def _places(both: tuple[_Deployed, _Deployed]) -> str:
    places = [placed(one.predict).rpartition("/")[2] for one in both]
    return f"the reference's code is {places[0]}, the port's {places[1]}"
