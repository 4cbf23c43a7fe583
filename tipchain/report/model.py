"""A run's report: what every renderer shows, and the only place where a run's exit code is computed; as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipchain.chain.result import Result, number_json, parse_result, result_json
from tipchain.errors import RecordError
from tipchain.explain.findings import diagnosis_json, read_diagnosis
from tipchain.json_text import parse_json
from tipchain.outcome import ExitCode, Outcome, exit_code

if TYPE_CHECKING:
    from tipchain.explain.findings import Diagnosis
    from tipchain.numbers.verdicts import Verdict


# A run's report: what every renderer shows, and the only place where a run's exit code is computed.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A chain's results, an alignment's verdicts, or both.

    Attributes:
        title: what ran: the parameter file or the case.
        mode: the mode's name.
        chain: the kind of chain (`tipchain.chain.kinds`); "" for alignments, and in reports of earlier tipchains.
        run: the run's folder, as shown to the user; "" where there is none.
        started: local time as ISO 8601.
        seconds: wall time.
        versions: name to version of what the run rests on.
        where: machine, processor, GPUs, commit by name, as `tipchain.nightly.machine.origin` has them; empty in
            reports of earlier tipchains.
        models: what ran: ``reference`` and ``port``, or ``model``, each with what builds it; empty where that is not known.
        results: how the commands ended.
        verdicts: judgements about tensors.
        diagnoses: what makes verdicts fail, in the order of the stages, each with the verdicts that follow from it.
        undiagnosed: why nothing, or not all, was looked for where verdicts failed; "" where all was.
        notes: what was left out and why.
        interrupted: whether the user interrupted the run.
        page: its page as shown to the user; "" where none was written.
    """

    title: str
    mode: str
    run: str
    started: str
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    undiagnosed: str = ""
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    page: str = ""
    chain: str = ""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes of all results and verdicts."""
        return (*(result.outcome for result in self.results), *(verdict.outcome for verdict in self.verdicts))

    @property
    def exit_code(self) -> ExitCode:
        """The program's exit code."""
        return ExitCode.INTERRUPTED if self.interrupted else exit_code(self.outcomes)


# RunReports as JSON, and back.


FORMAT = 1
FILE_NAME = "report.json"


def dump_report(report: RunReport) -> str:
    """Return ``report`` as JSON text."""
    # One result after the other: as values, all of a long chain's would need many times the text's memory.
    results = [_text(result_json(result)).replace("\n", "\n  ") for result in report.results]
    rest = _text(report_json(replace(report, results=()), exit_code=report.exit_code))
    listed = "[\n  " + ",\n  ".join(results) + "\n ]" if results else "[]"
    return rest.replace('"results": []', f'"results": {listed}', 1) + "\n"


def _text(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)


def report_json(report: RunReport, exit_code: int | None = None) -> dict[str, Any]:
    """Return ``report`` as JSON values; the exit code is there for readers, it is computed anew on loading."""
    return {
        "format": FORMAT,
        "title": report.title,
        "mode": report.mode,
        **({"chain": report.chain} if report.chain else {}),
        "run": report.run,
        "started": report.started,
        "seconds": number_json(report.seconds),
        "versions": dict(report.versions),
        # Left out where it is not known: the history tells reports apart by this document.
        **({"where": dict(report.where)} if report.where else {}),
        **({"models": dict(report.models)} if report.models else {}),
        **({"page": report.page} if report.page else {}),
        "exit_code": int(report.exit_code if exit_code is None else exit_code),
        "interrupted": report.interrupted,
        "notes": list(report.notes),
        "results": [result_json(result) for result in report.results],
        "verdicts": _verdicts_json(report.verdicts),
        **({"diagnoses": [diagnosis_json(one) for one in report.diagnoses]} if report.diagnoses else {}),
        **({"undiagnosed": report.undiagnosed} if report.undiagnosed else {}),
    }


def load_report(path: Path) -> RunReport:
    """Return the report in ``path``, a report file or the folder of a chain's or an alignment's run.

    Raises:
        RecordError: no report is there, or the file is not one.
    """
    file = _report_file(path) if path.is_dir() else path
    try:
        data = parse_json(file.read_bytes())
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}", file=file, expected="a run's report") from error
    except ValueError as error:
        raise RecordError(f"is not JSON: {error}", file=file, expected="a run's report") from error
    try:
        return parse_report(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"is not a run's report: {type(error).__name__} {error}", file=file) from error


def _report_file(run: Path) -> Path:
    """Return the report in a run's folder: the chain's, else that of the one alignment there."""
    file = run / FILE_NAME
    if file.is_file():
        return file
    alignments = sorted([*run.glob("alignment*.json"), *run.glob("log_reprod/alignment*.json")])
    if len(alignments) == 1:
        return alignments[0]
    if alignments:
        raise RecordError(
            "holds several reports", file=run, found=", ".join(one.name for one in alignments), expected="one of them"
        )
    runs = sorted(one.name for one in run.glob("runs/*/"))
    raise RecordError(
        "holds no report",
        file=run,
        expected="the folder of a run, or its report.json or alignment.json",
        hint=f"the latest run is {run / 'runs' / runs[-1]}" if runs else None,
    )


def parse_report(data: Mapping[str, Any]) -> RunReport:
    """Return the report of JSON values.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: they are none.
    """
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r}, expected {FORMAT}")
    return RunReport(
        title=str(data["title"]),
        mode=str(data["mode"]),
        chain=str(data.get("chain", "")),
        run=str(data["run"]),
        started=str(data["started"]),
        seconds=float(data["seconds"]),
        versions={str(name): str(version) for name, version in data["versions"].items()},
        where={str(name): value for name, value in data.get("where", {}).items()},
        models={str(side): str(name) for side, name in data.get("models", {}).items()},
        page=str(data.get("page", "")),
        results=tuple(parse_result(item) for item in data["results"]),
        verdicts=_parse_verdicts(data["verdicts"]),
        diagnoses=tuple(read_diagnosis(item) for item in data.get("diagnoses", ())),
        undiagnosed=str(data.get("undiagnosed", "")),
        notes=tuple(str(note) for note in data["notes"]),
        interrupted=bool(data["interrupted"]),
    )


def _verdicts_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    if not verdicts:
        return []  # a chain's report needs no numpy
    from tipchain.numbers.verdicts import render_verdicts

    return render_verdicts(verdicts)


def _parse_verdicts(documents: Sequence[Mapping[str, Any]]) -> tuple[Verdict, ...]:
    if not documents:
        return ()
    from tipchain.numbers.verdicts import parse_verdicts

    return tuple(parse_verdicts(documents))
