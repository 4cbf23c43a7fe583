"""A database of nights and runs: what ended how, what changed since."""

VARIABLE = "TIPCHAIN_DATABASE"
