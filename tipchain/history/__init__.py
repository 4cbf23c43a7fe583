"""A database of nights and runs: how everything ended, and changes since."""

VARIABLE = "TIPCHAIN_DATABASE"
