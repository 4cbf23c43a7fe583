"""Causes of failures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXTS = ("code_id", "layer_id", "message_id", "fix_id", "file_id")


def upgrade() -> None:
    """Make the table of causes; of what is in the history already none are known."""
    op.create_table(
        "causes",
        sa.Column("item_run_id", BIG, sa.ForeignKey("item_runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("stage", sa.String(32), nullable=False),
        *(sa.Column(name, BIG, sa.ForeignKey("texts.id"), nullable=False) for name in TEXTS),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("explained", sa.Double(), nullable=True),
        sa.Column("checks", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("item_run_id", "rank"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_causes_code", "causes", ["code_id"])
