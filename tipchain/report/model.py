"""A run's report: the base of every renderer, its JSON, its exit code, and why it failed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.chain.plan import Result, result_json
from tipchain.core.json_text import Json, JsonObject, as_json, parse_as, read_json
from tipchain.errors import BAD, ExitCode, Outcome, RecordError, exit_code
from tipchain.explain.findings import PIECES, Diagnosis, SourceLine
from tipchain.modes import INFO, LATEST, PREFLIGHT, STAGES

if TYPE_CHECKING:
    from tipchain.numbers.verdicts import Verdict
else:
    Verdict = object  # its module needs numpy, and a chain's report has none


MODEL = "model"
CASE_STAGES = {"schedule": "lr", "step": "train", "predict": "inference"}
"""A case's name of a stage that live models call otherwise."""
NIGHT_KIND = "night"
"""The kind of chain of a night, whose commands are its items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """The known reasons of a run's failure.

    Attributes:
        diagnoses: the causes, in the order of the stages.
        undiagnosed: why nothing, or not all, is known; "" where all is.
    """

    diagnoses: tuple[Diagnosis, ...] = ()
    undiagnosed: str = ""


def stage_of(verdict: Verdict) -> str:
    """Return the stage that a verdict belongs to."""
    return verdict.subject.partition("/")[0]


def diagnose_run(verdicts: Sequence[Verdict], document: JsonObject, root: Path) -> Diagnosed:
    """Return the live models' diagnosis of a run's failed verdicts.

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
    live = sorted(_causes(document), key=lambda one: (not one.is_known, _number(_stage_of_case(one, failed))))
    causes = [
        replace(
            one,
            stage=_stage_of_case(one, failed),
            place=_below(one.place, root),
            reference_place=_below(one.reference_place, root),
        )
        for one in live
    ]
    follow: dict[int, list[str]] = {}
    left: list[str] = []
    findings = parse_as(tuple[Diagnosis, ...], document.get("findings", []), lenient=True)
    built = {one.port_path for one in findings if one.port_path and not one.harmless}
    for stage, subjects in failed.items():
        reaching = [
            number
            for number, one in enumerate(causes)
            if (stage == PREFLIGHT and built & {*one.layers}) or reaches(one, stage)
        ]
        own = [number for number in reaching if CASE_STAGES.get(live[number].stage, live[number].stage) == stage]
        ranked = [(_is_far(causes[number], stage), _number(causes[number].stage), number) for number in own or reaching]
        first = min(ranked)[2] if ranked else None
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
    passed = ", ".join(stage for stage, outcome in document["stages"].items() if outcome == Outcome.PASS.value)
    unseen = f"both models in one process show no difference in {passed}" if passed else "no live stage tells of it"
    reason = errors or unseen
    return Diagnosed(diagnoses=told, undiagnosed=f"{', '.join(left)}: {reason}" if told else reason)


def _causes(document: JsonObject) -> list[Diagnosis]:
    """Return the causes of a live report; a stage that failed without one is a cause that is not known."""
    causes = [*parse_as(tuple[Diagnosis, ...], document.get("diagnoses", []), lenient=True)]
    for stage, outcome in document["stages"].items():
        of_case = CASE_STAGES.get(stage, stage)
        known = any(stage in ("preflight", one.stage) or reaches(one, of_case) for one in causes)
        if outcome == Outcome.FAIL.value and not known:
            reason = str(document.get("reasons", {}).get(stage, ""))
            causes.append(
                Diagnosis(
                    code="parting",
                    port_path=stage if stage in PIECES else "",
                    message=f"{stage}: {reason}",
                    evidence="no cause was found",
                    fix="",
                    stage=stage,
                )
            )
    return causes


def diagnose_chain(run: Path) -> Diagnosed:
    """Return the diagnosis in the reports of a chain's alignments, which lie in the run's folder; unreadable ones tell nothing.

    A cause that several of them found is told once, with all checks that follow from it.
    """
    found: list[Diagnosis] = []
    reasons: list[str] = []
    for file in sorted(run.glob(f"{LATEST}/alignment*.json")):
        try:
            report = load_report(file)
        except RecordError as error:
            reasons.append(str(error))
            continue
        found += report.diagnoses
        reasons += [report.undiagnosed] if report.undiagnosed else []
    causes: dict[object, Diagnosis] = {}
    for one in sorted(found, key=lambda one: _number(one.stage)):
        key = (one.code, one.port_path, one.message, one.fix, one.place)
        known = causes.setdefault(key, one)
        if known is not one:
            causes[key] = replace(known, explains=tuple(dict.fromkeys((*known.explains, *one.explains))))
    return Diagnosed(diagnoses=tuple(causes.values()), undiagnosed="; ".join(dict.fromkeys(reasons)))


def rediagnose(folder: Path, verdicts: Sequence[Verdict]) -> Diagnosed:
    """Return the failures that the run of ``folder``'s dumps knows, for verdicts by other tolerances."""
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
    """Tell whether a stage's result depends on a cause's subject."""
    if stage == PREFLIGHT:
        return cause.stage == PREFLIGHT
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


def _stage_of_case(cause: Diagnosis, failed: Iterable[str]) -> str:
    """Return the run's name of a cause's stage; where that did not fail, the first that did and depends on the cause."""
    stage = CASE_STAGES.get(cause.stage, cause.stage)
    if stage in failed:
        return stage
    reached = [one for one in STAGES if one in failed and reaches(cause, one)]
    return min(reached, key=lambda one: _is_far(cause, one), default=stage)


def _is_far(cause: Diagnosis, stage: str) -> bool:
    """Tell whether a stage needs a cause's subject, but shows little of it: of an optimizer the rates show the first alone."""
    return (cause.port_path, stage) == ("optimizer", "lr")


def _below(place: SourceLine | None, root: Path) -> SourceLine | None:
    if place is None or not Path(place.file).is_relative_to(root.resolve()):
        return place
    return replace(place, file=Path(place.file).relative_to(root.resolve()).as_posix())


def _number(stage: str) -> int:
    if stage == PREFLIGHT:
        return -1
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A chain's results, an alignment's verdicts, or both.

    Attributes:
        title: what ran: the parameter file or the case.
        mode: the mode's name.
        chain: the kind of chain (`tipchain.chain.kinds`), or `NIGHT_KIND`; "" for alignments, and in reports of earlier tipchains.
        run: the run's folder, as shown to the user; "" where there is none.
        started: local time as ISO 8601.
        seconds: wall time.
        versions: name to version of what the run rests on.
        where: machine, processor, GPUs, commit by name, as `tipchain.nightly.origin.origin` has them; empty in
            reports of earlier tipchains.
        models: what ran: ``reference`` and ``port``, or ``model``, each with what builds it; empty where that is not known.
        call: a chain's command line, the words behind file and mode that decide what is run.
        results: how the commands ended.
        verdicts: judgements about tensors.
        diagnoses: what makes verdicts fail, in the order of the stages, each with the verdicts that follow from it.
        undiagnosed: why nothing, or not all, was looked for where verdicts failed; "" where all was.
        notes: what was left out and why.
        interrupted: whether the user interrupted the run.
        stages: the stages that the alignment's case has in this mode; those of ``verdicts`` may be some of them.
        uncompared: what the alignment could not compare, and no other check covers, each with its reason.
        page: its page as shown to the user; "" where none was written.
        stated: the exit code that its file tells; None of one that was read from no file.
    """

    title: str = ""
    mode: str = ""
    run: str = ""
    started: str = ""
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    where: JsonObject = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    call: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    undiagnosed: str = ""
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    stages: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    page: str = ""
    chain: str = ""
    stated: int | None = field(default=None, compare=False)

    @property
    def word(self) -> str:
        """The outcome in one word: PASS, ACCEPTED, FAIL, ERROR, INCONCLUSIVE or INTERRUPTED."""
        code = self.exit_code
        if code is ExitCode.PASSED:
            return "ACCEPTED" if any(one.accepted for one in self.verdicts) else "PASS"
        if code is ExitCode.FAILED:
            failed = Outcome.FAIL in self.outcomes or any(one.outcome in BAD for one in self.results)
            return "FAIL" if failed else "ERROR"
        return "INTERRUPTED" if self.interrupted else "INCONCLUSIVE"

    @property
    def parts(self) -> list[tuple[str, Outcome, str]]:
        """The subjects of all results and verdicts, how they came out, and why."""
        results = [(one.command.id, one.outcome, one.reason) for one in self.results]
        return results + [(one.subject, one.outcome, one.reason) for one in self.verdicts]

    @property
    def causes(self) -> tuple[Diagnosis, ...]:
        """Why it failed: the causes that verdicts fail because of first."""
        return tuple(sorted(self.diagnoses, key=lambda one: not one.explains))

    @property
    def cause(self) -> Diagnosis | None:
        """The cause that comes first: one that failed verdicts follow from, before those of which none is known to."""
        return next(iter(self.causes), None)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes of all results and verdicts."""
        return tuple(outcome for _, outcome, _ in self.parts)

    @property
    def exit_code(self) -> ExitCode:
        """The program's exit code."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        code = exit_code(self.outcomes)
        return ExitCode.NOTHING_CHECKED if self.uncompared and code is ExitCode.PASSED else code


# RunReports as JSON, and back.


FORMAT = 1
FILE_NAME = "report.json"


def dump_report(report: RunReport) -> str:
    """Return ``report`` as JSON text, with its verdict as a word and as a sentence."""
    from tipchain.report.terminal import verdict_line  # which tells of this module's reports

    # One result after the other: as values, all of a long chain's would need many times the text's memory.
    results = [_text(result_json(result)).replace("\n", "\n  ") for result in report.results]
    head = {"format": FORMAT, "outcome": report.word, "verdict": verdict_line(report)}
    rest = _text({**head, **report_json(replace(report, results=()), exit_code=report.exit_code)})
    listed = "[\n  " + ",\n  ".join(results) + "\n ]" if results else "[]"
    return rest.replace('"results": []', f'"results": {listed}', 1) + "\n"


def _text(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)


LEFT_OUT = ("chain", "where", "models", "call", "page", "diagnoses", "undiagnosed", "stages", "uncompared")
"""Keys that the JSON lacks where they are not known: the history tells reports apart by this document."""


def report_json(report: RunReport, exit_code: int | None = None) -> dict[str, object]:
    """Return ``report`` as JSON values; the exit code is there for readers, it is computed anew on loading."""
    verdicts: Json = []
    if report.verdicts:  # a chain's report needs no numpy
        from tipchain.numbers.verdicts import render_verdicts

        verdicts = render_verdicts(report.verdicts)
    whole: dict[str, Json] = {
        "format": FORMAT,
        **as_json(replace(report, results=(), verdicts=())),
        "results": [result_json(result) for result in report.results],
        "verdicts": verdicts,
        "exit_code": int(report.exit_code if exit_code is None else exit_code),
    }
    del whole["stated"]
    return {name: value for name, value in whole.items() if value or name not in LEFT_OUT}


def load_report(path: Path) -> RunReport:
    """Return the report in ``path``, a report file or the folder of a chain's or an alignment's run.

    Raises:
        RecordError: no report is there, or the file is not one.
    """
    file = report_file(path) if path.is_dir() else path
    if file is None:
        # What is named may be the output folder, or a folder in it, as that of the latest dumps.
        runs = sorted(path.glob("runs/*/")) or sorted(path.parent.glob("runs/*/"))
        raise RecordError(
            "holds no report",
            file=path,
            expected="the folder of a run, or its report.json or alignment.json",
            hint=f"the latest run is {runs[-1]}" if runs else None,
        )
    try:
        data = read_json(file)
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}", file=file, expected="a run's report") from error
    except ValueError as error:
        raise RecordError(f"is not JSON: {error}", file=file, expected="a run's report") from error
    try:
        return parse_report(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"is not a run's report: {type(error).__name__} {error}", file=file) from error


def report_file(run: Path) -> Path | None:
    """Return the report in a run's folder: the chain's, else that of the one alignment there; None without any."""
    file = run / FILE_NAME
    if file.is_file():
        return file
    alignments = sorted([*run.glob("alignment*.json"), *run.glob("log_reprod/alignment*.json")])
    if len(alignments) > 1:
        raise RecordError(
            "holds several reports", file=run, found=", ".join(one.name for one in alignments), expected="one of them"
        )
    return alignments[0] if alignments else None


def parse_report(data: JsonObject) -> RunReport:
    """Return the report of JSON values.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: they are none.
    """
    for name in report_json(RunReport()):
        if name not in data:
            raise ValueError(f"{name} is missing")
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r}, expected {FORMAT}")
    stated = parse_as(int, data["exit_code"], "exit_code")
    results = parse_as(tuple[Result, ...], data["results"], "results", lenient=True)
    verdicts: tuple[Verdict, ...] = ()
    if data["verdicts"]:  # a chain's report needs no numpy
        from tipchain.numbers.verdicts import Verdict as _Verdict

        verdicts = parse_as(tuple[_Verdict, ...], data["verdicts"], "verdicts", lenient=True)
    rest = parse_as(RunReport, {**data, "results": [], "verdicts": []}, lenient=True)
    return replace(rest, stated=stated, results=results, verdicts=verdicts)
