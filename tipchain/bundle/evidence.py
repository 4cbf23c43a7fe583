"""What two bundles of one case say about each other: is the difference rounding, or is the reference another one?

Of stages that run the network, the float64 truths decide: where they agree, both references compute the same function,
and their float32 dumps differ by rounding, whatever its size. A dump may still be worse than the other (another
precision, a broken kernel): so its own error against float64 is held against the old one's. A training is held
against its envelope, and its final metrics by the equivalence test. Where no float64 was recorded, as of data, numbers
must be equal to a few units in the last place.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.bundle.manifest import DUMPS, TRUTH, Manifest
from tipchain.bundle.numbers import (
    Arrays,
    Truths,
    compare_truths,
    group_of,
    mismatch,
    own_error,
    same,
    within_last_places,
)
from tipchain.bundle.training import judge_training
from tipchain.outcome import Outcome
from tipchain.parity.judging import judge_dumps
from tipchain.parity.judging.base import Dumps, Rules, details
from tipchain.parity.judging.tensor_file import TensorFile
from tipchain.parity.names import dump_name, tensors_name
from tipchain.parity.record import Record, load_record
from tipchain.parity.stages.truth import NOISE
from tipchain.stage_table import SOLO

OWN_ERROR_FACTOR = 4.0
"""How many times the old dump's error against float64 the new one's may be."""
OWN_ERROR_FLOOR = 4 * float(np.finfo(np.float32).eps)
"""Errors below this share of the largest value are no worse than one another."""
DRAWN = {"init": ("",), "train_data": ("draw/", "pixels/", "order_", "sizes_", "repeat")}
"""What the names of random draws begin with: these are equal as distributions only, which the stage's own tests tell."""
GRADIENT_NOISE = "gradient_noise/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was found about one stage.

    Attributes:
        stage: its name, or ``weights``.
        accepted: whether it lets the reference move.
        how: ``identical``, ``float64``, ``equivalence``, ``tests`` (the stage's own, of distributions), ``last places``,
            or ``differs``.
        reason: one sentence.
        figures: the numbers behind it.
    """

    stage: str
    accepted: bool
    how: str
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two bundles."""

    folder: Path
    manifest: Manifest


def compare_bundles(old: Side, new: Side, rules: Rules) -> list[Evidence]:
    """Return the evidence, stage by stage of the old bundle.

    Args:
        old: the reference in use.
        new: the one that shall take its place.
        rules: the case's, for the factor of the envelope and the margin of the metrics.

    Raises:
        RecordError: a file of a bundle cannot be read.
    """
    stages = [stage for stage in old.manifest.stages if stage not in SOLO]
    found = [_judge(stage, old, new, rules) for stage in stages if stage in new.manifest.stages]
    absent = [stage for stage in old.manifest.stages if stage not in new.manifest.stages]
    found += [
        Evidence(stage=stage, accepted=False, how="differs", reason="the new reference has no such stage")
        for stage in absent
    ]
    return [*found, *_judge_weights(old.manifest, new.manifest, found)]


def _judge_weights(old: Manifest, new: Manifest, found: list[Evidence]) -> list[Evidence]:
    """Judge the weights where no stage did that with them."""
    left, right = (
        {
            name: (one.digest, side.files.get(one.file), side.files.get(one.torch))
            for name, one in side.weights.items()
        }
        for side in (old, new)
    )
    if left == right:
        return [Evidence(stage="weights", accepted=True, how="identical", reason="torch's weights are equal")]
    if any(one.how in ("float64", "differs") for one in found):
        return []
    return [Evidence(stage="weights", accepted=False, how="differs", reason="torch's weights are others")]


def _judge(stage: str, old: Side, new: Side, rules: Rules) -> Evidence:
    with ExitStack() as stack:
        (record, left), (record2, right) = (_load(side.folder / DUMPS, stage, stack) for side in (old, new))
        facts = _other_facts(details(record), details(record2))
        if facts:
            return Evidence(stage=stage, accepted=False, how="differs", reason=f"other {', '.join(facts)}")
        if same(left, right):
            reason = f"all {len(left)} arrays are equal bit by bit"
            return Evidence(stage=stage, accepted=True, how="identical", reason=reason)
        truths = _truths(stage, old, new, stack)
        if stage == "train":
            accepted, how, reason, figures = judge_training(
                left, right, truths, rules, samples=details(record).get("samples")
            )
            return Evidence(stage=stage, accepted=accepted, how=how, reason=reason, figures=figures)
        wrong = mismatch(left, right)
        if wrong:
            return Evidence(stage=stage, accepted=False, how="differs", reason=wrong)
        if truths is not None:
            return _judge_truths(stage, left, right, truths)
        return _judge_without(stage, left, right, (record, record2), rules, _why_none(stage, old, new))


def _load(folder: Path, stage: str, stack: ExitStack) -> tuple[Record, Arrays]:
    """Return a stage's dump, and all of its arrays, those of the safetensors file read when asked for."""
    record = load_record(folder / dump_name(stage, "torch"))
    path = folder / tensors_name(stage, "torch")
    tensors: Mapping[str, Any] = stack.enter_context(TensorFile(path)) if path.is_file() else {}
    return record, {**record.arrays, **{name: tensors[name] for name in tensors}}


def _truths(stage: str, old: Side, new: Side, stack: ExitStack) -> Truths | None:
    if any(side.manifest.truths.get(stage, "none") for side in (old, new)):
        return None
    arrays, noises = [], []
    for side in (old, new):
        _, both = _load(side.folder / TRUTH, stage, stack)
        arrays.append({name: one for name, one in both.items() if not name.startswith(NOISE)})
        noises.append(
            {name.removeprefix(NOISE): float(one) for name, one in both.items() if name.startswith(NOISE)}
        )
    return Truths(old=arrays[0], new=arrays[1], noise=(noises[0], noises[1]))


def _why_none(stage: str, old: Side, new: Side) -> str:
    for word, side in (("old", old), ("new", new)):
        reason = side.manifest.truths.get(stage, "")
        if reason:
            return f"the {word} reference has no float64: {reason}"
    return ""


def _judge_truths(stage: str, left: Arrays, right: Arrays, truths: Truths) -> Evidence:
    """Judge by float64: the same function, and no larger rounding."""
    worst, name, wrong = compare_truths(truths)
    figures = {"float64 difference, of what is allowed": worst}
    if wrong or not worst <= 1:
        reason = wrong or f"float64 differs: {name} by {worst:.3g} times what rounding there allows"
        return Evidence(stage=stage, accepted=False, how="differs", reason=reason, figures=figures)
    names = [name for name in left if _tells_own_error(stage, name)]
    before, after = own_error(left, truths.old, names), own_error(right, truths.new, names)
    noise = [float(left[one]) for one in left if GRADIENT_NOISE in one]
    scale = max((float(np.abs(left[one]).max(initial=0)) for one in names if "gradient/" in one), default=0.0)
    moved = float(np.sqrt(np.mean(np.square(noise)))) / scale if noise and scale > 0 else 0.0
    limit = OWN_ERROR_FACTOR * max(before, moved, OWN_ERROR_FLOOR)
    figures |= {"old error": before, "new error": after}
    if not after <= limit:
        reason = (
            f"float64 agrees, but the new dump is {after:.3g} away from it, the old one {before:.3g} "
            f"(allowed {limit:.3g}): another precision, or a wrong kernel"
        )
        return Evidence(stage=stage, accepted=False, how="differs", reason=reason, figures=figures)
    reason = (
        f"rounding: float64 agrees ({worst:.2g} of what is allowed); against it the old dump's error is {before:.2g}, "
        f"the new one's {after:.2g}"
    )
    return Evidence(stage=stage, accepted=True, how="float64", reason=reason, figures=figures)


def _tells_own_error(stage: str, name: str) -> bool:
    """Tell whether an array's error is of one pass through the network: after updates rounding has grown."""
    if stage != "backward":
        return True
    return name.endswith("loss_0") or group_of(name).endswith("gradient")


def _judge_without(
    stage: str, left: Arrays, right: Arrays, records: tuple[Record, Record], rules: Rules, why: str
) -> Evidence:
    """Judge a stage that has no float64."""
    drawn = [name for name in left if name.startswith(DRAWN.get(stage, ("/",)))]
    fixed = [name for name in left if name not in drawn]
    worst, name = within_last_places({one: left[one] for one in fixed}, right)
    figures = {"difference, of what is allowed": worst}
    also = f"; {why}" if why else ""
    if not worst <= 1:
        reason = f"{name} differs by {worst:.3g} times what a few units in the last place come to{also}"
        return Evidence(stage=stage, accepted=False, how="differs", reason=reason, figures=figures)
    if not drawn or same({one: left[one] for one in drawn}, {one: right[one] for one in drawn}):
        reason = f"equal to a few units in the last place ({worst:.2g} of what is allowed){also}"
        return Evidence(stage=stage, accepted=True, how="last places", reason=reason, figures=figures)
    dumps = Dumps(stage=stage, reference=records[0], port=records[1], reference_path=Path(), port_path=Path())
    bad = [v for v in judge_dumps(dumps, rules).verdicts if v.outcome in (Outcome.FAIL, Outcome.ERROR)]
    if bad:
        reason = f"{bad[0].subject}: {bad[0].reason}"
        return Evidence(stage=stage, accepted=False, how="differs", reason=reason, figures=figures)
    reason = "other random numbers, of the same distributions by the stage's own tests"
    return Evidence(stage=stage, accepted=True, how="tests", reason=reason, figures=figures)


def _other_facts(left: Any, right: Any, path: str = "") -> list[str]:
    """Return the paths of facts that differ and are no floats: those round, as the arrays they come from."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        names = [name for name in left if name in right]  # another version of tipchain may tell more
        return [
            one
            for name in names
            for one in _other_facts(left[name], right[name], f"{path}.{name}" if path else str(name))
        ]
    if isinstance(left, float) and isinstance(right, float):
        return []
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = zip(left, right, strict=True)
        return [path] if any(_other_facts(one, other, path) for one, other in pairs) else []
    return [] if left == right else [path]
