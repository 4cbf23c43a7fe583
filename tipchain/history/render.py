"""The history as text for 80 columns, and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from math import isfinite

from tipchain.core import language
from tipchain.core.json_text import as_json
from tipchain.core.language import WIDTH, aligned, clean, listed, many, padded, say
from tipchain.core.quantities import figure_kind
from tipchain.errors import Outcome, newly_bad, tally
from tipchain.history.changes import Changes, Explanation, Flip
from tipchain.history.schema import CauseFacts, Entry, ItemFacts, VerdictFacts

# The history as text for 80 columns.


FIRST = 5
"""Lines of each kind of change, where not all are told."""


def number_text(value: float) -> str:
    """Return a number with four digits."""
    return f"{value:.4g}" if isfinite(value) else "NaN" if value != value else "inf" if value > 0 else "-inf"  # noqa: PLR0124


def lines_of(*texts: str) -> list[str]:
    """Return texts in the reader's language in lines of `WIDTH` columns, each behind its own indent."""
    said = (say(clean(text).replace("\n", " ")) for text in texts)
    return language.fold("\n".join(said), WIDTH).splitlines()


def list_text(entries: Sequence[Entry]) -> str:
    """Return a table of entries."""
    rows = [tuple(map(say, ("name", "commit", "items and what they are of")))]
    for one in entries:
        left = "" if one.finished else ", not finished"
        shares = f" in {len(one.shares)} shares" if one.shares else ""
        rest = f"{tally(one.counts or {}) or 'no item'}{shares}{left}: {one.title}"
        rows.append((one.name, one.commit[:9], say(clean(rest))))
    return "\n".join(language.table(rows, WIDTH))


def show_text(entry: Entry, items: Iterable[ItemFacts]) -> str:
    """Return an entry with its environment and items, and why these failed."""
    lines = head_lines(entry)
    lines += [f"  {name}: {value}" for name, value in sorted(entry.environment.items())]
    heads = padded(say("outcome"), 7), aligned(say("seconds"), 8), aligned(say("verdicts"), 8), say("item")
    lines += ["", "  ".join(heads)]
    for one in items:
        lines.append(f"{one.outcome.value:<7}  {one.seconds:8.1f}  {one.verdict_count or '':>8}  {one.id}")
        causes = [line for cause in one.causes[:1] for line in cause_lines(cause)]
        lines += lines_of(*(f"{'':27}{text}" for text in (one.reason, *causes) if text))
    return "\n".join(lines)


def head_lines(entry: Entry) -> list[str]:
    """Return the facts of an entry, a line each."""
    machine = " ".join(filter(None, [entry.machine, f"({entry.machine_class})" if entry.machine_class else ""]))
    facts = {
        entry.kind: f"{entry.name} ({entry.title})",
        "started": f"{entry.started}, {entry.seconds:.0f} s" + ("" if entry.finished else ", not finished"),
        "machine": machine,
        "commit": entry.commit,
        "items": tally(entry.counts or {}) or "no item",
        "shares": ", ".join(f"{one.part} {one.name} on {one.machine}" for one in entry.shares),
        "missing": entry.missing and f"shares {entry.missing}",
        "wrong": entry.wrong,
    }
    return language.table((say(f"{name}:"), say(value)) for name, value in facts.items() if value)


def share_lines(*entries: Entry) -> list[str]:
    """Return which shares of nights are missing or were cut differently, a line each."""
    return [
        f"{one.name}: {text}"
        for one in entries
        for text in (one.wrong, f"shares that are not in the history: {one.missing}" if one.missing else "")
        if text
    ]


def cause_lines(cause: CauseFacts) -> list[str]:
    """Return a cause, and below it the fix and its place."""
    place = f" ({cause.file}:{cause.line})" if cause.file else ""
    return [f"cause: {cause.message}{place}", *([f"fix: {cause.fix}"] if cause.fix else [])]


def item_text(item: ItemFacts, verdicts: Iterable[VerdictFacts]) -> str:
    """Return an item with its causes and commands, and with verdicts."""
    lines = [say(f"{item.outcome.value} {item.id}, {item.seconds:.1f} s, attempt {item.attempt}")]
    causes = [line for cause in item.causes for line in cause_lines(cause)]
    lines += lines_of(*(f"  {text}" for text in (item.reason, *causes) if text))
    places = (("kind of chain", item.chain), ("log", item.log), ("report", item.report))
    lines += [say(f"  {name}: ") + value for name, value in places if value]
    for one in item.commands:
        lines.append(f"{one.outcome.value:<7}  {one.seconds:8.1f}  {one.id}")
        figures = " ".join(f"{name}={number_text(value)}" for name, value in one.figures.items())
        lines += lines_of(*(f"{'':19}{text}" for text in (one.reason, figures) if text))
    lines += [say(f"{item.verdict_count} verdicts")] if item.verdict_count else []
    lines += lines_of(*(f"{one.outcome.value:<7}  {one.subject}: {one.reason}" for one in verdicts))
    return "\n".join(lines)


def first_text(entry: Entry) -> str:
    """Return the line of an entry that nothing comparable came before."""
    return "\n".join(lines_of(f"{entry.title}: nothing comparable came before {entry.name}", *share_lines(entry)))


def changes_text(found: Changes, *, shortened: bool = True) -> str:
    """Return the changes, folded to `WIDTH` columns: the first of each kind, or every line; one line if there are none.

    Lines on shares that are missing, or were cut differently, come on top of that one.
    """
    before, after = found.before, found.after
    apart = timedelta(seconds=max(after.began - before.began, 0))
    hours = apart.total_seconds() / 3600
    ago = f"{hours / 24:.1f} days before" if hours >= 36 else f"{hours:.1f} hours before"
    shares = share_lines(before, after)
    if found.nothing:
        span = f", commits {found.commits.span}" if found.commits.span else ""
        nothing = f"{after.title}: nothing changed since {before.name}, {ago}{span}"
        return "\n".join(lines_of(nothing, *shares))
    head = f"{after.title}: {after.name} against {before.name}, {ago}"
    shown: list[str] = []
    commits, moved = [], []
    if span := found.commits.span:
        unknown = ", not in the repository" if "unknown" not in span else ""
        count = unknown if found.commits.count is None else f", {many(found.commits.count, 'commit')}"
        back = " back" if found.commits.backwards else ""
        commits = [f"commits: {span}{count}{back}", *(f"  {subject}" for subject in found.commits.subjects)]
    for one in found.moved:
        what = " ".join(filter(None, [figure_kind(one.name).value + " ", one.item, one.part, one.name]))
        percent = f" ({100 * one.relative:+.3g} %)" if isfinite(one.relative) else ""
        moved.append(f"{what}: {number_text(one.before)} -> {number_text(one.after)}{percent}")
    for lines in (commits, [f"environment: {fact}" for fact in found.environment], _outcome_lines(found), moved):
        more = len(lines) - FIRST + 1 if shortened and len(lines) > FIRST else 0
        shown += [*lines[: FIRST - 1], f"  and {more} more"] if more else lines
    return "\n".join(lines_of(head, *shown, *shares))


def _outcome_lines(found: Changes) -> list[str]:
    """Return lines for each item that flipped or in which something did; the worsened ones come first.

    Of what newly fails the cause is told, what to change, and the commits that changed the file of that line.
    """
    why = {one.item: one for one in found.explanations}
    inside: dict[str, list[Flip]] = {}
    for one in found.inside:
        inside.setdefault(one.item, []).append(one)
    lines = []
    for flip in found.flips:
        parts = inside.pop(flip.item, [])
        reason = flip.reason if flip.after is not Outcome.PASS else ""
        detail = reason or _parts_text(parts)
        head = f"{flip.before.value} -> {flip.after.value}  {flip.item}"
        if flip.item in why:
            lines += [(_rank(flip), line) for line in (head, *explanation_lines(why[flip.item]))]
        else:
            lines.append((_rank(flip), head + (f": {detail}" if detail else "")))
    lines += [(min(map(_rank, parts)), f"in {item}: {_parts_text(parts)}") for item, parts in inside.items()]
    rows = [line for _, line in sorted(lines, key=lambda pair: pair[0])]
    for what, counts in (("new", found.new_verdicts), ("gone", found.gone_verdicts)):
        rows += [f"{what} verdicts: {sum(counts.values())} in {listed(list(counts), 2)}"] if counts else []
    for what, items in (("new", found.new), ("gone", found.gone)):
        rows += [f"{what} items: {listed(items, 2)}"] if items else []
    rows += [line for item in found.new if item in why for line in explanation_lines(why[item])]
    return rows


def explanation_lines(one: Explanation) -> list[str]:
    """Return why an item newly fails, a line each: the cause, the fix, the commits that may have done it."""
    return [f"  {line}" for line in (*cause_lines(one.cause), *(f"suspect: {text}" for text in one.suspects))]


def _rank(flip: Flip) -> int:
    """Return 0 for a new failure, 2 for a new pass, 1 for the rest: it is not run any more, or fails in another way."""
    return 0 if newly_bad(flip.before, flip.after) else 2 if flip.after is Outcome.PASS else 1


def _parts_text(parts: Sequence[Flip]) -> str:
    if not parts:
        return ""
    first = min(parts, key=_rank)
    more = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    return f"{first.part} {first.before.value} -> {first.after.value}{more}"


def entry_json(entry: Entry) -> dict[str, object]:
    """Return an entry; of a night that was run in shares, with these."""
    document = _without(entry, "key", "part", "shares")
    document["shares"] = [
        {"share": str(one.part), "name": one.name, "machine": one.machine, "finished": one.finished}
        for one in entry.shares
    ]
    return document | {"missing": entry.missing, "wrong": entry.wrong}


def item_json(item: ItemFacts) -> dict[str, object]:
    """Return an item with its commands and causes."""
    return _without(item, "verdicts", "judged")


def _without(row: Entry | ItemFacts, *names: str) -> dict[str, object]:
    return {one.name: as_json(getattr(row, one.name)) for one in fields(row) if one.name not in names}


def changes_json(found: Changes) -> dict[str, object]:
    """Return the changes as JSON."""
    whole = {one.name: getattr(found, one.name) for one in fields(found)}
    whole |= {"before": entry_json(found.before), "after": entry_json(found.after), "nothing": found.nothing}
    return {name: as_json(value) for name, value in whole.items()}
