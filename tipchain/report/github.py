"""A run on GitHub: annotations on the lines at fault, and the step's summary.

What GitHub takes: https://docs.github.com/actions, "Workflow commands".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from tipchain.explain.findings import Diagnosis
from tipchain.language import say
from tipchain.outcome import BAD, ExitCode, Outcome
from tipchain.report.model import RunReport

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
        checks = f"\n{count} check{'s' if count > 1 else ''} failed because of it" if count else ""
        lines.append(annotate_cause(cause, f"{report.title}: {cause.code}", root, environ, checks))
    known = {subject for cause in report.diagnoses for subject in cause.explains}
    rest = [*((one.command.id, one.reason) for one in report.results if one.outcome in BAD and not report.diagnoses)]
    rest += [(one.subject, one.reason) for one in report.verdicts if one.outcome in BAD and one.subject not in known]
    for name, reason in rest[: max(ANNOTATED - len(lines), 1)]:
        lines.append(workflow_command("error", reason or "no reason was given", {"title": f"{report.title}: {name}"}))
    return lines


def summarize_run(report: RunReport, verdict: str) -> str:
    """Return a run as Markdown: the verdict, each cause with what to change, and how many checks ended how."""
    code = report.exit_code
    sign = SIGNS[Outcome.PASS if code is ExitCode.PASSED else Outcome.FAIL if code is ExitCode.FAILED else Outcome.SKIP]
    counts = ", ".join(f"{report.outcomes.count(one)} {one.value}" for one in Outcome if one in report.outcomes)
    commit = str(report.where.get("commit", ""))
    facts = [markdown(f"{report.title} {report.mode}".strip()), f"commit {markdown(commit)}" if commit else "", counts]
    lines = [f"## {sign} {markdown(say(verdict))}", "", "; ".join(filter(None, facts)), ""]
    return "\n".join([*lines, *(line for one in report.diagnoses for line in cause_markdown(one))]) + "\n"


def cause_markdown(cause: Diagnosis) -> Iterator[str]:
    """Yield a cause as lines of Markdown, the line at fault and what it should be in a block of its own."""
    from tipchain.report.html.causes import corrected_line

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
