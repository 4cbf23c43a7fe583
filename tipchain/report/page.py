"""A report as one HTML page that needs no other file, from the templates beside this module."""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from math import inf, isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tipchain.core.json_text import flat_facts
from tipchain.core.language import clean, language, many, say
from tipchain.errors import BAD, Outcome, worst
from tipchain.explain.findings import PIECES, Diagnosis
from tipchain.report.model import NIGHT_KIND, RunReport
from tipchain.report.terminal import by_stage, command_of, figures_text, percent, verdict_line

if TYPE_CHECKING:
    from tipchain.numbers.verdicts import Verdict

TEMPLATES = Path(__file__).with_name("templates")
TOLD = 200
"""Checks of a stage that are listed one by one; the rest is counted, those that did not pass come first."""


class PageSection(NamedTuple):
    """A part of a page.

    Attributes:
        name: in addresses; up to a dash, of the macro that shows it.
        title: what stands above it.
        data: what is shown.
        of: a name that a user gave, in no language, in front of the title.
    """

    name: str
    title: str
    data: object
    of: str = ""


class StageRow(NamedTuple):
    """A stage of an alignment.

    Attributes:
        outcome: the worst of its checks.
        name: as it is typed after ``--only``, in every language.
        counted: how many checks there are; "" where the one check is the stage.
        share: how much of what is allowed was used; None where that is not known, or something failed.
        cause: the number of the cause that its failures follow from; 0 for none.
        own: whether the cause is the stage's own.
        where: what failed first, below the stage.
        reason: why it did.
        checks: those that are listed, what did not pass first.
        left: how many passed that are not listed.
    """

    outcome: Outcome
    name: str
    counted: str
    share: float | None
    cause: int
    own: bool
    where: str
    reason: str
    checks: Sequence[Verdict]
    left: int


# What templates say.


def shown(value: object) -> object:
    """Take control characters out of a text; the template escapes it."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return clean(value).encode(errors="backslashreplace").decode()


def prose(text: str) -> Markup:
    """Translate a sentence; text between backticks becomes code."""
    text = str(shown(say(text)))
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick that nothing ends
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def path(text: str) -> Markup:
    """Let a layer's path or an id break after its marks; words for the model itself are translated."""
    first, *rest = re.split(r"(?<=[.;\[_])", str(shown(text)))
    return Markup("<wbr>").join((escape(say(first) if " " in first else first), *map(escape, rest)))


def number(value: float | None) -> str:
    """Return an error as text; one that is not finite has no size that could be told."""
    if value is None:
        return "\u2013"
    if not isfinite(value):
        return "undefined"
    return "0" if not value else f"{value:.1e}"


def exactly(value: float) -> str:
    """Return a value as text, with as many digits as tell losses apart."""
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "∞" if value > 0 else "-∞"
    return f"{value:.9g}"


def explained(share: float) -> str:
    """Return a share, as 100 % only where nothing is left."""
    return "100 %" if share == 1 else "more than 99.99 %" if share > 0.9999 else f"{100 * share:.4g} %"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        prose=prose, path=path, number=number, percent=percent, explained=explained, shell=shlex.join
    )
    environment.globals.update(_=say, many=many, figures=figures_text, pieces=PIECES)
    return environment


def fill(template: str, **values: object) -> str:
    """Return a template with its values in place.

    A whole page forbids itself, by its Content-Security-Policy (https://www.w3.org/TR/CSP3/), to load anything or to run
    any script but its own.
    """
    style, script = ((TEMPLATES / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    lang = "zh-CN" if language() == "zh" else "en"
    return _environment().get_template(template).render(style=style, script=script, digest=digest, lang=lang, **values)


# A run: an alignment with its stages, a chain with its steps, what failed first and what only follows.


def render_run(
    report: RunReport,
    details: Iterable[PageSection] = (),
    *,
    verdict: str = "",
    command: str = "",
    first: object = None,
    template: str = "run.html",
) -> str:
    """Return a run's report as HTML; the same report gives the same text.

    Args:
        report: of the run.
        details: what live models showed of where it fails.
        verdict: the sentence that says what came out; the report's own where it is empty.
        command: what to run to see it again, likewise.
        first: the first layer at fault, a `tipchain.explain.locate.verdicts.LayerVerdict`.
        template: the page, or the cell of a notebook.
    """
    word = report.word
    tone = {"PASS": "pass", "ACCEPTED": "pass", "FAIL": "fail"}.get(word, "unknown")
    verdict = say(verdict or verdict_line(report))
    found = re.match(r"the chain FAILED(?= at )|(?:`[^`]*`|[^`])*?(?=: |：)", verdict)  # noqa: RUF001
    headline = found[0] if found else verdict
    day, _, time = report.started.partition("T")
    facts = {
        **report.models,
        "of": f"{report.title} {report.mode}".strip(),
        "kind of chain": "" if report.chain == NIGHT_KIND else report.chain,
        "date": f"{day} {time[:5]}".strip(),
        "commit": str(report.where.get("commit", "")),
    }
    causes = () if tone == "pass" else report.causes
    origin = {
        **report.models,
        "run": report.run,
        "mode": report.mode,
        "started": report.started,
        "seconds": f"{report.seconds:.1f}" if report.seconds else "",
        **flat_facts(report.where),
        **report.versions,
    }
    seen_again = {"command": command or command_of(report), "facts": origin}
    return fill(
        template,
        report=report,
        title=f"{word}: {report.title or headline}",
        tone=tone,
        word=word,
        headline=headline,
        told=verdict[len(headline) :].lstrip(": ："),  # noqa: RUF001
        facts=facts,
        causes=causes,
        first=first,
        sections=[*_sections(report, causes), *details, PageSection("origin", "Reproduce this run", seen_again)],
    )


def _sections(report: RunReport, causes: Sequence[Diagnosis]) -> Iterator[PageSection]:
    if report.results:
        yield PageSection("steps", "Items" if report.chain == NIGHT_KIND else "Steps", report.results)
    if report.verdicts or not report.results:
        stages = by_stage(report.verdicts)
        yield PageSection("stages", "Stages", [_stage_row(name, ones, causes) for name, ones in stages.items()])
    if causes[1:]:
        yield PageSection("causes", "Other causes", causes[1:])
    if report.notes:
        yield PageSection("notes", "Notes", report.notes)


def _stage_row(name: str, verdicts: Sequence[Verdict], causes: Sequence[Diagnosis]) -> StageRow:
    bad = [verdict for verdict in verdicts if verdict.outcome in BAD]
    whole = len(verdicts) == 1 and verdicts[0].subject == name
    accepted = any(verdict.accepted for verdict in verdicts)
    shares = [verdict.share for verdict in verdicts if verdict.share is not None]
    checks = many(len(verdicts), "check")
    subjects = {verdict.subject for verdict in bad}
    cause = next((at for at, cause in enumerate(causes, 1) if subjects & set(cause.explains)), 0)
    first = verdicts[0] if whole else next(iter(bad), None) if not cause else None
    ordered = [] if whole else sorted(verdicts, key=lambda verdict: verdict.outcome not in BAD)
    return StageRow(
        outcome=worst(verdict.outcome for verdict in verdicts),
        name=name,
        counted=""
        if whole
        else f"{len(bad)} of {checks} did not pass"
        if bad
        else f"{checks}{', accepted' * accepted}",
        share=max(shares) if shares and not bad else None,
        cause=cause,
        own=bool(cause) and causes[cause - 1].stage == name,
        where=first.subject.partition("/")[2] if first else "",
        reason=first.reason if first else "",
        checks=ordered[:TOLD],
        left=len(ordered[TOLD:]),
    )
