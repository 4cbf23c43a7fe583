"""Runs for CI services: GitHub's annotations and summary, JUnit XML."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tipchain.chain.params import parse_params, read_text
from tipchain.chain.plan import Command
from tipchain.core.language import many, say
from tipchain.errors import BAD, ExitCode, Outcome, TipchainError, tally
from tipchain.explain.findings import Diagnosis, SourceLine
from tipchain.report.lines import corrected_line
from tipchain.report.model import RunReport
from tipchain.report.terminal import verdict_line

# A run on GitHub: annotations on the lines at fault, and the step's summary.
#
# What GitHub takes: https://docs.github.com/actions, "Workflow commands".


SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file that a step's summary, in Markdown, is appended to."""
SUMMARY_LIMIT = 1024 * 1024
"""Bytes; GitHub refuses a step's summary that is larger."""
WORKSPACE_VARIABLE = "GITHUB_WORKSPACE"
"""Names the checkout's folder, which annotations name files from."""
ANNOTATED = 10
"""Failures that are annotated; GitHub itself shows no more of a step."""
SIGNS = {Outcome.PASS: "✅", Outcome.FAIL: "❌", Outcome.ERROR: "💥", Outcome.SKIP: "⏭️"}
_ACTIVE = re.compile(r"[\\`*_{}\[\]()<>#+!|~&:@$-]")


def workflow_command(level: str, message: str, properties: Mapping[str, str]) -> str:
    """Return a line that annotates a file: ``::error file=a.txt,line=3,title=typo::not a number``.

    Args:
        level: ``error``, ``warning`` or ``notice``.
        message: may have several lines.
        properties: ``file``, ``line``, ``title`` and others.
    """
    given = ",".join(f"{name}={escaped(value, property_=True)}" for name, value in properties.items())
    return f"::{level} {given}::{escaped(message)}"


def escaped(text: str, *, property_: bool = False) -> str:
    """Return ``text`` as GitHub reads it in a workflow command."""
    text = "".join(one for one in text if one in "\r\n" or one.isprintable())
    for character, written in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, written)
    if property_:
        text = text.replace(":", "%3A").replace(",", "%2C")
    return text


def markdown(text: str) -> str:
    """Return ``text`` on one line, so that Markdown shows it as it is, in a table too.

    Whatever Markdown could take for its own becomes a character reference, which it never does
    (https://github.github.com/gfm, "Entity and numeric character references").
    """
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", line)


def place_in_checkout(path: Path, environ: Mapping[str, str]) -> str:
    """Return a file as the checkout names it; as it is where it is in no checkout."""
    workspace = environ.get(WORKSPACE_VARIABLE)
    below = os.path.relpath(path.resolve(), Path(workspace).resolve() if workspace else None)
    return below if not below.startswith("..") else str(path)


def annotate_cause(cause: Diagnosis, title: str, root: Path, environ: Mapping[str, str], more: str = "") -> str:
    """Return the workflow command that annotates the port's line at fault.

    Args:
        cause: what makes checks fail.
        title: of the annotation.
        root: the folder that files of causes are relative to.
        environ: the process's.
        more: what stands below.
    """
    where = {}
    if cause.place is not None:
        where = {"file": place_in_checkout(root / cause.place.file, environ), "line": str(cause.place.line)}
    return workflow_command("error", cause.summary + more, {**where, "title": title})


def annotate_run(report: RunReport, root: Path, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return workflow commands for a run's causes, each at the port's line; for what failed first where none is known.

    Args:
        report: of the run.
        root: the project's folder, that files of causes are relative to.
        environ: the process's.
    """
    lines = []
    for cause in report.diagnoses:
        count = len(cause.explains)
        checks = f"\n{many(count, 'check')} failed because of it" if count else ""
        lines.append(annotate_cause(cause, f"{report.title}: {cause.code}", root, environ, checks))
    known = {subject for cause in report.diagnoses for subject in cause.explains}
    known |= {one.command.id for one in report.results} if report.diagnoses else set()
    rest = [(name, reason) for name, outcome, reason in report.parts if outcome in BAD and name not in known]
    commands = {one.command.id: one.command for one in report.results}
    for name, reason in rest[: max(ANNOTATED - len(lines), 1)]:
        where = _place_in_file(root / report.title, commands.get(name), environ)
        properties = {**where, "title": f"{report.title}: {name}"}
        lines.append(workflow_command("error", reason or "no reason was given", properties))
    return lines


def _place_in_file(path: Path, command: Command | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the parameter file or case, with the line that names the program which failed, as far as they are there."""
    if not path.is_file():
        return {}
    where = {"file": place_in_checkout(path, environ)}
    line = _line_of_program(path, command.argv) if command else 0
    return {**where, "line": str(line)} if line else where


def _line_of_program(path: Path, argv: tuple[str, ...]) -> int:
    """Return the line of a parameter file whose program a command ran, 0 where none is found: it was changed for a run."""
    script = next((word for word in argv if word.endswith(".py")), "")
    found = []
    with suppress(TipchainError):
        for one in parse_params(read_text(path), str(path)).params:
            words = tuple(one.value.replace('"', "").split())
            starts = range(len(argv) - len(words) + 1)
            if script in words and any(argv[start : start + len(words)] == words for start in starts):
                found.append((len(words), -one.line))
    return -max(found)[1] if found else 0


def summarize_run(report: RunReport, verdict: str) -> str:
    """Return a run as Markdown: the verdict, each cause with what to change, and how many checks ended how."""
    code = report.exit_code
    sign = SIGNS[Outcome.PASS if code is ExitCode.PASSED else Outcome.FAIL if code is ExitCode.FAILED else Outcome.SKIP]
    commit = str(report.where.get("commit", ""))
    facts = [
        markdown(f"{report.title} {report.mode}".strip()),
        f"commit {markdown(commit)}" if commit else "",
        tally(report.outcomes),
    ]
    lines = [f"## {sign} {markdown(say(verdict))}", "", "; ".join(filter(None, facts)), ""]
    return "\n".join([*lines, *(line for one in report.diagnoses for line in cause_markdown(one))]) + "\n"


def cause_markdown(cause: Diagnosis) -> Iterator[str]:
    """Yield a cause as lines of Markdown, the line at fault and what it should be in a block of its own."""
    yield f"**{markdown(say(cause.message))}**"
    if cause.fix:
        yield f"<br>{say('Fix: ')}{markdown(say(cause.fix))}"
    yield ""
    place = cause.place
    if place is not None and place.code:
        wanted = corrected_line(cause.fix, place.code)
        lines = [f"- {place.code.strip()}", f"+ {wanted.strip()}"] if wanted else [place.code.strip()]
        # HTML, which ends at its end tag: nothing in it is Markdown.
        yield f"<pre>{escape(chr(10).join([str(place), *lines]))}</pre>"
        yield ""


def write_summary(text: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Append ``text`` to the step's summary, cut to what GitHub takes; False where no step asks for one.

    Raises:
        OSError: the file cannot be written.
    """
    path = environ.get(SUMMARY_VARIABLE)
    if not path:
        return False
    with Path(path).open("ab") as file:
        room = SUMMARY_LIMIT - file.tell()
        file.write(text.encode()[: max(room, 0)].decode(errors="ignore").encode())
    return True


# Results as JUnit XML: of a run, of a night.


ELEMENTS = {Outcome.FAIL: "failure", Outcome.ERROR: "error", Outcome.SKIP: "skipped"}
# XML 1.0 cannot hold these, not even escaped.
UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JunitCase(NamedTuple):
    """A command, a check or an item, as CI services list it.

    Attributes:
        group: what it is shown below, as classes are.
        name: what it is called.
        outcome: how it ended.
        reason: one line; of a case that did not pass.
        detail: what is shown of one that failed.
        seconds: that it took.
        place: the line that it fails for.
        file: its source below the project's folder, where no line is known; "" if it has none.
    """

    group: str
    name: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    seconds: float = 0.0
    place: SourceLine | None = None
    file: str = ""


def junit_xml(report: RunReport) -> str:
    """Return ``report`` as a JUnit XML document; the suite is the parameter file in its mode."""
    cases = []
    for result in report.results:
        command, reason = result.command, result.reason
        cause = report.cause if command.step == "align" and result.outcome in BAD else None
        if cause is not None:
            reason = f"{cause.summary} ({reason})"
        detail = "\n".join([reason, f"$ {shlex.join(command.argv)}", f"log: {result.log}", *result.tail])
        place = cause.place if cause else None
        cases.append(JunitCase(command.step, command.id, result.outcome, reason, detail, result.seconds, place))
    causes = {subject: one for one in reversed(report.diagnoses) for subject in one.explains}
    for verdict in report.verdicts:
        # The first that fails for a cause tells it, the others refer to that one.
        cause = causes.get(verdict.subject)
        stage, _, key = verdict.subject.rpartition("/")
        message = detail = verdict.reason
        if cause is not None:
            first = cause.explains[0]
            message = cause.summary if verdict.subject == first else f"follows from {first}: {cause.message}"
            detail = "\n".join(filter(None, (message, verdict.reason, cause.evidence)))
        group, place = f"verdict.{stage}".rstrip("."), cause.place if cause else None
        cases.append(JunitCase(group, key, verdict.outcome, message, detail, place=place))
    name = f"{report.title} {report.mode}".strip()
    facts = {"verdict": verdict_line(report), **({"chain": report.chain} if report.chain else {}), **report.versions}
    return junit_document(name, {name: cases}, facts, report.started, report.seconds)


def junit_document(
    name: str, suites: Mapping[str, Sequence[JunitCase]], facts: Mapping[str, str], started: str, seconds: float
) -> str:
    """Return suites of cases as a JUnit XML document; characters that XML cannot hold become question marks.

    Args:
        name: of all suites.
        suites: cases by the name of their suite.
        facts: properties of each suite.
        started: local time as ISO 8601.
        seconds: that all of it took.
    """
    root = ET.Element("testsuites", {"name": name, **_counts(itertools.chain(*suites.values()), seconds)})
    for title, cases in suites.items():
        took = seconds if len(suites) == 1 else sum(one.seconds for one in cases)
        suite = ET.SubElement(root, "testsuite", {"name": title, "timestamp": started, **_counts(cases, took)})
        inside = ET.SubElement(suite, "properties")
        for key, value in facts.items():
            ET.SubElement(inside, "property", {"name": key, "value": value})
        for one in cases:
            where = {"file": one.place.file, "line": str(one.place.line)} if one.place else {"file": one.file}
            attributes = {"classname": one.group, "name": one.name, "time": f"{one.seconds:.3f}", **where}
            case = ET.SubElement(suite, "testcase", {key: value for key, value in attributes.items() if value})
            if one.outcome in ELEMENTS:
                element = ET.SubElement(case, ELEMENTS[one.outcome], {"message": one.reason})
                element.text = None if one.outcome is Outcome.SKIP else one.detail
    ET.indent(root)
    text = UNFIT.sub("?", ET.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _counts(cases: Iterable[JunitCase], seconds: float) -> dict[str, str]:
    counts = Counter(one.outcome for one in cases)
    found = {"tests": counts.total(), "failures": counts[Outcome.FAIL], "errors": counts[Outcome.ERROR]}
    found["skipped"] = counts[Outcome.SKIP]
    return {**{name: str(count) for name, count in found.items()}, "time": f"{seconds:.3f}"}
