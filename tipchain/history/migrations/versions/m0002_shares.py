"""Nights that are shares of one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Let an entry say which share of a night it is, as JSON; "" for what is none."""
    op.add_column("entries", sa.Column("part", sa.Text(), nullable=False, server_default=""))
