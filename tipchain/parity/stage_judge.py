"""Judge one stage from its two dumps. Nothing is run: the same files can be judged again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Any

from tipchain.errors import InputError, did_you_mean
from tipchain.outcome import Outcome
from tipchain.parity.case_types import SIDES, Case, KnownDeviation
from tipchain.parity.defaults import EXACT, tolerance_for, tolerances_for
from tipchain.parity.judge import Verdict, compare, vacuous
from tipchain.parity.names import dump_name
from tipchain.parity.record import Record, load_record
from tipchain.parity.tensor_judge import judge_tensors
from tipchain.parity.tolerance import Tolerance

VACUOUS_STAGES = {"forward": "*", "loss": "loss", "backward": "loss_*"}
"""Stages whose float outputs must be of a size that the threshold can tell apart from zero."""
DETAILS = {"samples": "samples evaluated", "batches": "the sides trained on different files or labels"}
"""Facts beside a dump that must be equal, with the words for it when they are not."""
BENCHMARK = "benchmark"
"""The side of a dump of published numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJudgement:
    """The verdicts of one stage, with what a reader should know besides.

    Attributes:
        tolerances: the tolerance behind each verdict, by subject.
        notes: remarks that carry no verdict.
    """

    stage: str
    verdicts: tuple[Verdict, ...]
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How to judge: the case's tolerances, or one for all float tensors of a stage."""

    own: Mapping[str, Mapping[str, Tolerance]]
    deviations: tuple[KnownDeviation, ...] = ()
    strict: bool = False
    override: Tolerance | None = None

    @classmethod
    def of(cls, case: Case, *, strict: bool = False, override: Tolerance | None = None) -> Rules:
        """Return the case's rules."""
        return cls(own=case.tolerances, deviations=case.known_deviations, strict=strict, override=override)

    def for_arrays(self, stage: str, arrays: Mapping[str, Any]) -> dict[str, Tolerance]:
        """Return the tolerance of every array of a stage's dump; whole numbers must be equal unless the case says more.

        A mean would pass a few wrong classes among a million pixels.
        """
        if self.override is not None:
            return dict.fromkeys(arrays, self.override)
        own = self.own.get(stage, {})
        tolerances = tolerances_for(stage, arrays, own, strict=self.strict)
        for key, array in arrays.items():
            if array.dtype.kind in "biu" and not any(fnmatchcase(key, pattern) for pattern in own):
                tolerances[key] = EXACT
        return tolerances

    def group(self, name: str) -> Tolerance:
        """Return the tolerance of ``gradient``, ``parameter`` or ``buffer`` tensors."""
        return tolerance_for("backward", name, self.own.get("backward", {}))


def judge_stage(stage: str, folder: Path, rules: Rules) -> StageJudgement:
    """Compare the dumps of one stage.

    Args:
        stage: the stage's name.
        folder: where both dumps lie.
        rules: tolerances and known deviations.

    Returns:
        The verdicts; an unreadable or missing dump is an ERROR verdict, never a pass.
    """
    paths = {side: folder / dump_name(stage, side) for side in SIDES}
    try:
        records = {side: load_record(path) for side, path in paths.items()}
    except InputError as error:
        return _failed(stage, "dump", str(error))
    wrong = [text for side in paths if (text := foreign(paths[side], records[side], stage, side))]
    if wrong:
        return _failed(stage, "dump", "; ".join(wrong))
    differing = _different_inputs(records["torch"], records["paddle"])
    if differing:
        return _failed(stage, "inputs", f"the dumps come from different inputs: {', '.join(differing)}")
    notes = [f"{paths[side].name} has no JSON beside it: its inputs were not checked"
             for side in paths if not records[side].meta]  # fmt: skip
    verdicts, tolerances = _judge_dump(stage, records["torch"], records["paddle"], rules)
    verdicts += _judge_details(stage, records["torch"], records["paddle"])
    if stage == "data":
        verdicts += _judge_files(records["torch"], records["paddle"])
        notes += _kept_batches(records["torch"])
    if stage == "backward":
        more, named, remarks = judge_tensors(paths["torch"], paths["paddle"], rules)
        verdicts, notes = verdicts + more, notes + remarks
        tolerances |= named
    verdicts = [_deviate(verdict, rules.deviations) for verdict in verdicts]
    return StageJudgement(
        stage=stage,
        verdicts=(*verdicts, *_lost_deviations(stage, verdicts, rules.deviations)),
        tolerances=tolerances,
        notes=tuple(notes),
    )


def case_of(folder: Path) -> Path | None:
    """Return the case file that the dumps in ``folder`` tell of, or None if they tell none that exists."""
    for path in sorted(folder.glob("*.npy.json")):
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        case = found.get("case") if isinstance(found, dict) else None
        if case and Path(case).is_file():
            return Path(case)
    return None


def _failed(stage: str, what: str, reason: str) -> StageJudgement:
    verdict = Verdict(outcome=Outcome.ERROR, subject=f"{stage}/{what}", reason=reason)
    return StageJudgement(stage=stage, verdicts=(verdict,))


def foreign(path: Path, record: Record, stage: str, side: str) -> str | None:
    """Return why a dump is not what its name says, or None; only what its JSON tells is checked."""
    sides = (side, BENCHMARK) if (stage, side) == ("train", "torch") else (side,)
    found = record.meta.get("side", side), record.meta.get("stage", stage)
    if found[0] in sides and found[1] == stage:
        return None
    return f"{path.name} holds the {found[0]} side's {found[1]} dump, not the {side} side's of {stage}"


def _different_inputs(reference: Record, port: Record) -> list[str]:
    """Return what the two dumps' inputs differ in, by name; only what both sides tell is compared."""
    left, right = reference.meta.get("inputs") or {}, port.meta.get("inputs") or {}
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return []
    return [
        f"{name} (torch {str(left[name])[:12]}, paddle {str(right[name])[:12]})"
        for name in left
        if name in right and left[name] != right[name]
    ]


def _judge_dump(
    stage: str, reference: Record, port: Record, rules: Rules
) -> tuple[list[Verdict], dict[str, Tolerance]]:
    tolerances = rules.for_arrays(stage, {**port.arrays, **reference.arrays})
    verdicts = []
    for verdict in compare(reference.arrays, port.arrays, tolerances):
        tolerance = tolerances.get(verdict.subject)
        proof = _vacuous(stage, verdict, tolerance) if tolerance is not None else None
        named = replace(verdict, subject=f"{stage}/{verdict.subject}")
        if verdict.subject not in reference.arrays and reference.side == BENCHMARK:
            named = replace(named, outcome=Outcome.SKIP, reason="no published number in the case's benchmark")
        verdicts.append(replace(named, outcome=Outcome.ERROR, reason=proof) if proof else named)
    return verdicts, {f"{stage}/{key}": tolerance for key, tolerance in tolerances.items()}


def _vacuous(stage: str, verdict: Verdict, tolerance: Tolerance) -> str | None:
    pattern = VACUOUS_STAGES.get(stage)
    if pattern is None or verdict.diff is None or verdict.outcome is not Outcome.PASS:
        return None
    return vacuous(verdict.diff, tolerance) if fnmatchcase(verdict.subject, pattern) else None


def _judge_details(stage: str, reference: Record, port: Record) -> list[Verdict]:
    """Hold against each other what both sides say about the samples and batches behind their numbers."""
    left, right = _details(reference), _details(port)
    nan = {side: facts["nan"] for side, facts in (("torch", left), ("paddle", right)) if facts.get("nan")}
    verdicts = [
        Verdict(outcome=Outcome.FAIL, subject=f"{stage}/outputs",
                reason=f"the {side} model put out {count} NaN; metrics of NaN tell nothing")
        for side, count in nan.items()
    ]  # fmt: skip
    return verdicts + [
        Verdict(outcome=Outcome.FAIL, subject=f"{stage}/{key}",
                reason=f"{words}: expected {str(left[key])[:12]}, actual {str(right[key])[:12]}")
        for key, words in DETAILS.items()
        if key in left and key in right and left[key] != right[key]
    ]  # fmt: skip


def _details(record: Record) -> Mapping[str, Any]:
    details = record.meta.get("details")
    return details if isinstance(details, Mapping) else {}


def _judge_files(reference: Record, port: Record) -> list[Verdict]:
    """Compare the file names that both loaders gave, in order."""
    subject = "data/files"
    left, right = _files(reference), _files(port)
    if left is None or right is None:
        return []
    if left == right:
        return [
            Verdict(outcome=Outcome.PASS, subject=subject, reason=f"{len(left)} file names equal, in order")
        ]
    if sorted(left) == sorted(right):
        kind = "the same files in another order"
    else:
        kind = f"{len(set(left) ^ set(right))} files on one side only"
    first = next(
        (n for n, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
        min(len(left), len(right)),
    )
    shown = [names[first] if first < len(names) else "nothing" for names in (left, right)]
    return [Verdict(outcome=Outcome.FAIL, subject=subject,
                    reason=f"{kind}; first at sample {first}: expected {shown[0]}, actual {shown[1]}")]  # fmt: skip


def _files(record: Record) -> list[str] | None:
    files = _details(record).get("files")
    return [str(name) for name in files] if isinstance(files, list) else None


def _kept_batches(record: Record) -> list[str]:
    details = _details(record)
    kept, total = details.get("batches_kept"), details.get("batches_in_all")
    return [f"the first {kept} of {total} batches were compared"] if kept != total else []


def _deviate(verdict: Verdict, deviations: Iterable[KnownDeviation]) -> Verdict:
    """Turn a known deviation into a SKIP with its reason, and one that stopped deviating into a FAIL."""
    for deviation in deviations:
        if deviation.subject != verdict.subject:
            continue
        if verdict.outcome is Outcome.FAIL:
            if verdict.diff is not None and verdict.diff.size and not isfinite(verdict.diff.max_abs):
                return replace(verdict, reason=f"{verdict.reason}; no known deviation covers NaN or Inf")
            return replace(
                verdict,
                outcome=Outcome.SKIP,
                reason=f"known deviation: {deviation.reason} ({verdict.reason})",
            )
        if verdict.outcome is Outcome.PASS:
            reason = f"the known deviation is gone: {deviation.reason}; remove it from known_deviations"
            return replace(verdict, outcome=Outcome.FAIL, reason=reason)
    return verdict


def _lost_deviations(
    stage: str, verdicts: Iterable[Verdict], deviations: Iterable[KnownDeviation]
) -> Iterator[Verdict]:
    """Yield an ERROR for every known deviation of the stage that no verdict is about."""
    subjects = {verdict.subject for verdict in verdicts}
    for deviation in deviations:
        if deviation.subject.startswith(f"{stage}/") and deviation.subject not in subjects:
            hint = did_you_mean(deviation.subject, subjects)
            reason = "known_deviations names it, but nothing of that name was compared"
            yield Verdict(outcome=Outcome.ERROR, subject=deviation.subject,
                          reason=f"{reason}, {hint}" if hint else reason)  # fmt: skip
