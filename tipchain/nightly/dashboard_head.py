"""The top of the dashboard: what the latest nights came to, what changed in them, and what still does not pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tipchain.live.html_markup import Markup, element, many, markup
from tipchain.nightly.dashboard_items import cut, part_id, when
from tipchain.nightly.timeline import BAD, Row, Timeline
from tipchain.outcome import Outcome

LISTED = 40
"""Items of a kind that stand at the top; the rest is counted."""
REASON = 200


def title(timelines: Sequence[Timeline]) -> str:
    """Return the page's title."""
    bad = sum(map(_bad, timelines))
    other = "passed" if _whole(timelines) else "not finished"
    word = f"{bad} failed" if bad else "cut wrongly" if _wrong(timelines) else other
    return f"{word}: nights of {', '.join(line.name for line in timelines)}"


def headline(timelines: Sequence[Timeline]) -> Markup:
    """Return the page's first part."""
    bad = sum(map(_bad, timelines))
    kind = "fail" if bad or _wrong(timelines) else "pass" if _whole(timelines) else "unknown"
    return element(
        "section", element("h1", "Nights of ", ", ".join(line.name for line in timelines)),
        (_latest(place, line) for place, line in enumerate(timelines)),
        class_=f"verdict {kind}", id="verdict", aria_label="the latest night",
    )  # fmt: skip


def is_well(row: Row) -> bool:
    """Tell whether an item did not fail in its latest night."""
    return row.latest is None or row.latest.record.outcome not in BAD


def _whole(timelines: Sequence[Timeline]) -> bool:
    return all(line.columns[-1].results.finished for line in timelines)


def _wrong(timelines: Sequence[Timeline]) -> bool:
    return any(line.columns[-1].wrong for line in timelines)


def _bad(line: Timeline) -> int:
    counts = line.columns[-1].counts
    return sum(counts.get(one, 0) for one in BAD)


def _latest(place: int, line: Timeline) -> Markup:
    """Return what the latest night came to, and what is another than in the one before."""
    column = line.columns[-1]
    bad, total = _bad(line), many(sum(column.counts.values()), "item")
    word = (
        f"{bad} of {total} did not pass" if bad else f"{column.counts.get(Outcome.PASS, 0)} of {total} passed"
    )
    finished = column.results.finished
    failed = bool(bad or column.wrong)
    head = "FAIL" if failed else "PASS" if finished else "NOT FINISHED"
    kind = "fail" if failed else "pass" if finished else "error"
    state = "" if finished else " so far: the night is not finished"
    parts = [
        element(
            "p",
            element("strong", head, class_=f"outcome {kind}"),
            f"{line.name}, {when(column)}: {word}{state}.",
        )
    ]
    if column.wrong or column.notes:
        parts.append(_list([element("li", text) for text in (*column.wrong, *column.notes)]))
    still = [row for row in line.rows if row.cells[-1] and not is_well(row) and not row.changed]
    if still:
        parts.append(element("p", "Did not pass, as before:" if len(line.columns) > 1 else "Did not pass:"))
        parts.append(_list(_entries(place, still)))
    facts = [element("li", f"environment: {text}") for text in column.environment]
    changed = sorted((row for row in line.rows if row.changed), key=_rank)
    if facts or changed:
        parts += [element("p", "Changed since the night before:"), _list([*facts, *_entries(place, changed)])]
    elif len(line.columns) > 1:
        parts.append(element("p", "Nothing changed since the night before."))
    return markup(parts)


def _rank(row: Row) -> int:
    """Return 0 for what became bad, 2 for what became good, 1 for the rest."""
    return 0 if not is_well(row) else 2 if row.changed.endswith(Outcome.PASS.value) else 1


def _entries(place: int, rows: Sequence[Row]) -> Iterator[Markup]:
    for row in rows[:LISTED]:
        latest = row.latest
        word = row.changed or (latest.record.outcome.value if latest else "")
        reason = latest.record.reason if latest and row.changed != "gone" else ""
        link = element("a", row.item.id, href=f"#{part_id(place, row)}")
        yield element("li", f"{word} ", link, f": {cut(reason, REASON)}" if reason else "")
    if len(rows) > LISTED:
        yield element("li", f"and {len(rows) - LISTED} more")


def _list(rows: Sequence[Markup] | Iterator[Markup]) -> Markup:
    return element("ul", rows, class_="changes")
