"""Bringing a database's tables up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.errors import HistoryError
from tipchain.runs import replacing_path

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, Engine

MIGRATIONS = Path(__file__).with_name("migrations")
LOCK_KEY = 7_420_113_005
"""Of PostgreSQL's advisory lock: any number that nothing else in the database uses."""
LOCK_TIMEOUT_S = 120.0
READS = "tipchain_reads"
"""Execution option of connections that only read."""


def revision_of(connection: Connection) -> str:
    """Return the revision of a database's tables; "" where it has none of ours."""
    import sqlalchemy as sa

    if not sa.inspect(connection).has_table("alembic_version"):
        return ""
    return str(connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() or "")


def migrate(engine: Engine, file: Path | None, head: str, scripts: Path = MIGRATIONS) -> None:
    """Bring the tables to revision ``head``; nothing happens where they are there already.

    One process at a time does it. An SQLite file is copied first, to ``<name>.<old revision>.backup`` beside it.

    Args:
        engine: of the database.
        file: SQLite's file; None for a server.
        head: the revision that is wanted.
        scripts: the folder of the migrations.

    Raises:
        HistoryError: the tables are of a later tipchain, or are not ours.
        OSError: the copy cannot be written.
        sqlalchemy.exc.SQLAlchemyError: the database refuses.
    """
    reader = engine.execution_options(**{READS: True})
    with reader.connect() as connection:
        if revision_of(connection) == head:
            return
    with _only_one(engine, file):
        with reader.connect() as connection:
            found = revision_of(connection)
            _check(connection, found, scripts)
        if found == head:
            return
        if file is not None:
            _prepare(file, found)
        _upgrade(engine, head, scripts)


def _config(scripts: Path) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _check(connection: Connection, found: str, scripts: Path) -> None:
    """Refuse a database that is later than the migrations, or somebody else's."""
    import sqlalchemy as sa
    from alembic.script import ScriptDirectory

    known = [one.revision for one in ScriptDirectory.from_config(_config(scripts)).walk_revisions()]
    if found and found not in known:
        raise HistoryError(
            f"the history was written by a later tipchain\n"
            f"  found: tables of revision {found}\n"
            f"  expected: {known[0]} or earlier\n"
            "  hint: update tipchain here, or name another database with --database"
        )
    names = sa.inspect(connection).get_table_names()
    if not found and "entries" in names:
        raise HistoryError(
            "the database holds tables that are not a history's\n"
            f"  found: {', '.join(sorted(names)[:5])}\n"
            "  expected: an empty database, or one that tipchain made"
        )


def _upgrade(engine: Engine, head: str, scripts: Path) -> None:
    from alembic import command

    config = _config(scripts)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, head)


def _prepare(file: Path, found: str) -> None:
    """Copy an SQLite file that holds something, and let it be written to while it is read (WAL)."""
    with closing(sqlite3.connect(file, timeout=LOCK_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        if found:
            backup = file.with_name(f"{file.name}.{found}.backup")
            with replacing_path(backup) as beside, closing(sqlite3.connect(beside)) as copy:
                connection.backup(copy)


@contextmanager
def _only_one(engine: Engine, file: Path | None) -> Iterator[None]:
    """Hold the lock for changing tables: a file's beside it, a server's in the database."""
    import sqlalchemy as sa

    if file is not None:
        from filelock import FileLock, Timeout

        try:
            with FileLock(file.with_name(f".{file.name}.lock"), timeout=LOCK_TIMEOUT_S):
                yield
        except Timeout:
            raise HistoryError(
                f"{file}: another process has been changing its tables for {LOCK_TIMEOUT_S:g} s"
            ) from None
        return
    with engine.connect() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_lock(LOCK_KEY)))
        try:
            yield
        finally:
            connection.execute(sa.select(sa.func.pg_advisory_unlock(LOCK_KEY)))
