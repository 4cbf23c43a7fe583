"""The diagnosis of a failed alignment: what was found in the live models, put beside the verdicts that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipchain.errors import RecordError
from tipchain.explain.findings import PIECES, Diagnosis, SourceLine, read_diagnosis
from tipchain.outcome import Outcome
from tipchain.stage_table import INFO, STAGES

if TYPE_CHECKING:
    from tipchain.numbers.verdicts import Verdict

LATEST = "log_reprod"
"""The folder of a run that holds its dumps, and the report of its alignment."""
UNKNOWN = "unknown"
"""The code of a cause that only says where it is."""
MODEL = "model"
CASE_STAGES = {"schedule": "lr", "step": "train", "predict": "inference"}
"""A case's stage of what live models have another name for."""
NOT_FOUND = "the live models, run in float64, show no difference in layers, loss, optimizer, data or metric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """What is known of why a run failed.

    Attributes:
        diagnoses: the causes, in the order of the stages.
        undiagnosed: why nothing, or not all, is known; "" where all is.
        interrupted: whether the user ended the search before its time.
    """

    diagnoses: tuple[Diagnosis, ...] = ()
    undiagnosed: str = ""
    interrupted: bool = False


def stage_of(verdict: Verdict) -> str:
    """Return the stage that a verdict belongs to."""
    return verdict.subject.partition("/")[0]


def diagnose_run(verdicts: Sequence[Verdict], document: Mapping[str, Any], root: Path) -> Diagnosed:
    """Return what the live models' report tells about a run's failed verdicts.

    A verdict is told to follow from the cause that its own stage has, else from the first cause, in the order of the
    stages, that its stage depends on.

    Args:
        verdicts: of the run.
        document: the JSON of `tipchain.live.report.AlignmentReport`.
        root: the project's folder; lines of files below it are told relative to it.
    """
    failed: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.FAIL:
            failed.setdefault(stage_of(verdict), []).append(verdict.subject)
    live = sorted(_causes(document), key=lambda one: (one.code == UNKNOWN, _number(_stage_of_case(one, failed))))
    causes = [_of_run(one, failed, root) for one in live]
    follow: dict[int, list[str]] = {}
    left: list[str] = []
    for stage, subjects in failed.items():
        reaching = [number for number, one in enumerate(causes) if reaches(one, stage)]
        own = [number for number in reaching if CASE_STAGES.get(live[number].stage, live[number].stage) == stage]
        first = min(own or reaching, key=lambda number: _number(causes[number].stage), default=None)
        if first is None:
            left.append(stage)
        else:
            follow.setdefault(first, []).extend(subjects)
    told = tuple(replace(one, explains=tuple(follow.get(number, ()))) for number, one in enumerate(causes))
    errors = "; ".join(
        f"{stage}: {document.get('reasons', {}).get(stage, '')}"
        for stage, outcome in document["stages"].items()
        if outcome == Outcome.ERROR.value
    )
    if not left and told:
        return Diagnosed(diagnoses=told)
    reason = errors or NOT_FOUND
    return Diagnosed(diagnoses=told, undiagnosed=f"{', '.join(left)}: {reason}" if told else reason)


def _causes(document: Mapping[str, Any]) -> list[Diagnosis]:
    """Return the causes of a live report; a stage that failed without one is a cause that is not known."""
    causes = [read_diagnosis(one) for one in document.get("diagnoses", ())]
    for stage, outcome in document["stages"].items():
        of_case = CASE_STAGES.get(stage, stage)
        known = any(stage in ("preflight", one.stage) or reaches(one, of_case) for one in causes)
        if outcome == Outcome.FAIL.value and not known:
            reason = str(document.get("reasons", {}).get(stage, ""))
            piece = stage if stage in PIECES else ""
            causes.append(
                Diagnosis(
                    code=UNKNOWN,
                    port_path=piece,
                    message=f"{stage}: {reason}",
                    evidence="no cause was found",
                    explained=None,
                    fix="",
                    stage=stage,
                )
            )
    return causes


def diagnose_chain(run: Path) -> Diagnosed:
    """Return what the reports of a chain's alignments tell, which lie in the run's folder; unreadable ones tell nothing."""
    from tipchain.report.model import load_report

    diagnoses: list[Diagnosis] = []
    reasons: list[str] = []
    for file in sorted(run.glob(f"{LATEST}/alignment*.json")):
        try:
            report = load_report(file)
        except RecordError as error:
            reasons.append(str(error))
            continue
        diagnoses += report.diagnoses
        reasons += [report.undiagnosed] if report.undiagnosed else []
    diagnoses.sort(key=lambda one: _number(one.stage))
    return Diagnosed(diagnoses=tuple(diagnoses), undiagnosed="; ".join(dict.fromkeys(reasons)))


def rediagnose(folder: Path, verdicts: Sequence[Verdict]) -> Diagnosed:
    """Return what the run that left the dumps in ``folder`` knows of its failures, for verdicts by other tolerances."""
    stored = diagnose_chain(folder.parent if folder.name == LATEST else folder)
    causes, left = list(stored.diagnoses), []
    follow: dict[int, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is not Outcome.FAIL:
            continue
        known = [number for number, one in enumerate(causes) if verdict.subject in one.explains]
        known += [number for number, one in enumerate(causes) if reaches(one, stage_of(verdict))]
        if known:
            follow.setdefault(known[0], []).append(verdict.subject)
        else:
            left.append(stage_of(verdict))
    told = tuple(replace(causes[number], explains=tuple(subjects)) for number, subjects in sorted(follow.items()))
    reason = stored.undiagnosed or "not looked for: judging runs nothing"
    return Diagnosed(diagnoses=told, undiagnosed=reason if left else "")


def reaches(cause: Diagnosis, stage: str) -> bool:
    """Tell whether a stage's result depends on what a cause is about."""
    info = INFO.get(stage)
    piece = cause.port_path if cause.port_path in PIECES else MODEL
    if info is None or info.solo:
        return info is not None and (piece, stage) == ("predict", "inference")
    trains = "optimizer" in info.builders and "weights" in info.uses
    depends = {
        MODEL: "weights" in info.uses and (trains or cause.stage != "backward"),
        "scheduler": "scheduler" in info.builders or trains,
        "data": "eval_data" in info.uses,
        "train_data": "train_data" in info.uses,
        "step": trains,
    }
    return depends.get(piece, piece in info.builders)


def _of_run(cause: Diagnosis, failed: Iterable[str], root: Path) -> Diagnosis:
    """Return a cause with the run's name of its stage, and files told from the project's root."""
    return replace(
        cause,
        stage=_stage_of_case(cause, failed),
        place=_below(cause.place, root),
        reference_place=_below(cause.reference_place, root),
    )


def _stage_of_case(cause: Diagnosis, failed: Iterable[str]) -> str:
    """Return the run's name of a cause's stage; where that did not fail, the first that did and depends on the cause."""
    stage = CASE_STAGES.get(cause.stage, cause.stage)
    if stage in failed:
        return stage
    return next((one for one in STAGES if one in failed and reaches(cause, one)), stage)


def _below(place: SourceLine | None, root: Path) -> SourceLine | None:
    if place is None or not Path(place.file).is_relative_to(root.resolve()):
        return place
    return replace(place, file=Path(place.file).relative_to(root.resolve()).as_posix())


def _number(stage: str) -> int:
    return STAGES.index(stage) if stage in STAGES else len(STAGES)
