"""Write a report to where the user wants it: as a page, JSON, JUnit XML, and its curves for viewers."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.chain.plan import Result
from tipchain.core.files import atomic_write, writing
from tipchain.core.json_text import flat_facts
from tipchain.core.language import many, say, terminal_width, use_color
from tipchain.errors import BAD, ExitCode, Outcome, UsageError, worst
from tipchain.report.ci import SUMMARY_VARIABLE, annotate_run, junit_xml, summarize_run, write_summary
from tipchain.report.model import RunReport, dump_report
from tipchain.report.page import (
    Markup,
    Section,
    asset,
    banner,
    causes,
    element,
    facts_line,
    markup,
    notes,
    number,
    origin,
    outcome,
    page,
    path,
    prose,
    sections,
    short_cause,
    table,
)
from tipchain.report.terminal import (
    by_stage,
    command_of,
    figures_text,
    percent,
    render_ending,
    render_report,
    verdict_line,
)

if TYPE_CHECKING:
    from tipchain.numbers.verdicts import Verdict


# The page of a run: an alignment with its stages, a chain with its steps, what failed first and what only follows.


TOLD = 200
"""Checks of a stage that are listed one by one; the rest is counted, those that did not pass come first."""
TONES: Mapping[ExitCode, tuple[str, str]] = {
    ExitCode.PASSED: ("pass", "PASS"),
    ExitCode.FAILED: ("fail", "FAIL"),
    ExitCode.INTERRUPTED: ("unknown", "INTERRUPTED"),
}


def render_run(report: RunReport, verdict: str, command: str, more: Iterable[Section] = ()) -> str:
    """Return a run's report as HTML; the same report gives the same text.

    Args:
        report: of the run.
        verdict: the sentence that says what came out.
        command: what to run to see it again.
        more: what live models showed of where it fails.
    """
    tone, word = TONES.get(report.exit_code, ("unknown", "NOTHING CHECKED"))
    failed = tone == "fail"
    # What ran: which models, when, at which commit.
    day, _, time = report.started.partition("T")
    commit = str(report.where.get("commit", ""))
    facts = {
        "of": f"{report.title} {report.mode}".strip(),
        "kind of chain": report.chain,
        "date": f"{day} {time[:5]}".strip(),
        "commit": commit,
    }
    head = banner(
        tone, word, verdict, facts_line({**report.models, **facts}), _why(report, verdict) if failed else None
    )
    body = [head, *sections([*_sections(report), *more, ("origin", "To see it again", _origin(report, command))])]
    script = asset("page.js") + asset("layers.js")
    return page(f"{word}: {report.title}", body, style=asset("page.css"), script=script)


def _why(report: RunReport, verdict: str) -> Markup | None:
    """Return the cause that comes first, with what to change; else why none is known."""
    first = report.cause
    if first is None:
        return element("p", prose(report.undiagnosed)) if report.undiagnosed else None
    follow = f"{many(len(first.explains), 'check')} failed because of it." if first.explains else None
    left = f"Not explained: {report.undiagnosed}" if report.undiagnosed else None
    return markup(
        short_cause(first, verdict),
        element("p", follow, class_="note") if follow else None,
        element("p", prose(left), class_="note") if left else None,
    )


def _sections(report: RunReport) -> Iterator[Section]:
    if report.results:
        first = next((one for one in report.results if one.outcome in BAD), None)
        yield (
            "steps",
            "Steps",
            element("div", [_step(one, opened=one is first) for one in report.results], class_="steps"),
        )
    if report.verdicts:
        steps = [_stage(name, ones, report) for name, ones in by_stage(report.verdicts).items()]
        yield "stages", "Stages", element("div", steps, class_="steps")
    if report.diagnoses:
        yield "causes", "Causes", causes(report.diagnoses)
    if report.notes:
        yield ("notes", "Notes", notes(report.notes))


def _step(result: Result, *, opened: bool) -> Markup:
    command = result.command
    ran = result.outcome is not Outcome.SKIP or bool(result.started)
    words = [
        f"{result.seconds:.1f} s" if ran else "",
        "passed in an earlier attempt" if result.reused else "",
        figures_text(result.figures),
    ]
    head = element(
        "summary",
        outcome(result.outcome),
        " ",
        element("b", command.id),
        " ",
        element("span", ", ".join(filter(None, words)), class_="note"),
        element("span", prose(result.reason), class_="because") if result.reason else None,
    )
    inside = [element("pre", element("code", f"$ {shlex.join(command.argv)}"), tabindex="0")]
    for one in result.missing:
        what, mark, where = one.partition(": ")
        inside.append(element("p", "missing: ", what, mark, element("code", where)))
    if result.log:
        inside.append(element("p", "log: ", element("code", result.log), class_="note"))
    if result.tail:
        inside.append(element("pre", element("code", "\n".join(result.tail)), class_="log", tabindex="0"))
    return element("details", head, element("div", inside, class_="told"), open=opened, class_="step")


def _stage(name: str, verdicts: Sequence[Verdict], report: RunReport) -> Markup:
    """Return a stage: how it ended, how close it came, what it follows from; its checks are folded."""
    ended = worst(one.outcome for one in verdicts)
    bad = [one for one in verdicts if one.outcome in BAD]
    checks = many(len(verdicts), "check")
    counted = f"{len(bad)} of {checks} did not pass" if bad else checks
    shares = [one.share for one in verdicts if one.share is not None]
    head = element(
        "summary",
        outcome(ended),
        " ",
        element("b", path(name)),  # as it is typed after --only, in every language
        " ",
        element("span", counted, class_="note"),
        _closeness(max(shares)) if shares and not bad else None,
        element("span", _because(name, bad, report), class_="because") if bad else None,
    )
    ordered = sorted(verdicts, key=lambda one: one.outcome not in BAD)
    rows = [_check(one) for one in ordered[:TOLD]]
    listed = table(("check", "outcome", "of what is allowed", "largest difference", "reason"), rows, class_="checks")
    left = len(ordered) - len(rows)
    rest = element("p", f"{many(left, 'more check')} that passed", class_="note") if left > 0 else None
    return element("details", head, element("div", listed, rest, class_="told"), class_="step")


def _closeness(share: float) -> Markup:
    """Return how much of what is allowed was used, as a bar and in words."""
    words = "every number equal" if not share else f"{percent(share)} of what is allowed"
    filled = element("span", style=f"width:{min(share, 1.0):.1%}")
    bar = element("span", filled, class_="share", aria_hidden="true") if share else None
    return element("span", bar, " ", words, class_="close")


def _because(stage: str, bad: Sequence[Verdict], report: RunReport) -> Markup:
    """Return which cause a stage's failures follow from, else what failed first."""
    subjects = {one.subject for one in bad}
    for at, cause in enumerate(report.diagnoses, 1):
        if subjects & set(cause.explains):
            link = element("a", f"cause {at}", href="#causes")
            return markup("because of " if cause.stage == stage else "follows from ", link, ": ", prose(cause.message))
    first = bad[0]
    return markup(element("code", path(first.subject.partition("/")[2])), ": ", prose(first.reason))


def _check(one: Verdict) -> tuple[Markup, ...]:
    diff = one.diff
    share = "" if one.share is None else percent(one.share) if one.share else "none"
    return (
        element("code", path(one.subject.partition("/")[2] or one.subject)),
        outcome(one.outcome),
        markup(share),
        markup(number(diff.max_abs) if diff is not None and diff.size else ""),
        prose(one.reason),
    )


def _origin(report: RunReport, command: str) -> Markup:
    facts = {
        **report.models,
        "run": report.run,
        "mode": report.mode,
        "started": report.started,
        "seconds": f"{report.seconds:.1f}",
    }
    facts |= {**flat_facts(report.where), **report.versions}
    return origin(command, {name: value for name, value in facts.items() if value})


# Write a report to where the user wants it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Where a report goes, and how much of it is shown.

    Attributes:
        json: the file for JSON, ``-`` for standard output.
        junit: the file for JUnit XML, likewise.
        github: print GitHub's annotations, and write the step's summary.
        quiet: show the verdict alone.
        verbose: show every check above the verdict.
    """

    json: str | None = None
    junit: str | None = None
    github: bool = False
    quiet: bool = False
    verbose: bool = False


def with_page(
    report: RunReport, html_to: Path | None, default: Path | None = None, details: Iterable[Section] = ()
) -> RunReport:
    """Write a run's page, and return the report that names it; where it cannot be written, print the verdict.

    Args:
        report: of the run.
        html_to: where the page goes.
        default: where it goes otherwise, if the run did not pass.
        details: what live models showed of where it fails.

    Raises:
        UsageError: ``html_to`` cannot be written.
        OSError: ``default`` cannot.
    """
    failed = report.exit_code in (ExitCode.FAILED, ExitCode.INTERRUPTED)
    target = html_to or (default if failed else None)
    if target is None:
        return report
    text = render_run(report, verdict_line(report), command_of(report), details if failed else ())
    try:
        with writing(html_to, UsageError) if html_to else nullcontext():
            atomic_write(target, text)
    except (UsageError, OSError):
        print(say(verdict_line(report)), file=sys.stderr)  # hours of work are not lost with a page
        raise
    return replace(report, page=os.path.relpath(target))


def write_report(report: RunReport, targets: Targets, *, stream: TextIO, root: Path = Path()) -> int:
    """Write ``report`` as text to ``stream``, and to wherever else it is wanted; return its exit code.

    The text is the verdict with what explains it. Where JSON or XML goes to standard output (``-``), the text goes to
    standard error.

    Args:
        report: of the run.
        targets: where it goes.
        stream: for the text.
        root: the project's folder, that files of causes are relative to.

    Raises:
        UsageError: a file cannot be written.
    """
    if "-" in (targets.json, targets.junit):
        stream = sys.stderr
    color, width = use_color(stream), terminal_width()
    if targets.quiet:
        stream.write(f"{say(verdict_line(report))}\n")
    else:
        whole = f"{render_report(report, color=color, width=width)}\n\n" if targets.verbose else ""
        stream.write(f"{whole}{render_ending(report, color=color, width=width)}\n")
    if targets.github:
        for line in annotate_run(report, root):
            print(line, file=stream)
        with writing(os.environ.get(SUMMARY_VARIABLE), UsageError):
            write_summary(summarize_run(report, verdict_line(report)))
    for target, render in ((targets.json, dump_report), (targets.junit, junit_xml)):
        if target == "-":
            # Write a document to standard output, in UTF-8 as both formats demand, whatever the terminal's encoding is.
            text = render(report)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
            sys.stdout.write(text)
        elif target:
            with writing(target, UsageError):
                atomic_write(Path(target), render(report))
    return int(report.exit_code)
