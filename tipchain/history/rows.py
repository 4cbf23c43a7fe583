"""From facts to rows of tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tipchain.history.facts import EntryFacts, ItemFacts, Machine
from tipchain.history.schema import code_of, number_of
from tipchain.nightly.shares import Part

Row = dict[str, Any]
STATISTICS = ("mean_abs", "max_abs", "min_abs", "max_rel", "needed_atol", "rtol", "expected_max_abs")
CAUSE_TEXTS = ("code", "layer", "message", "fix", "file")
"""What of a cause is text, as `tipchain.history.facts.CauseFacts` calls it."""


def storable(text: str) -> str:
    """Return ``text`` without what databases refuse: NUL, and halves of characters."""
    return text.replace("\0", "\ufffd").encode(errors="backslashreplace").decode()


def text_number(text: str) -> int:
    """Return the number under which ``text`` is stored."""
    return number_of(storable(text))


def number(value: float) -> float | None:
    """Return ``value`` for a column of numbers: None for NaN."""
    return None if math.isnan(value) else float(value)


def machine_row(machine: Machine) -> Row:
    """Return the row of a machine."""
    name, machine_class = storable(machine.name), storable(machine.machine_class)
    return {"id": _machine_number(machine), "name": name, "machine_class": machine_class}


def environment_row(facts: Mapping[str, str]) -> Row:
    """Return the row of an environment."""
    text = _environment_text(facts)
    return {"id": number_of(text), "facts": text}


def entry_row(entry: EntryFacts) -> Row:
    """Return the row of an entry, not finished yet: its items come first."""
    return {
        "key": entry.key,
        "kind": entry.kind,
        "name": storable(entry.name),
        "title": storable(entry.title),
        "began": entry.began,
        "started": entry.started,
        "seconds": entry.seconds,
        "finished": False,
        "commit_id": storable(entry.commit),
        "root": storable(entry.root),
        "machine_id": _machine_number(entry.machine),
        "environment_id": number_of(_environment_text(entry.environment)),
        "part": storable(json.dumps(asdict(entry.part), sort_keys=True)) if entry.part else "",
    }


def parse_part(text: str) -> Part | None:
    """Return which share of a night an entry's row says it is."""
    return Part(**json.loads(text)) if text else None


def item_row(entry: int, item: ItemFacts) -> Row:
    """Return the row of an item in the entry with the given number."""
    return {
        "entry_id": entry,
        "item_id": text_number(item.id),
        "attempt": item.attempt,
        "outcome": code_of(item.outcome),
        "reason_id": text_number(item.reason),
        "exit_code": item.exit_code,
        "signal": item.signal,
        "started": storable(item.started),
        "seconds": item.seconds,
        "peak_memory_mb": item.peak_memory_mb,
        "executor": storable(item.executor),
        "log": storable(item.log),
        "report": storable(item.report),
        "machine_id": _machine_number(item.machine),
        "environment_id": number_of(_environment_text(item.environment)),
        "verdict_count": len(item.verdicts),
    }


def command_rows(item_run: int, item: ItemFacts) -> list[Row]:
    """Return the rows of an item's commands."""
    return [
        {
            "item_run_id": item_run,
            "command_id": text_number(command.id),
            "step": storable(command.step)[:16],
            "argv": json.dumps(list(command.argv)),
            "outcome": code_of(command.outcome),
            "reason_id": text_number(command.reason),
            "exit_code": command.exit_code,
            "signal": storable(command.signal)[:32],
            "started": storable(command.started),
            "seconds": command.seconds,
            "peak_memory_mb": command.peak_memory_mb,
            "log": storable(command.log),
            "reused": command.reused,
        }
        for command in item.commands
    ]


def figure_rows(command_runs: Mapping[int, int], item: ItemFacts) -> list[Row]:
    """Return the rows of the commands' figures; ``command_runs`` has their rows by the number of their id."""
    return [
        {
            "command_run_id": command_runs[text_number(command.id)],
            "name_id": text_number(name),
            "value": number(value),
        }
        for command in item.commands
        for name, value in command.figures.items()
    ]


def artifact_rows(item_run: int, item: ItemFacts) -> list[Row]:
    """Return the rows of an item's artifacts."""
    return [
        {"item_run_id": item_run, "path_id": text_number(path), "sha256": sha256[:64]}
        for path, sha256 in item.artifacts.items()
    ]


def verdict_rows(item_run: int, item: ItemFacts) -> list[Row]:
    """Return the rows of an item's verdicts, in the order in which the table has them."""
    found = [
        {
            "item_run_id": item_run,
            "subject_id": text_number(one.subject),
            "outcome": code_of(one.outcome),
            "reason_id": text_number(one.reason),
            "tensors_id": text_number(one.tensors),
            "finite": one.finite,
            "size": one.size,
            **{name: number(getattr(one, name)) for name in STATISTICS},
        }
        for one in item.verdicts
    ]
    return sorted(found, key=lambda row: int(row["subject_id"]))


def cause_rows(item_run: int, item: ItemFacts) -> list[Row]:
    """Return the rows of an item's causes."""
    return [
        {
            "item_run_id": item_run,
            "rank": rank,
            "stage": storable(one.stage)[:32],
            **{f"{name}_id": text_number(getattr(one, name)) for name in CAUSE_TEXTS},
            "line": one.line,
            "explained": number(one.explained),
            "checks": one.checks,
        }
        for rank, one in enumerate(item.causes)
    ]


def texts_of(item: ItemFacts) -> dict[int, Row]:
    """Return the rows of all texts of an item, by number."""
    texts = {storable(text) for text in _texts(item)}
    return {number_of(text): {"id": number_of(text), "text": text} for text in texts}


def _texts(item: ItemFacts) -> Iterator[str]:
    yield from (item.id, item.reason)
    for command in item.commands:
        yield from (command.id, command.reason, *command.figures)
    for verdict in item.verdicts:
        yield from (verdict.subject, verdict.reason, verdict.tensors)
    yield from item.artifacts
    for cause in item.causes:
        yield from (getattr(cause, name) for name in CAUSE_TEXTS)


def _machine_number(machine: Machine) -> int:
    return number_of(f"{storable(machine.name)}\n{storable(machine.machine_class)}")


def _environment_text(facts: Mapping[str, str]) -> str:
    return json.dumps(dict(facts), sort_keys=True)
