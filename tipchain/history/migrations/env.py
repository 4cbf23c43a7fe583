"""Called by Alembic: the migrations run on the connection, and in the transaction, that the caller has begun."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
