"""RunReports as JUnit XML, which CI services show as tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from tipchain.chain.result import Result
from tipchain.outcome import BAD, Outcome
from tipchain.report.model import RunReport

if TYPE_CHECKING:
    from tipchain.explain.findings import Diagnosis, SourceLine
    from tipchain.numbers.verdicts import Verdict


ELEMENTS = {Outcome.FAIL: "failure", Outcome.ERROR: "error", Outcome.SKIP: "skipped"}
# XML 1.0 cannot hold these, not even escaped.
UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: RunReport) -> str:
    """Return ``report`` as a JUnit XML document; the suite is the parameter file in its mode."""
    counts = count_cases(report.outcomes, report.seconds)
    root = ET.Element("testsuites", counts)
    name = f"{report.title} {report.mode}".strip()
    facts = {"chain": report.chain} if report.chain else {}
    suite = add_suite(root, name, {"timestamp": report.started, **counts}, {**facts, **report.versions})
    for result in report.results:
        _add_result(suite, result, report)
    causes = {subject: one for one in reversed(report.diagnoses) for subject in one.explains}
    for verdict in report.verdicts:
        _add_verdict(suite, verdict, causes.get(verdict.subject))
    return document(root)


def _add_verdict(suite: ET.Element, verdict: Verdict, cause: Diagnosis | None) -> None:
    """Add a verdict; the first that fails for a cause tells it, the others refer to that one."""
    stage, _, key = verdict.subject.rpartition("/")
    message = detail = verdict.reason
    if cause is not None:
        first = cause.explains[0]
        message = cause.summary if verdict.subject == first else f"follows from {first}: {cause.message}"
        detail = "\n".join(filter(None, (message, verdict.reason, cause.evidence)))
    place = cause.place if cause else None
    add_case(suite, f"verdict.{stage}".rstrip("."), key, 0.0, verdict.outcome, message, detail, place=place)


def document(root: ET.Element) -> str:
    """Return a document's text, indented; characters that XML cannot hold become question marks."""
    ET.indent(root)
    text = UNFIT.sub("?", ET.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def count_cases(outcomes: Sequence[Outcome], seconds: float) -> dict[str, str]:
    """Return the attributes of a suite, or of all, that say how many cases ended how."""
    return {
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count(Outcome.FAIL)),
        "errors": str(outcomes.count(Outcome.ERROR)),
        "skipped": str(outcomes.count(Outcome.SKIP)),
        "time": f"{seconds:.3f}",
    }


def add_suite(root: ET.Element, name: str, attributes: Mapping[str, str], properties: Mapping[str, str]) -> ET.Element:
    """Add a suite with its properties, and return it."""
    suite = ET.SubElement(root, "testsuite", {"name": name, **attributes})
    inside = ET.SubElement(suite, "properties")
    for key, value in properties.items():
        ET.SubElement(inside, "property", {"name": key, "value": value})
    return suite


def _add_result(suite: ET.Element, result: Result, report: RunReport) -> None:
    command, reason = result.command, result.reason
    cause = next(iter(report.diagnoses), None) if command.step == "align" and result.outcome in BAD else None
    if cause is not None:
        reason = f"{cause.summary} ({reason})"
    detail = "\n".join([reason, f"$ {shlex.join(command.argv)}", f"log: {result.log}", *result.tail])
    add_case(
        suite,
        command.step,
        command.id,
        result.seconds,
        result.outcome,
        reason,
        detail,
        place=cause.place if cause else None,
    )


def add_case(
    suite: ET.Element,
    group: str,
    name: str,
    seconds: float,
    outcome: Outcome,
    reason: str,
    detail: str,
    file: str = "",
    place: SourceLine | None = None,
) -> None:
    """Add a case to a suite.

    Args:
        suite: which.
        group: what CI services show cases by, as packages and classes are.
        name: of the case.
        seconds: that it took.
        outcome: how it ended.
        reason: one line; of a case that did not pass.
        detail: what is shown of one that failed.
        file: its source below the project's folder; "" if it has none.
        place: the line that it fails for, instead.
    """
    attributes = {"classname": group, "name": name, "time": f"{seconds:.3f}"}
    if place or file:
        attributes["file"] = place.file if place else file
    if place:
        attributes["line"] = str(place.line)
    case = ET.SubElement(suite, "testcase", attributes)
    if outcome in ELEMENTS:
        element = ET.SubElement(case, ELEMENTS[outcome], {"message": reason})
        element.text = None if outcome is Outcome.SKIP else detail
