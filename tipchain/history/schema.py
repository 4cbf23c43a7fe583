"""The history's tables: each row is a night or report, or a part of one."""

import json
import math
from collections.abc import Sequence
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, MappedColumn, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from tipchain.core.json_text import Json, as_json, parse_as
from tipchain.errors import Outcome
from tipchain.nightly.items import ShardPart, disagreement, missing

VERSION = 4
"""Of the tables below."""
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up INTEGER keys only
NAN = math.nan
Texts = dict[str, str]
Numbers = dict[str, float]
Words = list[str]


class StorableText(TypeDecorator[str]):
    """Text without NUL and surrogates, which databases refuse."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002, D102
        return None if value is None else value.replace("\0", "\ufffd").encode(errors="backslashreplace").decode()


class Real(TypeDecorator[float]):
    """A number; NaN is NULL."""

    impl = sa.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: sa.Dialect) -> float | None:  # noqa: ARG002, D102
        return None if value is None or math.isnan(value) else float(value)

    def process_result_value(self, value: float | None, dialect: sa.Dialect) -> float:  # noqa: ARG002, D102
        return NAN if value is None else value


class JsonText(TypeDecorator[Json]):
    """A value as JSON text, also one that JSON has no number for; ``kind``: its class, where that is none of JSON's."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type | None = None) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: object, dialect: sa.Dialect) -> str:  # noqa: ARG002, D102
        return json.dumps(as_json(value, number=float), sort_keys=True)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Json:  # noqa: ARG002, D102
        found = json.loads(value or "null")
        return found if self.kind is None or found is None else parse_as(self.kind, found)


class Base(MappedAsDataclass, DeclarativeBase, kw_only=True):
    """The columns common to all tables."""

    type_annotation_map: ClassVar = {
        str: StorableText(),
        float: Real(),
        Outcome: sa.Enum(Outcome, native_enum=False),
        Texts: JsonText(),
        Numbers: JsonText(),
        Words: JsonText(),
    }


def _below(target: str, *, key: bool = False) -> MappedColumn[int]:
    return mapped_column(BIG, sa.ForeignKey(target, ondelete="CASCADE"), nullable=False, primary_key=key)


class TablesVersion(Base):
    """The version of the tables, in one row."""

    __tablename__ = "tipchain_history"

    version: Mapped[int] = mapped_column(primary_key=True)


class Entry(Base):
    """A night, or a single report.

    Attributes:
        row: its number; of a night that was run in shares, that of the first.
        key: what it is told from all others by; adding the same key again adds nothing.
        kind: ``night`` or ``run``.
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
        counts: how many items ended how.
        shares: of a night that was run in shares, what it is put together from, in their order.
    """

    __tablename__ = "entries"
    __table_args__ = (sa.Index("ix_entries_title_began", "kind", "title", "began"),)

    row = mapped_column("id", BIG, primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    name: Mapped[str] = mapped_column(index=True)
    title: Mapped[str]
    began: Mapped[float]
    started: Mapped[str]
    seconds: Mapped[float] = mapped_column(default=0.0)
    finished: Mapped[bool] = mapped_column(default=True)
    commit: Mapped[str] = mapped_column(default="")
    root: Mapped[str] = mapped_column(default="")
    machine: Mapped[str] = mapped_column(default="")
    machine_class: Mapped[str] = mapped_column(default="")
    environment: Mapped[Texts] = mapped_column(default_factory=dict)
    part: Mapped[ShardPart | None] = mapped_column(JsonText(ShardPart), default=None)
    counts: dict[Outcome, int] | None = None
    shares: tuple["Entry", ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of its shares, or its own."""
        return tuple(one.row for one in self.shares) or (self.row,)

    @property
    def missing(self) -> str:
        """Which shares of a night are not in the history, as ``2/3, 3/3``; "" for none."""
        return missing([one.part for one in self.shares if one.part])

    @property
    def wrong(self) -> str:
        """Why a night's shares are not those of one plan, so that items may have run in none or twice; "" if they are."""
        return disagreement([one.part for one in self.shares if one.part])

    @property
    def where(self) -> str:
        """The place that makes times comparable: the machine's class, or its name where the class is not known."""
        return self.machine_class or self.machine


class CommandFacts(Base):
    """One command of a chain; see `tipchain.chain.plan.Result`."""

    __tablename__ = "command_runs"

    item_run_id = _below("item_runs.id", key=True)
    rank = mapped_column(sa.Integer(), primary_key=True, autoincrement=False)
    id: Mapped[str] = mapped_column("command")
    step: Mapped[str]
    argv: Mapped[Words]
    outcome: Mapped[Outcome]
    reason: Mapped[str] = mapped_column(default="")
    exit_code: Mapped[int | None] = mapped_column(default=None)
    signal: Mapped[str] = mapped_column(default="")
    started: Mapped[str] = mapped_column(default="")
    seconds: Mapped[float] = mapped_column(default=0.0)
    peak_memory_mb: Mapped[float] = mapped_column(default=0.0)
    log: Mapped[str] = mapped_column(default="")
    reused: Mapped[bool] = mapped_column(default=False)
    figures: Mapped[Numbers] = mapped_column(default_factory=dict)


class VerdictFacts(Base):
    """One judgement about a tensor; see `tipchain.numbers.verdicts.Verdict`. Its numbers are in the item's report."""

    __tablename__ = "verdicts"
    __table_args__ = ({"sqlite_with_rowid": False},)

    item_run_id = _below("item_runs.id", key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    outcome: Mapped[Outcome]
    reason: Mapped[str] = mapped_column(default="")


class CauseFacts(Base):
    """The cause of failed verdicts of an item; see `tipchain.explain.findings.Diagnosis`.

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

    __tablename__ = "causes"

    item_run_id = _below("item_runs.id", key=True)
    rank = mapped_column(sa.Integer(), primary_key=True, autoincrement=False)
    stage: Mapped[str]
    code: Mapped[str] = mapped_column(index=True)
    layer: Mapped[str]
    message: Mapped[str]
    fix: Mapped[str] = mapped_column(default="")
    file: Mapped[str] = mapped_column(default="")
    line: Mapped[int] = mapped_column(default=0)
    explained: Mapped[float] = mapped_column(default=NAN, nullable=True)
    checks: Mapped[int] = mapped_column(default=0)


class ItemFacts(Base):
    """How an item ended (`tipchain.nightly.nights.ItemRecord`), with its report's contents.

    Attributes:
        row: its number.
        machine_class: what makes times comparable: processor, cores, GPUs; "" where it is not known.
        environment: the versions that its report names.
        chain: the kind of chain (`tipchain.chain.kinds`); "" for what is none, or where nobody said so.
        verdict_count: how many verdicts the history has of it.
        commands: of a chain.
        causes: why it failed, the one that comes first first.
        verdicts: of an alignment.
        judged: verdicts to be stored, each the columns of a row: there are thousands.
    """

    __tablename__ = "item_runs"
    __table_args__ = (sa.UniqueConstraint("entry_id", "item"), sa.Index("ix_item_runs_item", "item", "entry_id"))

    row = mapped_column("id", BIG, primary_key=True)
    entry_id = _below("entries.id")
    id: Mapped[str] = mapped_column("item")
    attempt: Mapped[int]
    outcome: Mapped[Outcome]
    reason: Mapped[str] = mapped_column(default="")
    exit_code: Mapped[int | None] = mapped_column(default=None)
    signal: Mapped[int] = mapped_column(default=0)
    started: Mapped[str] = mapped_column(default="")
    seconds: Mapped[float] = mapped_column(default=0.0)
    peak_memory_mb: Mapped[float] = mapped_column(default=0.0)
    executor: Mapped[str] = mapped_column(default="")
    log: Mapped[str] = mapped_column(default="")
    report: Mapped[str] = mapped_column(default="")
    machine: Mapped[str] = mapped_column(default="")
    machine_class: Mapped[str] = mapped_column(default="")
    environment: Mapped[Texts] = mapped_column(default_factory=dict)
    chain: Mapped[str] = mapped_column(default="")
    verdict_count: Mapped[int] = mapped_column(init=False, default=0)
    commands: Mapped[list[CommandFacts]] = relationship(order_by=CommandFacts.rank, default_factory=list)
    causes: Mapped[list[CauseFacts]] = relationship(order_by=CauseFacts.rank, default_factory=list)
    verdicts: Mapped[list[VerdictFacts]] = relationship(order_by=VerdictFacts.subject, viewonly=True, init=False)
    judged: Sequence[dict[str, object]] = ()

    def __post_init__(self) -> None:
        """Count verdicts; number commands and causes."""
        self.verdict_count = len(self.judged)
        for parts in (self.commands, self.causes):
            for rank, one in enumerate(parts):
                setattr(one, "rank", rank)  # noqa: B010
