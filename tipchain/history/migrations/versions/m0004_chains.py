"""Kinds of chains."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let an item say which kind of chain it is; "" for what is none, and for all that is in the history already."""
    op.add_column("item_runs", sa.Column("chain", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Forget it."""
    with op.batch_alter_table("item_runs") as table:
        table.drop_column("chain")
