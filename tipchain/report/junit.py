"""RunReports as JUnit XML, which CI services show as tests."""

from __future__ import annotations

import re
import shlex
from xml.etree import ElementTree as ET

from tipchain.chain.result import Result
from tipchain.outcome import Outcome
from tipchain.report.model import RunReport

ELEMENTS = {Outcome.FAIL: "failure", Outcome.ERROR: "error", Outcome.SKIP: "skipped"}
# XML 1.0 cannot hold these, not even escaped.
UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: RunReport) -> str:
    """Return ``report`` as a JUnit XML document; the suite is the parameter file in its mode."""
    outcomes = report.outcomes
    counts = {
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count(Outcome.FAIL)),
        "errors": str(outcomes.count(Outcome.ERROR)),
        "skipped": str(outcomes.count(Outcome.SKIP)),
        "time": f"{report.seconds:.3f}",
    }
    root = ET.Element("testsuites", counts)
    name = _clean(f"{report.title} {report.mode}".strip())
    suite = ET.SubElement(root, "testsuite", {"name": name, "timestamp": report.started, **counts})
    properties = ET.SubElement(suite, "properties")
    for key, value in report.versions.items():
        ET.SubElement(properties, "property", {"name": _clean(key), "value": _clean(value)})
    for result in report.results:
        _add_result(suite, result)
    for verdict in report.verdicts:
        stage, _, key = verdict.subject.rpartition("/")
        _add_case(
            suite, f"verdict.{stage}".rstrip("."), key, 0.0, verdict.outcome, verdict.reason, verdict.reason
        )
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_result(suite: ET.Element, result: Result) -> None:
    command = result.command
    detail = "\n".join([result.reason, f"$ {shlex.join(command.argv)}", f"log: {result.log}", *result.tail])
    _add_case(suite, command.step, command.id, result.seconds, result.outcome, result.reason, detail)


def _add_case(
    suite: ET.Element, group: str, name: str, seconds: float, outcome: Outcome, reason: str, detail: str
) -> None:
    attributes = {"classname": _clean(group), "name": _clean(name), "time": f"{seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", attributes)
    if outcome in ELEMENTS:
        element = ET.SubElement(case, ELEMENTS[outcome], {"message": _clean(reason)})
        element.text = None if outcome is Outcome.SKIP else _clean(detail)


def _clean(text: str) -> str:
    return UNFIT.sub("?", text)
