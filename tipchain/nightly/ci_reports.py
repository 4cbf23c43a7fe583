"""A night as GitHub's annotations and summary, and as JUnit XML."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

from tipchain.language import say
from tipchain.nightly.executor import Work
from tipchain.nightly.items import Item
from tipchain.nightly.judge import log_tail
from tipchain.nightly.records import ItemRecord, item_folder
from tipchain.nightly.results import Results, cause_of
from tipchain.outcome import BAD, Outcome
from tipchain.quantities import duration
from tipchain.report.github import SIGNS, SUMMARY_LIMIT, annotate_cause, markdown, place_in_checkout, workflow_command
from tipchain.report.junit import add_case, add_suite, count_cases, document

# A night on GitHub: annotations of the files whose items failed, and the step's summary in Markdown.

ANNOTATED = 50
"""Items that are annotated; GitHub itself shows ten errors for a step."""
TAILS = 20
"""Items of which the last lines of the log stand in the summary."""
REASON = 500
"""Characters of a reason in the summary."""


def annotate(results: Results, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return GitHub's workflow commands for the items that failed, each at the line at fault, else at its parameter file or case."""
    bad = list(_bad(results))
    root, lines = Path(results.plan.root), []
    for item, record in bad[:ANNOTATED]:
        log = f"\n{say('log: ')}{os.path.relpath(results.folder / record.log)}" if record.log else ""
        cause = cause_of(results, record)
        if cause is not None:
            more = "" if record.reason == cause.summary else f": {say(record.reason)}"
            said = f"\n{record.outcome.value}{more}{log}"
            lines.append(annotate_cause(cause, item.id, root, environ, said))
            continue
        place = place_in_checkout(root / item.source, environ) if item.source else ""
        where = {"file": place, "line": "1"} if place else {}
        message = f"{record.outcome.value}: {say(record.reason or 'no reason was given')}{log}"
        lines.append(workflow_command("error", message, {**where, "title": item.id}))
    if len(bad) > ANNOTATED:
        more = f"{len(bad) - ANNOTATED} more items of {results.plan.name} did not pass; the summary has them"
        lines.append(workflow_command("error", say(more), {"title": results.plan.name}))
    if missing := _missing(results):
        lines.append(workflow_command("error", say(missing), {"title": results.plan.name}))
    return lines


def _bad(results: Results) -> Iterator[tuple[Item, ItemRecord]]:
    """Yield the items that ended and did not pass."""
    for item in results.plan.items:
        record = results.records.get(item.id)
        if record and record.outcome in BAD:
            yield item, record


def _missing(results: Results) -> str:
    """Return how many items have no record, in words; "" for none."""
    count = len(results.plan.items) - len(results.records)
    return (
        f"{count} of {len(results.plan.items)} items have not ended: the night did not come to its end" if count else ""
    )


def summary(results: Results, changed: Sequence[str] = (), limit: int = SUMMARY_LIMIT // 2) -> str:
    """Return a night as Markdown.

    Args:
        results: the night's.
        changed: lines that say what changed since the last comparable night.
        limit: bytes that it has at most; what has no room is counted.
    """
    counts = Counter(one.outcome for one in results.records.values())
    bad, skipped = list(_bad(results)), counts[Outcome.SKIP]
    missing = _missing(results)
    head = [
        f"## {SIGNS[Outcome.FAIL if bad or missing else Outcome.PASS]} {markdown(results.plan.name)}: {say(_headline(results, counts))}",
        "",
        _origin(results),
        "",
    ]
    head += [f"**{say(missing + '.')}**", ""] if missing else []
    parts = [head, _changed(changed), _facts(results)]
    room = limit - sum(len("\n".join(part).encode()) + 1 for part in parts) - 400
    table = _table(results, bad, room) if bad else []
    room -= len("\n".join(table).encode())
    tails = list(_tails(results, bad[:TAILS], room))
    room -= len("\n".join(tails).encode())
    left_out = _left_out(results, room) if skipped else []
    return "\n".join([*head, *table, *_changed(changed), *tails, *left_out, *_facts(results)]) + "\n"


def _headline(results: Results, counts: Counter[Outcome]) -> str:
    bad = counts[Outcome.FAIL] + counts[Outcome.ERROR]
    total = len(results.plan.items)
    return f"{bad} of {total} items did not pass" if bad else f"{counts[Outcome.PASS]} of {total} items passed"


def _origin(results: Results) -> str:
    counts = Counter(one.outcome for one in results.records.values())
    errors = "error" if counts[Outcome.ERROR] == 1 else "errors"
    words = {Outcome.PASS: "passed", Outcome.FAIL: "failed", Outcome.ERROR: errors, Outcome.SKIP: "skipped"}
    told = ", ".join(f"{counts[outcome]} {word}" for outcome, word in words.items())
    facts = results.facts
    commit = f", commit {markdown(facts['commit'])}" if facts.get("commit") else ""
    night = f"items took {duration(results.seconds)} together. Night {markdown(results.night.name)}{commit}."
    return f"**{say(told)}**{say('; ')}{say(night)}"


def _table(results: Results, bad: Sequence[tuple[Item, ItemRecord]], room: int) -> list[str]:
    rows = [f"| {' | '.join(map(say, ('outcome', 'item', 'reason', 'log')))} |", "|---|---|---|---|"]
    room -= sum(len(row) + 1 for row in rows)
    for place, (item, record) in enumerate(bad):
        log = markdown(os.path.relpath(results.folder / record.log)) if record.log else ""
        cause = cause_of(results, record)
        told = say(cause.summary if cause else record.reason)
        reason = told if len(told) <= REASON else f"{told[:REASON]} …"
        sign = f"{SIGNS[record.outcome]} {record.outcome.value}"
        row = f"| {sign} | {markdown(item.id)} | {markdown(reason)} | {log} |"
        room -= len(row.encode()) + 1
        if room < 0:
            more = say(f"{len(bad) - place} more did not pass; there is no room for them here.")
            return [*rows, "", more, ""]
        rows.append(row)
    return [*rows, ""]


def _changed(lines: Sequence[str]) -> list[str]:
    return [f"### {say('What changed')}", "", *_pre(lines), ""] if lines else []


def _tails(results: Results, bad: Iterable[tuple[Item, ItemRecord]], room: int) -> Iterator[str]:
    for item, record in bad:
        lines = log_tail(results.folder / record.log) if record.log else []
        if not lines:
            continue
        block = [*_folded(say(f"Last lines of the log of {item.id}"), _pre(lines))]
        room -= len("\n".join(block).encode()) + 1
        if room < 0:
            return
        yield from block


def _left_out(results: Results, room: int) -> list[str]:
    reasons = Counter(one.reason for one in results.records.values() if one.outcome is Outcome.SKIP)
    rows = [say(f"{count} of them: {reason[:REASON]}") for reason, count in reasons.most_common(50)]
    block = _folded(say(f"{sum(reasons.values())} items were skipped"), _pre(rows))
    return block if len("\n".join(block).encode()) < room else []


def _facts(results: Results) -> list[str]:
    rows = [f"{name}: {value[:200]}" for name, value in list(results.facts.items())[:100]]
    return _folded(say("Environment"), _pre(rows)) if rows else []


def _folded(title: str, inside: Iterable[str]) -> list[str]:
    return [f"<details><summary>{escape(title)}</summary>", "", *inside, "", "</details>", ""]


def _pre(lines: Iterable[str]) -> list[str]:
    # In one block of HTML, which ends at its end tag and not at an empty line: nothing in it is Markdown.
    return [f"<pre>{escape(chr(10).join(lines))}</pre>"]


# A night as JUnit XML: one suite for each kind of items, one case for each item, called by its kind of chain.

KINDS = {"chain": "chains", "align": "alignment cases", "command": "commands"}


def night_junit(results: Results) -> str:
    """Return a night as a JUnit XML document; its environment is in the properties of each suite.

    An item that has no record, because the night was killed, is an error.
    """
    plan, night = results.plan, results.night
    root = ET.Element("testsuites", {"name": plan.name, **count_cases(results.outcomes, results.seconds)})
    facts = {"night": night.name, "manifest": plan.manifest, "folder": str(night.folder), **results.facts}
    for kind, name in KINDS.items():
        items = [item for item in plan.items if item.kind == kind]
        if not items:
            continue
        records = [results.of(item) for item in items]
        counts = count_cases([one.outcome for one in records], sum(one.seconds for one in records))
        suite = add_suite(root, f"{plan.name}: {name}", {"timestamp": night.started, **counts}, facts)
        for item, record in zip(items, records, strict=True):
            group = ".".join(filter(None, (plan.name, item.chain or kind, item.subject.replace("/", "."))))
            cause = cause_of(results, record)
            reason = cause.summary if cause else record.reason or record.outcome.value
            add_case(
                suite,
                group,
                item.id,
                record.seconds,
                record.outcome,
                reason,
                _detail(results, item, record),
                item.source,
                cause.place if cause else None,
            )
    return document(root)


def _detail(results: Results, item: Item, record: ItemRecord) -> str:
    if record.outcome in (Outcome.PASS, Outcome.SKIP):
        return ""
    folder = Path(os.path.relpath(item_folder(results.folder, item.id))) / f"attempt-{record.attempt}"
    work = Work(item=item, attempt=record.attempt, folder=folder, root=Path(results.plan.root))
    lines = [record.reason, f"$ {shlex.join(work.argv(python='python'))}"]
    lines += [f"machine: {record.machine}"] if record.machine else []
    for name, path in (("report", record.report), ("log", record.log)):
        lines += [f"{name}: {os.path.relpath(results.folder / path)}"] if path else []
    return "\n".join([*lines, *(log_tail(results.folder / record.log) if record.log else ())])
