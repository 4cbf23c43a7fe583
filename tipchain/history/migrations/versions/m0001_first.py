"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False)


def _number(name: str, *, nullable: bool = True) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _link(name: str, target: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, BIG, sa.ForeignKey(target), nullable=nullable)


def _part(name: str, target: str) -> sa.Column[int]:
    return sa.Column(name, BIG, sa.ForeignKey(target, ondelete="CASCADE"), nullable=False)


def _named(name: str) -> sa.Column[int]:
    return sa.Column(name, BIG, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Make the tables."""
    op.create_table("texts", _named("id"), _text("text"))
    op.create_table("environments", _named("id"), _text("facts"))
    op.create_table("machines", _named("id"), _text("name"), _text("machine_class"))
    op.create_table(
        "entries",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        _text("name"),
        _text("title"),
        _number("began", nullable=False),
        _text("started"),
        _number("seconds", nullable=False),
        sa.Column("finished", sa.Boolean(), nullable=False),
        _text("commit_id"),
        _text("root"),
        _link("machine_id", "machines.id"),
        _link("environment_id", "environments.id"),
        sa.UniqueConstraint("key", name="uq_entries_key"),
    )
    op.create_index("ix_entries_name", "entries", ["name"])
    op.create_index("ix_entries_title_began", "entries", ["kind", "title", "began"])
    _make_item_runs()
    op.create_table(
        "figures",
        _part("command_run_id", "command_runs.id"),
        _link("name_id", "texts.id"),
        _number("value"),
        sa.PrimaryKeyConstraint("command_run_id", "name_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "artifacts",
        _part("item_run_id", "item_runs.id"),
        _link("path_id", "texts.id"),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("item_run_id", "path_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "verdicts",
        _part("item_run_id", "item_runs.id"),
        _link("subject_id", "texts.id"),
        sa.Column("outcome", sa.SmallInteger(), nullable=False),
        _link("reason_id", "texts.id"),
        _link("tensors_id", "texts.id"),
        sa.Column("finite", sa.Boolean(), nullable=False),
        sa.Column("size", BIG, nullable=False),
        *(
            _number(name)
            for name in ("mean_abs", "max_abs", "min_abs", "max_rel", "needed_atol", "rtol", "expected_max_abs")
        ),
        sa.PrimaryKeyConstraint("item_run_id", "subject_id"),
        sqlite_with_rowid=False,
    )


def _make_item_runs() -> None:
    op.create_table(
        "item_runs",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        _part("entry_id", "entries.id"),
        _link("item_id", "texts.id"),
        _whole("attempt"),
        sa.Column("outcome", sa.SmallInteger(), nullable=False),
        _link("reason_id", "texts.id"),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        _whole("signal"),
        _text("started"),
        _number("seconds", nullable=False),
        _number("peak_memory_mb", nullable=False),
        _text("executor"),
        _text("log"),
        _text("report"),
        _link("machine_id", "machines.id"),
        _link("environment_id", "environments.id"),
        _whole("verdict_count"),
        sa.UniqueConstraint("entry_id", "item_id", name="uq_item_runs_entry_item"),
    )
    op.create_index("ix_item_runs_item", "item_runs", ["item_id", "entry_id"])
    op.create_table(
        "command_runs",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        _part("item_run_id", "item_runs.id"),
        _link("command_id", "texts.id"),
        sa.Column("step", sa.String(16), nullable=False),
        _text("argv"),
        sa.Column("outcome", sa.SmallInteger(), nullable=False),
        _link("reason_id", "texts.id"),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.String(32), nullable=False),
        _text("started"),
        _number("seconds", nullable=False),
        _number("peak_memory_mb", nullable=False),
        _text("log"),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.UniqueConstraint("item_run_id", "command_id", name="uq_command_runs_item_command"),
    )
