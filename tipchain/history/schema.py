"""The history's tables, as SQLAlchemy knows them, and the rows that facts make."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from tipchain.history.facts import EntryFacts, ItemFacts, Machine
from tipchain.nightly.shards import ShardPart
from tipchain.outcome import Outcome

# The history's tables, as SQLAlchemy knows them.

HEAD = "0004"
"""The revision of the tables below."""
OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.SKIP)
"""An outcome's number is its place here."""

metadata = sa.MetaData()
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up INTEGER keys only


def number_of(text: str) -> int:
    """Return the number of a text: 63 bits of a hash of it.

    Two of a million texts share one with a chance of 5e-8.
    """
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def code_of(outcome: Outcome) -> int:
    """Return an outcome's number."""
    return OUTCOMES.index(outcome)


def _counted() -> sa.Column[int]:
    return sa.Column("id", BIG, primary_key=True, autoincrement=True)


def _named() -> sa.Column[int]:
    return sa.Column("id", BIG, primary_key=True, autoincrement=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _code() -> sa.Column[int]:
    return sa.Column("outcome", sa.SmallInteger(), nullable=False)


def _number(name: str, *, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _link(name: str, target: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, BIG, sa.ForeignKey(target), nullable=False, primary_key=key)


def _part(name: str, target: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, BIG, sa.ForeignKey(target, ondelete="CASCADE"), nullable=False, primary_key=key)


texts = sa.Table("texts", metadata, _named(), _text("text"))
environments = sa.Table("environments", metadata, _named(), _text("facts"))
machines = sa.Table("machines", metadata, _named(), _text("name"), _text("machine_class"))
entries = sa.Table(
    "entries",
    metadata,
    _counted(),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),
    _text("name"),
    _text("title"),
    _number("began"),
    _text("started"),
    _number("seconds"),
    sa.Column("finished", sa.Boolean(), nullable=False),
    _text("commit_id"),
    _text("root"),
    _link("machine_id", "machines.id"),
    _link("environment_id", "environments.id"),
    sa.Column("part", sa.Text(), nullable=False, server_default=""),
    sa.UniqueConstraint("key", name="uq_entries_key"),
    sa.Index("ix_entries_name", "name"),
    sa.Index("ix_entries_title_began", "kind", "title", "began"),
)
item_runs = sa.Table(
    "item_runs",
    metadata,
    _counted(),
    _part("entry_id", "entries.id"),
    _link("item_id", "texts.id"),
    sa.Column("attempt", sa.Integer(), nullable=False),
    _code(),
    _link("reason_id", "texts.id"),
    sa.Column("exit_code", sa.Integer(), nullable=True),
    sa.Column("signal", sa.Integer(), nullable=False),
    _text("started"),
    _number("seconds"),
    _number("peak_memory_mb"),
    _text("executor"),
    _text("log"),
    _text("report"),
    _link("machine_id", "machines.id"),
    _link("environment_id", "environments.id"),
    sa.Column("verdict_count", sa.Integer(), nullable=False),
    sa.Column("chain", sa.Text(), nullable=False, server_default=""),
    sa.UniqueConstraint("entry_id", "item_id", name="uq_item_runs_entry_item"),
    sa.Index("ix_item_runs_item", "item_id", "entry_id"),
)
command_runs = sa.Table(
    "command_runs",
    metadata,
    _counted(),
    _part("item_run_id", "item_runs.id"),
    _link("command_id", "texts.id"),
    sa.Column("step", sa.String(16), nullable=False),
    _text("argv"),
    _code(),
    _link("reason_id", "texts.id"),
    sa.Column("exit_code", sa.Integer(), nullable=True),
    sa.Column("signal", sa.String(32), nullable=False),
    _text("started"),
    _number("seconds"),
    _number("peak_memory_mb"),
    _text("log"),
    sa.Column("reused", sa.Boolean(), nullable=False),
    sa.UniqueConstraint("item_run_id", "command_id", name="uq_command_runs_item_command"),
)
figures = sa.Table(
    "figures",
    metadata,
    _part("command_run_id", "command_runs.id", key=True),
    _link("name_id", "texts.id", key=True),
    _number("value", nullable=True),
    sqlite_with_rowid=False,
)
artifacts = sa.Table(
    "artifacts",
    metadata,
    _part("item_run_id", "item_runs.id", key=True),
    _link("path_id", "texts.id", key=True),
    sa.Column("sha256", sa.String(64), nullable=False),
    sqlite_with_rowid=False,
)
verdicts = sa.Table(
    "verdicts",
    metadata,
    _part("item_run_id", "item_runs.id", key=True),
    _link("subject_id", "texts.id", key=True),
    _code(),
    _link("reason_id", "texts.id"),
    _link("tensors_id", "texts.id"),
    sa.Column("finite", sa.Boolean(), nullable=False),
    sa.Column("size", BIG, nullable=False),
    *(
        _number(name, nullable=True)
        for name in ("mean_abs", "max_abs", "min_abs", "max_rel", "needed_atol", "rtol", "expected_max_abs")
    ),
    sqlite_with_rowid=False,
)
causes = sa.Table(
    "causes",
    metadata,
    _part("item_run_id", "item_runs.id", key=True),
    sa.Column("rank", sa.Integer(), nullable=False, primary_key=True, autoincrement=False),
    sa.Column("stage", sa.String(32), nullable=False),
    _link("code_id", "texts.id"),
    _link("layer_id", "texts.id"),
    _link("message_id", "texts.id"),
    _link("fix_id", "texts.id"),
    _link("file_id", "texts.id"),
    sa.Column("line", sa.Integer(), nullable=False),
    _number("explained", nullable=True),
    sa.Column("checks", sa.Integer(), nullable=False),
    sa.Index("ix_causes_code", "code_id"),
    sqlite_with_rowid=False,
)


# From facts to rows of tables.

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


def parse_part(text: str) -> ShardPart | None:
    """Return which share of a night an entry's row says it is."""
    return ShardPart(**json.loads(text)) if text else None


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
        "chain": storable(item.chain),
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
        {"command_run_id": command_runs[text_number(command.id)], "name_id": text_number(name), "value": number(value)}
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
