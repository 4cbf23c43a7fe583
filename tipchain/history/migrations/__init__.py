"""What turns an older history into one of today; Alembic runs it."""
