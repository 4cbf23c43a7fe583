"""What the history keeps of nights and reports, and its tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import sqlalchemy as sa

from tipchain.core.json_text import as_json
from tipchain.errors import Outcome
from tipchain.nightly.items import ShardPart, disagreement, missing
from tipchain.nightly.nights import ItemRecord

Kind = Literal["night", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A night, or a single report: what goes into the history, and what is there.

    Attributes:
        key: what it is told from all others by; adding the same key again adds nothing.
        kind: a night, or a single run.
        name: what users call it.
        title: what it is compared within: the manifest's name, or the report's title and mode.
        began: seconds since 1970, by which entries are ordered.
        started: the same as ISO 8601, as it was written.
        seconds: how long it took; 0 where that is not known.
        finished: whether it came to its end: neither interrupted nor still going on.
        commit: the git commit, with ``-dirty`` for local changes; "" where it is not known.
        root: the project's folder.
        machine: name of the host where the coordinator ran.
        machine_class: what makes times comparable: processor, cores, GPUs; "" where it is not known.
        environment: by name: versions, devices, settings.
        part: which share of a night it is; None for all else, and for the shares of a night put together.
        id: its row in the history; of a night that was run in shares, that of the first.
        counts: how many items ended how there.
        shares: of a night that was run in shares, what it is put together from, in their order.
    """

    key: str
    kind: Kind
    name: str
    title: str
    began: float
    started: str
    seconds: float = 0.0
    finished: bool = True
    commit: str = ""
    root: str = ""
    machine: str = ""
    machine_class: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    part: ShardPart | None = None
    id: int = 0
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    shares: tuple[Entry, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of its shares, or its own."""
        return tuple(one.id for one in self.shares) or (self.id,)

    @property
    def missing(self) -> str:
        """Which shares of a night are not in the history, as ``2/3, 3/3``; "" for none."""
        return missing(self._parts)

    @property
    def wrong(self) -> str:
        """Why a night's shares are not those of one plan, so that items may have run in none or twice; "" if they are."""
        return disagreement(self._parts)

    @property
    def _parts(self) -> list[ShardPart]:
        return [one.part for one in self.shares if one.part]

    @property
    def where(self) -> str:
        """What makes times comparable: the machine's class, or its name where the class is not known."""
        return self.machine_class or self.machine


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """One command of a chain; see `tipchain.chain.plan.Result`."""

    id: str
    step: str
    argv: tuple[str, ...]
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    signal: str = ""
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    log: str = ""
    reused: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFacts:
    """One judgement about a tensor; see `tipchain.numbers.verdicts.Verdict` and `tipchain.numbers.compare.TensorDiff`.

    Attributes:
        tensors: dtypes and shapes of both sides, as ``float32[4, 10]``; "" where nothing was compared. The numbers
            below are NaN then.
    """

    subject: str
    outcome: Outcome
    reason: str = ""
    finite: bool = True
    tensors: str = ""
    size: int = 0
    mean_abs: float = float("nan")
    max_abs: float = float("nan")
    min_abs: float = float("nan")
    max_rel: float = float("nan")
    needed_atol: float = float("nan")
    rtol: float = float("nan")
    expected_max_abs: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFacts:
    """What makes verdicts of an item fail; see `tipchain.explain.findings.Diagnosis`.

    Attributes:
        stage: the first stage that it makes fail.
        code: a slug: ``epsilon``, ``transposed-weight``.
        layer: the port's layer, or ``loss``, ``optimizer`` and the like; "" for the model itself.
        message: one sentence: what is wrong.
        fix: what to change.
        file: of the port's line to change; "" where it is not known.
        line: its number; 0 where it is not known.
        explained: the fraction of the error that it explains; NaN where nothing was run to know.
        checks: how many verdicts fail because of it.
    """

    stage: str
    code: str
    layer: str
    message: str
    fix: str = ""
    file: str = ""
    line: int = 0
    explained: float = float("nan")
    checks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFacts(ItemRecord):
    """How an item ended, with what its report tells: what goes into the history, and what is there.

    Attributes:
        machine_class: what makes times comparable: processor, cores, GPUs; "" where it is not known.
        chain: the kind of chain (`tipchain.chain.kinds`); "" for what is none, or where nobody said so.
        environment: the versions that its report names.
        commands: of a chain.
        verdicts: of an alignment.
        causes: why it failed, the one that comes first first.
        row: its row in the history; commands, verdicts, artifacts and causes are read from there apart from it.
        verdict_count: how many verdicts the history has of it.
    """

    machine_class: str = ""
    chain: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[CommandFacts, ...] = ()
    verdicts: tuple[VerdictFacts, ...] = ()
    causes: tuple[CauseFacts, ...] = ()
    row: int = 0
    verdict_count: int = 0


# The history's tables, as SQLAlchemy knows them.

VERSION = 1
"""Of the tables below."""
OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.SKIP)
"""An outcome's number is its place here."""
STATISTICS = ("mean_abs", "max_abs", "min_abs", "max_rel", "needed_atol", "rtol", "expected_max_abs")

metadata = sa.MetaData()
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up INTEGER keys only


def code_of(outcome: Outcome) -> int:
    """Return an outcome's number."""
    return OUTCOMES.index(outcome)


def _counted() -> sa.Column[int]:
    return sa.Column("id", BIG, primary_key=True, autoincrement=True)


def _text(name: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, primary_key=key)


def _code() -> sa.Column[int]:
    return sa.Column("outcome", sa.SmallInteger(), nullable=False)


def _number(name: str, *, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _part(name: str, target: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, BIG, sa.ForeignKey(target, ondelete="CASCADE"), nullable=False, primary_key=key)


versions = sa.Table("tipchain_history", metadata, sa.Column("version", sa.Integer(), primary_key=True))
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
    _text("commit"),
    _text("root"),
    _text("machine"),
    _text("machine_class"),
    _text("environment"),
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
    _text("item"),
    sa.Column("attempt", sa.Integer(), nullable=False),
    _code(),
    _text("reason"),
    sa.Column("exit_code", sa.Integer(), nullable=True),
    sa.Column("signal", sa.Integer(), nullable=False),
    _text("started"),
    _number("seconds"),
    _number("peak_memory_mb"),
    _text("executor"),
    _text("log"),
    _text("report"),
    _text("machine"),
    _text("machine_class"),
    _text("environment"),
    sa.Column("chain", sa.Text(), nullable=False, server_default=""),
    sa.Column("verdict_count", sa.Integer(), nullable=False),
    sa.UniqueConstraint("entry_id", "item", name="uq_item_runs_entry_item"),
    sa.Index("ix_item_runs_item", "item", "entry_id"),
)
command_runs = sa.Table(
    "command_runs",
    metadata,
    _counted(),
    _part("item_run_id", "item_runs.id"),
    _text("command"),
    sa.Column("step", sa.String(16), nullable=False),
    _text("argv"),
    _code(),
    _text("reason"),
    sa.Column("exit_code", sa.Integer(), nullable=True),
    sa.Column("signal", sa.String(32), nullable=False),
    _text("started"),
    _number("seconds"),
    _number("peak_memory_mb"),
    _text("log"),
    sa.Column("reused", sa.Boolean(), nullable=False),
    sa.UniqueConstraint("item_run_id", "command", name="uq_command_runs_item_command"),
)
figures = sa.Table(
    "figures",
    metadata,
    _part("command_run_id", "command_runs.id", key=True),
    _text("name", key=True),
    _number("value", nullable=True),
    sqlite_with_rowid=False,
)
artifacts = sa.Table(
    "artifacts",
    metadata,
    _part("item_run_id", "item_runs.id", key=True),
    _text("path", key=True),
    sa.Column("sha256", sa.String(64), nullable=False),
    sqlite_with_rowid=False,
)
verdicts = sa.Table(
    "verdicts",
    metadata,
    _part("item_run_id", "item_runs.id", key=True),
    _text("subject", key=True),
    _code(),
    _text("reason"),
    _text("tensors"),
    sa.Column("finite", sa.Boolean(), nullable=False),
    sa.Column("size", BIG, nullable=False),
    *(_number(name, nullable=True) for name in STATISTICS),
    sqlite_with_rowid=False,
)
causes = sa.Table(
    "causes",
    metadata,
    _part("item_run_id", "item_runs.id", key=True),
    sa.Column("rank", sa.Integer(), nullable=False, primary_key=True, autoincrement=False),
    sa.Column("stage", sa.String(32), nullable=False),
    _text("code"),
    _text("layer"),
    _text("message"),
    _text("fix"),
    _text("file"),
    sa.Column("line", sa.Integer(), nullable=False),
    _number("explained", nullable=True),
    sa.Column("checks", sa.Integer(), nullable=False),
    sa.Index("ix_causes_code", "code"),
    sqlite_with_rowid=False,
)


# From facts to rows of tables.

Row = dict[str, Any]


def storable(text: str) -> str:
    """Return ``text`` with NUL and surrogates replaced, which databases refuse."""
    return text.replace("\0", "\ufffd").encode(errors="backslashreplace").decode()


def number(value: float) -> float | None:
    """Return ``value`` for a column of numbers: None for NaN."""
    return None if math.isnan(value) else float(value)


def _row(table: sa.Table, facts: object, **own: object) -> Row:
    """Return a table's row of ``own`` and of ``facts``, whose attributes are called as columns are."""
    return {**{name: convert(getattr(facts, name)) for name, convert in _conversions(table) if name not in own}, **own}


@cache
def _conversions(table: sa.Table) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Return how the field of each column of a table is stored."""

    def stored(column: sa.Column[Any]) -> Callable[[Any], Any]:
        kind = column.type
        if column.name == "outcome":
            return code_of
        if isinstance(kind, sa.String):  # of which Text is one, without a length
            return lambda value: _as_text(value)[: kind.length]
        return number if isinstance(kind, sa.Double) and column.nullable else lambda value: value

    columns = (column for column in table.columns if column.name != "id" and not column.foreign_keys)
    return tuple((column.name, stored(column)) for column in columns)


def _as_text(value: object) -> str:
    return storable(value if isinstance(value, str) else json.dumps(as_json(value), sort_keys=True))


def entry_row(entry: Entry) -> Row:
    """Return the row of an entry, not finished yet: its items come first."""
    return _row(entries, entry, finished=False, part=_as_text(entry.part) if entry.part else "")


def item_row(entry: int, item: ItemFacts) -> Row:
    """Return the row of an item in the entry with the given number."""
    return _row(item_runs, item, entry_id=entry, item=storable(item.id), verdict_count=len(item.verdicts))


def rows_below(item_run: int, item: ItemFacts) -> dict[sa.Table, list[Row]]:
    """Return the rows of an item's verdicts, artifacts, causes and commands."""
    return {
        verdicts: [_row(verdicts, one, item_run_id=item_run) for one in item.verdicts],
        artifacts: [
            {"item_run_id": item_run, "path": storable(path), "sha256": sha256[:64]}
            for path, sha256 in item.artifacts.items()
        ],
        causes: [_row(causes, one, item_run_id=item_run, rank=rank) for rank, one in enumerate(item.causes)],
        command_runs: [
            _row(command_runs, one, item_run_id=item_run, command=storable(one.id)) for one in item.commands
        ],
    }


def figure_rows(runs: Mapping[str, int], item: ItemFacts) -> list[Row]:
    """Return the rows of the commands' figures; ``runs`` has their rows by their id."""
    return [
        {"command_run_id": runs[storable(command.id)], "name": storable(name), "value": number(value)}
        for command in item.commands
        for name, value in command.figures.items()
    ]
