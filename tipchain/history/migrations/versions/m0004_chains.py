"""Kinds of chains."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Let an item say which kind of chain it is; "" for what is none, and for all that is in the history already."""
    op.add_column("item_runs", sa.Column("chain", sa.Text(), nullable=False, server_default=""))
