"""Runs for CI services: GitHub's annotations and summary, JUnit XML."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

from tipchain.chain.params import parse_params, read_text
from tipchain.core.language import many, say
from tipchain.errors import BAD, ExitCode, Outcome, TipchainError, tally
from tipchain.explain.findings import Diagnosis
from tipchain.report.model import NIGHT_KIND, RunReport
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
LISTED, TAILS = 50, 20
"""Commands that did not pass in a summary, and those whose last lines of the log stand there."""
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


def annotate_run(report: RunReport, root: Path, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return workflow commands for a run's causes, each at the port's line; for the first failures where none is known.

    Args:
        report: of the run.
        root: the project's folder, that files of causes are relative to.
        environ: the process's.
    """
    lines = []
    for cause in report.diagnoses:
        count = len(cause.explains)
        checks = f"\n{many(count, 'check')} failed because of it" if count else ""
        where = {"title": f"{report.title}: {cause.code}"}
        if cause.place is not None:
            file = place_in_checkout(root / cause.place.file, environ)
            where = {"file": file, "line": str(cause.place.line), **where}
        lines.append(workflow_command("error", cause.summary + checks, where))
    known = {subject for cause in report.diagnoses for subject in cause.explains}
    if report.diagnoses and report.chain != NIGHT_KIND:
        known |= {one.command.id for one in report.results}
    rest = [(name, reason) for name, outcome, reason in report.parts if outcome in BAD and name not in known]
    commands = {one.command.id: one.command for one in report.results}
    for name, reason in rest[: max(ANNOTATED - len(lines), 1)]:
        command = commands.get(name)
        words = (root / word for word in command.argv if not word.startswith("/")) if command else ()
        source = next((one for one in (root / report.title, *words) if one.is_file()), root / report.title)
        where = {"file": place_in_checkout(source, environ)} if source.is_file() else {}
        if line := _line_of_program(source, command.argv) if where and command else 0:
            where["line"] = str(line)
        properties = {**where, "title": f"{report.title}: {name}"}
        lines.append(workflow_command("error", reason or "no reason was given", properties))
    return lines


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
    """Return a run as Markdown: the verdict, each cause with its fix, and how many checks ended how."""
    code = report.exit_code
    sign = SIGNS[Outcome.PASS if code is ExitCode.PASSED else Outcome.FAIL if code is ExitCode.FAILED else Outcome.SKIP]
    commit = str(report.where.get("commit", ""))
    facts = [
        markdown(f"{report.title} {report.mode}".strip()),
        f"commit {markdown(commit)}" if commit else "",
        tally(report.outcomes),
    ]
    lines = [f"## {sign} {markdown(say(verdict))}", "", "; ".join(filter(None, facts)), ""]
    lines += [line for one in report.diagnoses for line in cause_markdown(one)]
    bad = [one for one in report.results if one.outcome in BAD]
    if bad:
        heads = " | ".join(map(say, ("outcome", "command", "reason", "log")))
        lines += ["", f"| {heads} |", "|---|---|---|---|"]
    for one in bad[:LISTED]:
        cells = (one.command.id, say(one.reason), one.log)
        lines.append(f"| {SIGNS[one.outcome]} {one.outcome.value} | {' | '.join(map(markdown, cells))} |")
    lines += (
        ["", say(f"{len(bad) - LISTED} more did not pass; there is no room for them here.")] if bad[LISTED:] else []
    )
    lines += ["", f"### {say('Notes')}", "", *_pre(map(say, report.notes))] if report.notes else []
    for one in bad[:TAILS]:
        lines += _folded(say(f"Last lines of the log of {one.command.id}"), one.tail) if one.tail else []
    skipped = Counter(one.reason for one in report.results if one.outcome is Outcome.SKIP)
    if skipped:
        reasons = [say(f"{count} of them: {reason}") for reason, count in skipped.most_common(LISTED)]
        lines += _folded(say(f"{skipped.total()} commands were skipped"), reasons)
    versions = [f"{name}: {value}" for name, value in report.versions.items()]
    return "\n".join([*lines, *(_folded(say("Environment"), versions) if versions else ())]) + "\n"


def _folded(title: str, lines: Iterable[str]) -> list[str]:
    return ["", f"<details><summary>{escape(title)}</summary>", "", *_pre(lines), "", "</details>"]


def _pre(lines: Iterable[str]) -> list[str]:
    # In one block of HTML, which ends at its end tag and not at an empty line: nothing in it is Markdown.
    return [f"<pre>{escape(chr(10).join(lines))}</pre>"]


def cause_markdown(cause: Diagnosis) -> Iterator[str]:
    """Yield a cause as lines of Markdown, the line at fault and its correction in a block of its own."""
    yield f"**{markdown(say(cause.message))}**"
    if cause.fix:
        yield f"<br>{say('Fix: ')}{markdown(say(cause.fix))}"
    yield ""
    place = cause.place
    if place is not None and place.code:
        corrected = cause.corrected
        lines = [f"- {place.code.strip()}", f"+ {corrected}"] if corrected else [place.code.strip()]
        # HTML, which ends at its end tag: nothing in it is Markdown.
        yield f"<pre>{escape(chr(10).join([str(place), *lines]))}</pre>"
        yield ""


def write_summary(text: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Append ``text`` to the step's summary, cut to GitHub's limit; False where no step asks for one.

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


# A run as JUnit XML.


ELEMENTS = {Outcome.FAIL: "failure", Outcome.ERROR: "error", Outcome.SKIP: "skipped"}
# XML 1.0 cannot hold these, not even escaped.
UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: RunReport) -> str:
    """Return ``report`` as a JUnit XML document, of one suite; characters that XML cannot hold become question marks."""
    name, counts = f"{report.title} {report.mode}".strip(), Counter(report.outcomes)
    found = {"tests": counts.total(), "failures": counts[Outcome.FAIL], "errors": counts[Outcome.ERROR]}
    numbers = {key: str(count) for key, count in {**found, "skipped": counts[Outcome.SKIP]}.items()}
    numbers["time"] = f"{report.seconds:.3f}"
    root = ET.Element("testsuites", {"name": name, **numbers})
    suite = ET.SubElement(root, "testsuite", {"name": name, "timestamp": report.started, **numbers})
    inside = ET.SubElement(suite, "properties")
    facts = {"verdict": verdict_line(report), **({"chain": report.chain} if report.chain else {}), **report.versions}
    for key, value in facts.items():
        ET.SubElement(inside, "property", {"name": key, "value": value})

    causes = {subject: one for one in reversed(report.diagnoses) for subject in one.explains}
    for result in report.results:
        command, reason, cause = result.command, result.reason or result.outcome.value, causes.get(result.command.id)
        if command.step == "align" and result.outcome in BAD:
            cause = cause or report.cause
        message = f"{cause.summary} ({reason})" if cause else reason
        log = [f"log: {result.log}"] if result.log else []
        detail = "\n".join([message, f"$ {shlex.join(command.argv)}", *log, *result.tail])
        case = {"classname": command.step, "name": command.id, "time": f"{result.seconds:.3f}"}
        _add_case(suite, case, result.outcome, message, detail, cause)
    for verdict in report.verdicts:
        # The first that fails for a cause tells it, the others refer to that one.
        cause = causes.get(verdict.subject)
        stage, _, key = verdict.subject.rpartition("/")
        message = detail = verdict.reason
        if cause is not None:
            first = cause.explains[0]
            message = cause.summary if verdict.subject == first else f"follows from {first}: {cause.message}"
            detail = "\n".join(filter(None, (message, verdict.reason, cause.evidence)))
        case = {"classname": f"verdict.{stage}".rstrip("."), "name": key, "time": "0.000"}
        _add_case(suite, case, verdict.outcome, message, detail, cause)
    ET.indent(root)
    text = UNFIT.sub("?", ET.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _add_case(
    suite: ET.Element, facts: dict[str, str], outcome: Outcome, message: str, detail: str, cause: Diagnosis | None
) -> None:
    place = cause.place if cause else None
    where = {"file": place.file, "line": str(place.line)} if place else {}
    case = ET.SubElement(suite, "testcase", {**facts, **where})
    if outcome in ELEMENTS:
        element = ET.SubElement(case, ELEMENTS[outcome], {"message": message})
        element.text = None if outcome is Outcome.SKIP else detail
