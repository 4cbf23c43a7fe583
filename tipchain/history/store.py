"""The database: opened, brought up to date, written to.

Several processes may add at once. Each item is a transaction of its own, under a key that it can have only once in its
night: what a writer had not finished when it was killed can be added again, and what is there already stays as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tipchain.errors import HistoryError, first_line
from tipchain.history import schema
from tipchain.history.facts import EntryFacts, ItemFacts
from tipchain.history.places import HistoryPlace
from tipchain.runs import replacing_path

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, Engine


# Bringing a database's tables up to date.

MIGRATIONS = Path(__file__).with_name("migrations")
LOCK_KEY = 7_420_113_005
"""Of PostgreSQL's advisory lock: any number that nothing else in the database uses."""
LOCK_TIMEOUT_S = 120.0
READS = "tipchain_reads"
"""Execution option of connections that only read."""


def revision_of(connection: Connection) -> str:
    """Return the revision of a database's tables; "" where it has none of ours."""
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


# Opening, reading and writing.

BUSY_TIMEOUT_S = 30.0
"""How long a writer of an SQLite file waits for others."""
SERVER = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "tipchain",
}
"""How soon a server counts as gone: libpq's options, unless the URL sets them. Source: PostgreSQL, 34.1.2."""
REMEMBERED = 300_000
"""Texts that are remembered as written, so that a night's items do not write the same ones again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What adding an entry came to.

    Attributes:
        name: the entry's.
        new: items that were added.
        known: items that were there already.
    """

    name: str
    new: int
    known: int


class History:
    """An open history.

    Args:
        place: where it is.
        scripts: the folder of the migrations.
        head: the revision that its tables shall have.

    Raises:
        HistoryError: it cannot be reached or made, its tables are of a later tipchain, or the driver is not installed.
    """

    def __init__(self, place: HistoryPlace, *, scripts: Path = MIGRATIONS, head: str = schema.HEAD) -> None:
        self.place = place
        self._written: set[int] = set()
        with self._trouble():
            if place.file is not None:
                place.file.parent.mkdir(parents=True, exist_ok=True)
            self.engine = _engine(place)
            migrate(self.engine, place.file, head, scripts)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one state of the database, however long it reads.

        Raises:
            HistoryError: the database cannot be read.
        """
        with self._trouble(), self.engine.connect() as connection:
            level = "REPEATABLE READ" if self.place.file is None else None
            options: dict[str, Any] = {"isolation_level": level} if level else {}
            yield connection.execution_options(**{READS: True, **options})

    def has(self, key: str) -> bool:
        """Tell whether a night or a report is there to its end.

        Raises:
            HistoryError: the database cannot be read.
        """
        table = schema.entries
        with self.reading() as connection:
            query = sa.select(table.c.id).where(table.c.key == key, table.c.finished)
            return connection.execute(query).first() is not None

    def add(self, entry: EntryFacts, items: Iterable[ItemFacts]) -> Added:
        """Add a night or a report; what is there already is left as it is.

        Raises:
            HistoryError: the database cannot be written to; some of the items may be in it by then.
        """
        new = known = 0
        with self._trouble(), self.engine.connect() as connection:
            with connection.begin():
                number = self._entry(connection, entry)
            for item in items:
                with connection.begin():
                    texts = self._item(connection, number, item)
                if texts is None:
                    known += 1
                    continue
                new += 1
                self._written |= texts if len(self._written) < REMEMBERED else set()
            with connection.begin():
                self._close(connection, number, entry)
        return Added(name=entry.name, new=new, known=known)

    def _entry(self, connection: Connection, entry: EntryFacts) -> int:
        """Return the number of the entry, which is added if need be."""
        self._insert(connection, schema.machines, [schema.machine_row(entry.machine)])
        self._insert(connection, schema.environments, [schema.environment_row(entry.environment)])
        self._insert(connection, schema.entries, [schema.entry_row(entry)])
        key = sa.select(schema.entries.c.id).where(schema.entries.c.key == entry.key)
        return int(connection.execute(key).scalar_one())

    def _close(self, connection: Connection, number: int, entry: EntryFacts) -> None:
        """Note that a night has come to its end, once all its items are there."""
        table = schema.entries
        values = {"seconds": entry.seconds, "finished": entry.finished}
        connection.execute(sa.update(table).where(table.c.id == number, sa.not_(table.c.finished)).values(values))

    def _item(self, connection: Connection, entry: int, item: ItemFacts) -> set[int] | None:
        """Add an item and return the numbers of its texts; None if it is there already."""
        table = schema.item_runs
        own = sa.select(table.c.id).where(table.c.entry_id == entry, table.c.item_id == schema.text_number(item.id))
        if connection.execute(own).first() is not None:
            return None
        self._insert(connection, schema.machines, [schema.machine_row(item.machine)])
        self._insert(connection, schema.environments, [schema.environment_row(item.environment)])
        texts = schema.texts_of(item)
        # In the order of their numbers: two writers that wait for each other's texts would wait for ever.
        wanted = [texts[one] for one in sorted(texts) if one not in self._written]
        self._insert(connection, schema.texts, wanted)
        if not self._insert(connection, table, [schema.item_row(entry, item)]):
            return None
        number = int(connection.execute(own).scalar_one())
        self._insert(connection, schema.verdicts, schema.verdict_rows(number, item))
        self._insert(connection, schema.artifacts, schema.artifact_rows(number, item))
        self._insert(connection, schema.causes, schema.cause_rows(number, item))
        self._insert(connection, schema.command_runs, schema.command_rows(number, item))
        if any(command.figures for command in item.commands):
            runs = schema.command_runs
            found = connection.execute(sa.select(runs.c.command_id, runs.c.id).where(runs.c.item_run_id == number))
            numbers = {int(command): int(run) for command, run in found}
            self._insert(connection, schema.figures, schema.figure_rows(numbers, item))
        return set(texts)

    def _insert(self, connection: Connection, table: sa.Table, values: list[dict[str, Any]]) -> int:
        """Insert the rows whose keys are not there yet; return how many, where it was one."""
        if not values:
            return 0
        make = sqlite.insert if self.place.file is not None else postgresql.insert
        statement = make(table).on_conflict_do_nothing().inline()
        return int(connection.execute(statement, values if len(values) > 1 else values[0]).rowcount)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
            reason = self.place.without_secrets(first_line(cause))
            raise HistoryError(f"the history in {self.place} cannot be used: {reason}") from None
        except OSError as error:
            raise HistoryError(f"the history in {self.place} cannot be used: {error.strerror or error}") from error
        except HistoryError as error:
            message = str(error)
            raise error if str(self.place) in message else HistoryError(f"{self.place}: {message}") from None
        except ImportError as error:
            raise HistoryError(
                f"the history in {self.place} needs a driver that is not installed: {error}\n"
                '  hint: pip install "tipchain[postgres]"'
            ) from error


def _engine(place: HistoryPlace) -> Engine:
    from sqlalchemy.pool import NullPool

    if place.file is None:
        given = place.url.query
        arguments = {name: value for name, value in SERVER.items() if name not in given}
        return sa.create_engine(place.url, poolclass=NullPool, connect_args=arguments, hide_parameters=True)
    engine = sa.create_engine(
        place.url, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_S}, hide_parameters=True
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _: object) -> None:
    """Prepare a new connection to an SQLite file: transactions begin when we say so."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(
        "PRAGMA synchronous=NORMAL"
    )  # in WAL mode a crash loses no consistency. Source: sqlite.org/pragma
    connection.execute("PRAGMA cache_size=-65536")


def _begin(connection: Connection) -> None:
    """Begin a transaction; a writer's at once as one, or it fails where another wrote after it began to read."""
    reads = connection.get_execution_options().get(READS)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
