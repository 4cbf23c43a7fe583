"""``tipchain doctor``: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tipchain import __version__
from tipchain.commands.options import add_json, add_strict, show
from tipchain.core.language import columns, padded, say
from tipchain.core.machine import (
    ALIGNING,
    CASES,
    PROBES,
    DoctorLine,
    check_folder,
    check_framework,
    check_packages,
    check_python,
    check_threads,
)
from tipchain.errors import DataError, ExitCode, Outcome
from tipchain.modes import DATA_FOLDER, DIGITS, data_folder
from tipchain.prepare.data import KINDS, PARAMS, check_data, way_out

WITHOUT = "diff, judge, report, lint and plan"
"""What a plain installation does."""
WORDS = {Outcome.PASS: "ok", Outcome.FAIL: "BROKEN", Outcome.ERROR: "BROKEN", Outcome.SKIP: "-"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_json(parser, "the findings", once_alone=True)
    add_strict(parser, "what is not there is a failure, too")


def run(args: argparse.Namespace) -> int:
    """Examine, print, and return 1 if something is broken; what is not there counts with ``--strict`` alone."""
    findings = examine(Path.cwd())
    show(args.json, partial(document_of, findings), partial(render, findings))
    return ExitCode.FAILED if not _fit(findings) or (args.strict and missing(findings)) else ExitCode.PASSED


def missing(findings: Sequence[DoctorLine]) -> dict[str, list[str]]:
    """Return what is not there by what needs it."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        if finding.needed_for and finding.outcome is not Outcome.PASS:
            found.setdefault(finding.needed_for, []).append(finding.subject)
    return found


def examine(start: Path) -> list[DoctorLine]:
    """Look at this machine, and at the project that ``start`` lies in, if any."""
    with ThreadPoolExecutor() as pool:
        frameworks = pool.map(check_framework, PROBES)
        findings = [check_python(), *check_packages(), check_threads(), _check_ends(), _check_drop_in()]
        return [*findings, *frameworks, *_check_project(start)]


def render(findings: Sequence[DoctorLine]) -> str:
    """Return the report as text, one line per finding and one per remedy."""
    width = max(columns(say(finding.subject)) for finding in findings)
    lines = [f"tipchain {__version__}"]
    for finding in findings:
        word, subject = padded(say(WORDS[finding.outcome]), 8), padded(say(finding.subject), width)
        lines.append(f"{word} {subject}  {say(finding.detail)}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  -> {say(finding.remedy)}")
    return "\n".join([*lines, *map(say, _end(findings))])


def _end(findings: Sequence[DoctorLine]) -> list[str]:
    if not _fit(findings):
        return [f"not ready: see the lines marked {WORDS[Outcome.FAIL]}"]
    lacking = missing(findings)
    if not lacking:
        return ["ready for align and run"]
    needs = [f"{what} need {', '.join(subjects)}" for what, subjects in lacking.items()]
    return [f"ready for {WITHOUT if ALIGNING in lacking else 'align and run of your own cases'}", *needs]


def _fit(findings: Sequence[DoctorLine]) -> bool:
    return all(finding.outcome in (Outcome.PASS, Outcome.SKIP) for finding in findings)


def document_of(findings: Sequence[DoctorLine]) -> dict[str, object]:
    """Return the report for JSON: ``{"tipchain", "ready", "findings": [{subject, outcome, detail, ...}]}``."""
    rows = [{**asdict(finding), "outcome": finding.outcome.value} for finding in findings]
    return {"tipchain": __version__, "ready": _fit(findings) and not missing(findings), "findings": rows}


def _check_ends() -> DoctorLine:
    """Say whether all that a program starts can be ended with it."""
    from tipchain.chain.warden import can_adopt

    if can_adopt():
        return DoctorLine("processes", Outcome.PASS, "all that a program starts ends with it, and with tipchain")
    detail = "this system gives no orphans to an ancestor (PR_SET_CHILD_SUBREAPER): a process that leaves its group and clears its environment outlives its program"
    return DoctorLine("processes", Outcome.SKIP, detail)


def _check_drop_in() -> DoctorLine:
    from importlib import metadata

    detail = "tipchain.reprod_log stands in for reprod_log 1.0.1"
    try:
        detail += f" (installed beside it: {metadata.version('reprod-log')})"
    except metadata.PackageNotFoundError:
        detail += " (not installed, not needed)"
    return DoctorLine("reprod_log", Outcome.PASS, detail)


def _check_project(start: Path) -> list[DoctorLine]:
    root = next((place for place in (start, *start.parents) if (place / "test_tipc/configs").is_dir()), None)
    if root is None:
        return [DoctorLine("project", Outcome.SKIP, f"{start} lies in no project with a test_tipc/configs")]
    weights = root / DATA_FOLDER / "weights"
    made = sorted(path.parent for path in weights.glob("*/*/manifest.json"))
    remedy = "bash prepare.sh PARAMS MODE makes them"
    return [
        *(_check_data(root, data_set, kind) for data_set in PARAMS for kind in KINDS),
        *(check_folder("weights", folder, remedy) for folder in made or [weights]),
    ]


def _check_data(root: Path, data_set: str, kind: str) -> DoctorLine:
    folder = root / data_folder(kind, data_set)
    subject = f"{kind} data" if data_set == DIGITS else folder.name
    if not folder.exists():
        needed_for = CASES if (data_set, kind) == (DIGITS, "lite") else ""
        return DoctorLine(subject, Outcome.SKIP, "not made yet", remedy=way_out(folder.name), needed_for=needed_for)
    try:
        check_data(folder)
    except DataError as error:
        detail, remedy = f"{error.file}: {error.message}", error.hint or ""
        return DoctorLine(subject, Outcome.FAIL, detail, remedy=remedy)
    return DoctorLine(subject, Outcome.PASS, str(folder))
