"""The history's tables, as SQLAlchemy knows them.

::

    entries        a night, or a single report of ``tipchain run`` or ``align``
      item_runs    how an item ended in it (a report is one item)
        command_runs   the commands of a chain
          figures      numbers of their logs: metrics and speeds
        verdicts       judgements about tensors, with the statistics of the difference
        causes         what makes verdicts fail, with what to change
        artifacts      SHA-256 of files
    machines, environments, texts    what repeats: stored once, referred to by number

The number of a text, a machine or an environment is a hash of what it says. Writers need not look it up, and two of
them never give it two numbers. NaN is NULL in columns of numbers, as SQLite has none. What each column means stands in
`tipchain.history.facts`. The tables are made by `tipchain.history.migrations`, never from here.
"""

from __future__ import annotations

import hashlib

import sqlalchemy as sa

from tipchain.outcome import Outcome

HEAD = "0003"
"""The revision of the tables below."""
OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.SKIP)
"""An outcome's number is its place here."""

metadata = sa.MetaData()
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up INTEGER keys only


def number_of(text: str) -> int:
    """Return the number of a text: 63 bits of a hash of it.

    Two of a million texts share one with a chance of 5e-8.
    """
    return (
        int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")
        >> 1
    )


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
