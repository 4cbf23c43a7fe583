"""Data, metrics and deployment code around the models: the same samples through both, and where results part.

What each model is called with and what it returns is watched. So a fault before the model shows in what it is given, and one
after it when the port's code is run once more with the reference's outputs in place of its own model's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tipchain.core.blame import blame, placed
from tipchain.errors import Outcome
from tipchain.explain.causes.data import check_data
from tipchain.explain.causes.data_sources import call_with_raw, is_numbers, same_array
from tipchain.explain.causes.losses import open_fields
from tipchain.explain.causes.statements import CodeRun, Edit, explain_parting, shown_apart
from tipchain.explain.causes.walk import glimpse
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.trace import put_back, take_out
from tipchain.framework_types import Array, Function, Model, Nested, Options
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.live.arguments import as_callable, required
from tipchain.live.lockstep import FACTOR
from tipchain.live.request import PREDICT, LiveRequest
from tipchain.live.training import shake
from tipchain.numbers.tolerance import SAME_ENLARGED, UNIT

Leaf = Nested
"""An array, a number, a string or None in a result."""


class _Reached(BaseException):
    """Raised out of a prediction when the model is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One side's prediction for one raw sample.

    Attributes:
        result: its leaves by path.
        given: the arrays that each call of the model was given, by path.
        returned: the arrays that each call returned.
    """

    result: dict[str, Leaf]
    given: list[dict[str, Array]]
    returned: list[list[Array]]


@dataclass(slots=True, kw_only=True)
class _Deployed:
    """One side's deployment code with its copy of the model."""

    side: LiveSide
    predict: Function
    model: Model
    seed: int

    def run(self, raw: object, replaced: Sequence[Sequence[Array]] | None = None, *, halt: bool = False) -> Predicted:
        """Predict for a raw sample; the model's outputs are ``replaced``, call by call, where they are given."""
        given: list[dict[str, Array]] = []
        returned: list[list[Array]] = []

        def before(_: Model, args: tuple[Nested, ...], kwargs: Options) -> None:
            _, tensors, names = take_out({"args": list(args), **kwargs}, self.side.is_tensor)
            given.append({name: self.side.array(one) for name, one in zip(names, tensors, strict=True)})
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
            return open_fields(
                put_back(structure, [one.astype(kind) if paddle else one.to(kind) for one, kind in made])
            )

        self.side.seed(self.seed)
        with self.side.recording(gradient=False):
            remove = self.side.watch(self.model, before, after)
            try:
                result = call_with_raw(self._open(), raw)
            except _Reached:
                result = None
            finally:
                remove()
        return Predicted(result=dict(_leaves(self.side, result, "")), given=given, returned=returned)

    def _open(self) -> Callable[[object], object]:
        """Return the predictor of a raw sample: ``predict(model, raw)``, or the result of ``predict(model)``."""
        if len(required(self.predict)) == 1:
            return as_callable(self.predict(self.model), "predict(model)", "raw")
        return lambda raw: self.predict(self.model, raw)


def check_predictions(asked: LiveRequest) -> PieceCheck:
    """Compare both deployment codes' results for raw samples, with copied models in eval mode.

    A FAIL tells the first sample and entry that differ, and whether that is before, in or after the model.
    """
    ours, theirs, moved = (
        _Deployed(
            side=asked.sides[at],
            predict=asked.pieces[PREDICT][at],
            model=asked.copied(at, double=False, training=False),
            seed=asked.seed,
        )
        for at in (0, 1, 0)
    )
    shake(asked.sides.reference, moved.model, UNIT, asked.seed)
    raws = asked.raws
    found: list[tuple[Predicted, Predicted]] = []
    first: tuple[int, str] | None = None
    for number, raw in enumerate(raws):
        pair = []
        for who, one in zip(SIDE_NAMES, (ours, theirs), strict=True):
            try:
                pair.append(one.run(copy.deepcopy(raw)))
            except (Exception, SystemExit) as error:  # noqa: BLE001, PERF203  (user code)
                reason = f"sample {number}: the {who}'s prediction raised {blame(error)}"
                return PieceCheck(outcome=Outcome.ERROR, reason=reason)
        expected, actual = pair
        found.append((expected, actual))
        apart = _first_apart(expected.result, actual.result, moved.run(copy.deepcopy(raw)).result)
        first = first or (None if apart is None else (number, apart))
    if not any(one.result for pair in found for one in pair):
        return PieceCheck(outcome=Outcome.ERROR, reason="nothing was compared: the predictions returned nothing")
    if first is None:
        entries = len(next(expected.result for expected, _ in found))
        reason = f"{len(found)} raw samples give equal results ({entries} {'entries' if entries > 1 else 'entry'} each)"
        return PieceCheck(outcome=Outcome.PASS, reason=reason)
    number, told = first
    where, diagnoses = _where((ours, theirs), raws, found, number, causes=asked.causes)
    return PieceCheck(outcome=Outcome.FAIL, reason=f"sample {number}: {told}; {where}", diagnoses=tuple(diagnoses))


def _where(
    both: tuple[_Deployed, _Deployed],
    raws: Sequence[object],
    found: Sequence[tuple[Predicted, Predicted]],
    first: int,
    *,
    causes: bool,
) -> tuple[str, list[Diagnosis]]:
    """Say whether results part before, in or after the model, with the causes."""
    one, other = found[first]
    said, diagnoses = [], []
    if not one.given or not other.given:
        who = " and ".join(who for who, side in zip(SIDE_NAMES, (one, other), strict=True) if not side.given)
        return (f"the {who}'s code does not call the model itself: where the results differ first is not known", [])
    if not _alike(one.given, other.given):
        said.append("the models get different inputs: the cause is in the code before the model")
        diagnoses += _before(both, raws) if causes else []
        if not diagnoses:
            calls = zip(one.given, other.given, strict=False)
            apart = next((pair for pair in calls if not _alike(pair[:1], pair[1:])), (one.given[0], other.given[0]))
            expected, actual = (", ".join(map(glimpse, given.values())) for given in apart)
            shown = f"the model is given {actual}, the reference's {expected}"
            diagnoses.append(_of_code(both, shown, "compare what both do before the model"))
    after = _after(both[1], raws, found)
    if any(_first_apart(a, b, a) is not None for a, b in after):
        said.append(
            "given the reference's outputs, the port's code makes other results of them: the cause is in the code after the model"
        )
        diagnoses += _after_in_code(both, raws, found, after) if causes else []
    if not said:
        said.append(
            "both models get the same inputs, and equal outputs give equal results: the cause is in the model; see the other stages"
        )
    return "; ".join(said), diagnoses


def _alike(ours: Sequence[Mapping[str, Array]], theirs: Sequence[Mapping[str, Array]]) -> bool:
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(same_array(x, y) for x, y in zip(a.values(), b.values(), strict=True))
        for a, b in zip(ours, theirs, strict=True)
    )


def _before(both: tuple[_Deployed, _Deployed], raws: Sequence[object]) -> list[Diagnosis]:
    """Return the causes in the models' inputs: both codes before it are transforms."""

    def transform(deployed: _Deployed) -> Callable[[Nested], Nested]:
        def run(raw: object) -> Nested:
            arrays = next(iter(deployed.run(raw, halt=True).given), {})
            single = [array[0] if array.ndim > 1 and len(array) == 1 else array for array in arrays.values()]
            return tuple(single) if len(single) != 1 else single[0]

        return run

    ours, theirs = both
    transforms = transform(ours), transform(theirs)
    sides = Sides(ours.side, theirs.side)
    return list(check_data(sides, transforms, samples=raws, seed=ours.seed, path=PREDICT).diagnoses)


def _after(
    theirs: _Deployed, raws: Sequence[object], found: Sequence[tuple[Predicted, Predicted]]
) -> list[tuple[dict[str, Leaf], dict[str, Leaf]]]:
    """Return the reference's results beside the port's code's of its outputs; [] if it refuses."""
    results = []
    for raw, (one, other) in zip(raws, found, strict=True):
        shapes, port_shapes = ([[array.shape for array in arrays] for arrays in side.returned] for side in (one, other))
        if shapes != port_shapes:
            return []
        try:
            results.append((one.result, theirs.run(copy.deepcopy(raw), one.returned).result))
        except Exception:  # noqa: BLE001  (the port's code may look at more of its model than its output)
            return []
    return results


def _after_in_code(
    both: tuple[_Deployed, _Deployed],
    raws: Sequence[object],
    found: Sequence[tuple[Predicted, Predicted]],
    results: Sequence[tuple[Mapping[str, Leaf], Mapping[str, Leaf]]],
) -> Iterator[Diagnosis]:
    """Show the first result of each entry that the port's code makes otherwise of the reference's outputs, and where the codes part."""
    sides = both[0].side, both[1].side
    for name in results[0][0]:
        for raw, (one, _), (expected, actual) in zip(raws, found, results, strict=True):
            left, right = ({name: side[name]} if name in side else {} for side in (expected, actual))
            if _first_apart(left, right, left) is None:
                continue
            outputs = one.returned
            given = ", ".join(glimpse(array) for arrays in outputs for array in arrays)
            ends: tuple[Leaf, Leaf] = expected[name], actual.get(name)
            shown = f"{name or 'the result'}: expected {_glimpse(ends[0])}, actual {_glimpse(ends[1])} of the model's outputs {given}"

            def run(program: CodeRun, deployed: _Deployed, put: Sequence[Sequence[Array]] | None) -> dict[str, Leaf]:
                predicted: Predicted = program.run(lambda: deployed.run(copy.deepcopy(raw), put))  # noqa: B023
                return predicted.result

            def again(edit: Edit) -> Array:
                return np.asarray(run(CodeRun(sides, edit), both[1], outputs)[name])  # noqa: B023

            cause = None
            if all(isinstance(each, np.ndarray) for each in ends):
                programs = CodeRun(sides), CodeRun(sides)
                for program, deployed, put in zip(programs, both, (None, outputs), strict=True):
                    run(program, deployed, put)
                cause = explain_parting(programs, ends, again, PREDICT, shown)
            yield cause or _of_code(both, shown, "compare what both do after the model")
            break


def _glimpse(leaf: Leaf) -> str:
    return glimpse(leaf) if isinstance(leaf, np.ndarray) else f"{leaf!r:.60}"


def _of_code(both: tuple[_Deployed, _Deployed], message: str, fix: str) -> Diagnosis:
    places = [placed(one.predict).rpartition("/")[2] for one in both]
    return Diagnosis(
        code="parting",
        port_path=PREDICT,
        message=message,
        evidence=f"the reference's code is {places[0]}, the port's {places[1]}",
        fix=fix,
    )


def _leaves(side: LiveSide, value: object, path: str) -> Iterator[tuple[str, Leaf]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(side, one, f"{path}.{key}".lstrip("."))
    elif isinstance(value, tuple | list) and not is_numbers(value):
        for key, one in enumerate(value):
            yield from _leaves(side, one, f"{path}[{key}]")
    elif side.is_tensor(value):
        yield path, side.array(value)
    elif isinstance(value, tuple | list | np.ndarray | np.generic | int | float):
        yield path, np.asarray(value)
    elif value is not None:
        yield path, value if isinstance(value, str) else str(value)


def _first_apart(ours: Mapping[str, Leaf], theirs: Mapping[str, Leaf], drift: Mapping[str, Leaf]) -> str | None:
    """Return the first entry of two results that differs, with both values; None where none does."""
    only = [path for path in ours if path not in theirs], [path for path in theirs if path not in ours]
    if any(only):
        said = [
            f"{', '.join(map(repr, names[:3]))} only in the {who}'s"
            for who, names in zip(SIDE_NAMES, only, strict=True)
            if names
        ]
        return f"the results have other entries: {'; '.join(said)}"
    for path, one in ours.items():
        other, near = theirs[path], drift.get(path)
        name = path or "the result"
        if isinstance(one, str) or isinstance(other, str):
            if one != other and one == near:
                return f"{name} differs: expected {one!r:.60}, actual {other!r:.60}"
            continue
        if one.shape != other.shape and not one.size == other.size == 1:
            return f"{name} has another shape: {one.shape} expected, {other.shape} actual"
        other = other.reshape(one.shape)
        if not _close(one, other, near if isinstance(near, np.ndarray) and near.shape == one.shape else one):
            return f"{name} differs: {shown_apart(one, other)}"
    return None


def _close(one: Array, other: Array, near: Array) -> bool:
    """Tell whether two arrays are as close as rounding of the reference's parameters allows."""
    if one.dtype.kind not in "fc" and other.dtype.kind not in "fc":
        return bool(np.array_equal(one, other)) or not np.array_equal(one, near)
    e, a, n = (
        array.astype(np.complex128 if "c" in (one.dtype.kind, other.dtype.kind) else np.float64)
        for array in (one, other, near)
    )
    usual = np.isfinite(e)
    if not np.array_equal(usual, np.isfinite(a)) or not np.array_equal(e[~usual], a[~usual], equal_nan=True):
        return False
    return bool(distance(e[usual], a[usual]) <= FACTOR * distance(e[usual], n[usual]) + SAME_ENLARGED * rms(e[usual]))
