"""The tables that a new history gets (`tipchain.history.store`); the first change of them comes after this."""

revision = "0004"
down_revision = None
