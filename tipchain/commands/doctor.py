"""``tipchain doctor``: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tipchain import __version__
from tipchain.environment import (
    PROBES,
    Finding,
    check_folder,
    check_framework,
    check_packages,
    check_python,
    check_threads,
)
from tipchain.errors import DataError
from tipchain.modes import DATA_FOLDER, DIGITS, data_folder
from tipchain.outcome import ExitCode, Outcome
from tipchain.prepare.sets import KINDS, PARAMS, way_out

WORDS = {Outcome.PASS: "ok", Outcome.FAIL: "MISSING", Outcome.ERROR: "MISSING", Outcome.SKIP: "-"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Examine, print, and return 0 if ``align`` and ``run`` have all they need here, else 1."""
    findings = examine(Path.cwd())
    ready = all(finding.outcome in (Outcome.PASS, Outcome.SKIP) for finding in findings)
    print(render_json(findings, ready=ready) if args.json else render(findings, ready=ready))
    return ExitCode.PASSED if ready else ExitCode.FAILED


def examine(start: Path) -> list[Finding]:
    """Look at this machine, and at the project that ``start`` lies in, if any."""
    with ThreadPoolExecutor() as pool:
        frameworks = pool.map(check_framework, PROBES)
        findings = [check_python(), *check_packages(), check_threads(), _check_drop_in()]
        return [*findings, *frameworks, *_check_project(start)]


def render(findings: Sequence[Finding], *, ready: bool) -> str:
    """Return the report as text, one line per finding and one per remedy."""
    width = max(len(finding.subject) for finding in findings)
    lines = [f"tipchain {__version__}"]
    for finding in findings:
        lines.append(f"{WORDS[finding.outcome]:<8} {finding.subject:<{width}}  {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
    lines.append("ready for align and run" if ready else "not ready: see the lines marked MISSING")
    return "\n".join(lines)


def render_json(findings: Sequence[Finding], *, ready: bool) -> str:
    """Return the report as JSON: ``{"tipchain", "ready", "findings": [{subject, outcome, detail, remedy}]}``."""
    rows = [{**asdict(finding), "outcome": finding.outcome.value} for finding in findings]
    return json.dumps({"tipchain": __version__, "ready": ready, "findings": rows}, indent=1)


def _check_drop_in() -> Finding:
    from importlib import metadata

    detail = "tipchain.reprod_log stands in for reprod_log 1.0.1"
    try:
        detail += f" (installed beside it: {metadata.version('reprod-log')})"
    except metadata.PackageNotFoundError:
        detail += " (not installed, not needed)"
    return Finding(subject="reprod_log", outcome=Outcome.PASS, detail=detail)


def _check_project(start: Path) -> list[Finding]:
    root = next((place for place in (start, *start.parents) if (place / "test_tipc/configs").is_dir()), None)
    if root is None:
        detail = f"{start} lies in no project with a test_tipc/configs"
        return [Finding(subject="project", outcome=Outcome.SKIP, detail=detail)]
    weights = root / DATA_FOLDER / "weights"
    made = sorted(path.parent for path in weights.glob("*/*/manifest.json"))
    remedy = "bash prepare.sh PARAMS MODE makes them"
    return [
        *(_check_data(root, data_set, kind) for data_set in PARAMS for kind in KINDS),
        *(check_folder("weights", folder, remedy) for folder in made or [weights]),
    ]


def _check_data(root: Path, data_set: str, kind: str) -> Finding:
    from tipchain.prepare.data import check_data

    folder = root / data_folder(kind, data_set)
    subject = f"{kind} data" if data_set == DIGITS else folder.name
    if (data_set, kind) != (DIGITS, "lite") and not folder.exists():
        remedy = way_out(folder.name)
        return Finding(subject=subject, outcome=Outcome.SKIP, detail="not made yet", remedy=remedy)
    try:
        check_data(folder)
    except DataError as error:
        detail, remedy = f"{error.file}: {error.message}", error.hint or ""
        return Finding(subject=subject, outcome=Outcome.FAIL, detail=detail, remedy=remedy)
    return Finding(subject=subject, outcome=Outcome.PASS, detail=str(folder))
