"""Nights that are shares of one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let an entry say which share of a night it is, as JSON; "" for what is none."""
    op.add_column("entries", sa.Column("part", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Forget it."""
    with op.batch_alter_table("entries") as table:
        table.drop_column("part")
