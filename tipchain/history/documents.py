"""The history as JSON values; NaN and infinities are strings, as in reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from tipchain.chain.result_json import number_json
from tipchain.history.changes import Changes
from tipchain.history.compare import Comparison
from tipchain.history.entries import Entry
from tipchain.history.queries import CauseRun, CommandRun, ItemRun
from tipchain.outcome import Outcome


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return an entry; of a night that was run in shares, with these."""
    counts = {outcome.value: count for outcome, count in entry.counts.items()}
    document: dict[str, Any] = _plain(asdict(replace(entry, shares=()))) | {"counts": counts}
    del document["id"], document["part"]
    document["shares"] = [
        {"share": str(one.part), "name": one.name, "machine": one.machine, "finished": one.finished}
        for one in entry.shares
    ]
    return document | {"missing": entry.missing, "wrong": entry.wrong}


def item_json(item: ItemRun) -> dict[str, Any]:
    """Return an item."""
    document: dict[str, Any] = _plain(asdict(item))
    del document["row"]
    return document


def commands_json(commands: Iterable[CommandRun]) -> list[dict[str, Any]]:
    """Return commands."""
    return [_plain(asdict(one)) for one in commands]


def causes_json(causes: Iterable[CauseRun]) -> list[dict[str, Any]]:
    """Return causes."""
    return [_plain(asdict(one)) for one in causes]


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison."""
    rest = {
        name: _plain([asdict(one) for one in getattr(found, name)])
        for name in ("environment", "flips", "command_flips", "verdict_flips", "moved", "grew")
    }
    return {
        "before": entry_json(found.before),
        "after": entry_json(found.after),
        "common": found.common,
        "new": list(found.new),
        "gone": list(found.gone),
        "new_verdicts": dict(found.new_verdicts),
        "gone_verdicts": dict(found.gone_verdicts),
        **rest,
    }


def changes_json(found: Changes) -> dict[str, Any]:
    """Return what changed."""
    return {
        "entry": entry_json(found.entry),
        "comparison": None if found.comparison is None else comparison_json(found.comparison),
        "nothing": found.nothing,
        "shifts": _plain([asdict(one) for one in found.shifts]),
        "commits": _plain(asdict(found.commits)),
        "explanations": _plain([asdict(one) for one in found.explanations]),
        "nights": found.nights,
        "plainly": found.plainly,
    }


def _plain(value: Any) -> Any:
    """Return a value with all in it that JSON has no form for replaced."""
    if isinstance(value, dict):
        return {name.value if isinstance(name, Outcome) else name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, Outcome):
        return value.value
    return number_json(value) if isinstance(value, float) else value
