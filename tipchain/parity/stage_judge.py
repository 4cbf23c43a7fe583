"""Judge one stage from its two dumps. Nothing is run: the same files can be judged again."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from tipchain.errors import InputError, did_you_mean
from tipchain.numbers.dumps import Record, load_record
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import Verdict
from tipchain.outcome import Outcome
from tipchain.parity.case_types import SIDES, KnownDeviation
from tipchain.parity.publish import dump_name
from tipchain.parity.stages import judge_dumps
from tipchain.parity.stages.judging import BENCHMARK, Dumps, Rules
from tipchain.stage_table import INFO

__all__ = ["BENCHMARK", "Rules", "StageJudgement", "case_of", "foreign", "judge_stage"]


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


def judge_stage(stage: str, folder: Path, rules: Rules) -> StageJudgement:
    """Compare the dumps of one stage.

    Args:
        stage: the stage's name.
        folder: where both dumps lie.
        rules: tolerances and known deviations.

    Returns:
        The verdicts; a dump that is unreadable, missing or not what its stage records is an ERROR, never a pass.
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
    notes = tuple(
        f"{paths[side].name} has no JSON beside it: its inputs were not checked"
        for side in paths
        if not records[side].meta
    )
    commits = {side: records[side].meta.get("commit") for side in paths}
    if all(commits.values()) and len(set(commits.values())) > 1:
        told = ", ".join(f"{side} {commits[side]}" for side in paths)
        notes = (*notes, f"the dumps were recorded at different commits: {told}")
    dumps = Dumps(
        stage=stage,
        reference=records["torch"],
        port=records["paddle"],
        reference_path=paths["torch"],
        port_path=paths["paddle"],
    )
    try:
        judged = judge_dumps(dumps, rules)
    except Exception as error:  # noqa: BLE001  (one stage's odd dump must not take the other stages' verdicts away)
        traceback.print_exc()
        return _failed(stage, "dump", f"cannot be judged: {type(error).__name__}: {error}")
    verdicts = [_deviate(verdict, rules.deviations) for verdict in judged.verdicts]
    return StageJudgement(
        stage=stage,
        verdicts=(*verdicts, *_lost_deviations(stage, verdicts, rules.deviations)),
        tolerances=judged.tolerances,
        notes=notes + judged.notes,
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
    sides = (side, INFO[stage].reference) if side == "torch" else (side,)
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


def _deviate(verdict: Verdict, deviations: Iterable[KnownDeviation]) -> Verdict:
    """Turn a known deviation into a SKIP with its reason, and one that stopped deviating into a FAIL."""
    for deviation in deviations:
        if deviation.subject != verdict.subject:
            continue
        if verdict.outcome is Outcome.FAIL:
            if not _is_finite(verdict):
                return replace(verdict, reason=f"{verdict.reason}; no known deviation covers NaN or Inf")
            return replace(
                verdict, outcome=Outcome.SKIP, reason=f"known deviation: {deviation.reason} ({verdict.reason})"
            )
        if verdict.outcome is Outcome.PASS:
            reason = f"the known deviation is gone: {deviation.reason}; remove it from known_deviations"
            return replace(verdict, outcome=Outcome.FAIL, reason=reason)
    return verdict


def _is_finite(verdict: Verdict) -> bool:
    diff = verdict.diff
    return verdict.finite and (diff is None or not diff.size or isfinite(diff.max_abs))


def _lost_deviations(
    stage: str, verdicts: Iterable[Verdict], deviations: Iterable[KnownDeviation]
) -> Iterator[Verdict]:
    """Yield an ERROR for every known deviation of the stage that no verdict is about."""
    subjects = {verdict.subject for verdict in verdicts}
    for deviation in deviations:
        if deviation.subject.startswith(f"{stage}/") and deviation.subject not in subjects:
            hint = did_you_mean(deviation.subject, subjects)
            reason = "known_deviations names it, but nothing of that name was compared"
            yield Verdict(
                outcome=Outcome.ERROR, subject=deviation.subject, reason=f"{reason}, {hint}" if hint else reason
            )
