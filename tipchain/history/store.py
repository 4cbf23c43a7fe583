"""The database: where it is, opened, written to."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from filelock import FileLock
from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from tipchain.errors import HistoryError, UsageError, first_line
from tipchain.history import VARIABLE
from tipchain.history.schema import VERSION, Base, Entry, ItemFacts, TablesVersion, VerdictFacts

FOLDER, FILE = ".tipchain", "history.sqlite"
DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
EXPECTED = "postgresql://user:password@host:5432/name, sqlite:////path, or the path of an SQLite file"
HIDDEN = "***"
_NO_SCHEME = re.compile(r":[^/]*@|\bpassword\s*=|(?:postgres(?:ql)?(?:\+\w+)?|sqlite|mysql)(?::|//)", re.IGNORECASE)
"""The form of a URL without its ``://``, and words for libpq, which a file's path does not have."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HistoryPlace:
    """Where a history is.

    Attributes:
        root: the project's folder.
        url: SQLAlchemy's URL, with a password where there is one: never to be shown.
    """

    root: Path
    url: URL

    @property
    def file(self) -> Path | None:
        """SQLite's file; None for a server."""
        return Path(str(self.url.database)) if self.url.get_backend_name() == "sqlite" else None

    def __str__(self) -> str:
        return str(self.file) if self.file else self.url.set(query={}).render_as_string(hide_password=True)

    def without_secrets(self, text: str) -> str:
        """Return ``text`` with the passwords replaced, in case a driver's message quotes them."""
        query = self.url.normalized_query.items()
        secrets = [str(self.url.password or ""), *(one for name, values in query if "pass" in name for one in values)]
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            for one in (secret, quote(secret, safe=""), quote_plus(secret)):
                text = text.replace(one, HIDDEN)
        return text


def place_of(root: Path, database: str | None = None) -> HistoryPlace:
    """Return where the history of the project in ``root`` is.

    Args:
        root: the project's folder.
        database: a URL (``postgresql://user@host/name``, ``sqlite:////absolute/path``) or the path of an SQLite file;
            None for what TIPCHAIN_DATABASE says, and else for ``.tipchain/history.sqlite`` below the root.

    Raises:
        UsageError: the URL cannot be understood, or names a database of another kind.
    """
    text = database or os.environ.get(VARIABLE) or str(root / FOLDER / FILE)
    if "://" not in text and _NO_SCHEME.search(text):  # shown nowhere, for a password may stand in it
        raise UsageError(f"the database's name is no path of a file, and no URL: it has no ://\n  expected: {EXPECTED}")
    if "://" not in text:
        return HistoryPlace(root=root, url=URL.create("sqlite", database=str(Path(text).absolute())))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # its message may quote the URL, and with it the password
        raise UsageError(
            f"the database's URL cannot be read\n  expected: {EXPECTED}\n"
            "  hint: @ : / and % within a password are written %40 %3A %2F %25"
        ) from None
    if url.drivername not in DRIVERS:
        raise UsageError(
            f"the history cannot be kept in a database of the kind {url.drivername}\n"
            "  expected: postgresql:// or sqlite://"
        )
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise UsageError("a history in SQLite needs a file\n  expected: sqlite:////path, or the file's path")
        return HistoryPlace(root=root, url=url.set(database=str(Path(url.database).absolute())))
    return HistoryPlace(root=root, url=url.set(drivername=DRIVERS[url.drivername]))


# Making the tables at first use.

LOCK_KEY = 7_420_113_005
"""Of PostgreSQL's advisory lock: any number that nothing else in the database uses."""
READS = "tipchain_reads"
"""Execution option of connections that only read."""


def make_tables(engine: Engine, file: Path | None) -> None:
    """Make the tables where they are not there yet, in one transaction, by one process at a time.

    Args:
        engine: of the database.
        file: SQLite's file; None for a server.

    Raises:
        HistoryError: the tables are of another version, or not ours.
        sqlalchemy.exc.SQLAlchemyError: the database refuses.
    """
    with engine.execution_options(**{READS: True}).connect() as connection:
        if _has_tables(connection):
            return
    if file is not None:
        with FileLock(file.with_name(f".{file.name}.lock")), closing(sqlite3.connect(file)) as plain:
            plain.execute("PRAGMA journal_mode=WAL")  # it can be written to while it is read
    with engine.begin() as connection:
        if file is None:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
        if not _has_tables(connection):
            Base.metadata.create_all(connection)
            connection.execute(sa.insert(TablesVersion).values(version=VERSION))


def _has_tables(connection: Connection) -> bool:
    names = sa.inspect(connection).get_table_names()
    if TablesVersion.__tablename__ not in names:
        if Entry.__tablename__ in names:
            raise HistoryError(
                "the database holds tables that are not a history's\n"
                f"  found: {', '.join(sorted(names)[:5])}\n"
                "  expected: an empty database, or one that tipchain made"
            )
        return False
    found = connection.execute(sa.select(TablesVersion.version)).scalar()
    if found != VERSION:
        raise HistoryError(
            "the history was written by another version of tipchain\n"
            f"  found: tables of version {found}\n"
            f"  expected: {VERSION}\n"
            "  hint: name another database with --database; tipchain history add fills it anew"
        )
    return True


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


class History:
    """An open history.

    Args:
        place: where it is.

    Raises:
        HistoryError: it cannot be reached or made, its tables are of another tipchain, or the driver is not installed.
    """

    def __init__(self, place: HistoryPlace) -> None:
        self.place = place
        with self._trouble():
            if place.file is not None:
                folder = place.file.parent
                folder.mkdir(parents=True, exist_ok=True)
                if folder == place.root / FOLDER and not (folder / ".gitignore").exists():
                    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
            arguments: dict[str, object] = {"timeout": BUSY_TIMEOUT_S}
            if place.file is None:
                arguments = {name: value for name, value in SERVER.items() if name not in place.url.query}
            self.engine = sa.create_engine(place.url, poolclass=NullPool, connect_args=arguments, hide_parameters=True)
            if place.file is not None:
                event.listen(self.engine, "connect", _configure)
                event.listen(self.engine, "begin", _begin)
            make_tables(self.engine, place.file)
            self._session = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session that sees one state of the database, however long it reads.

        Raises:
            HistoryError: the database cannot be read.
        """
        level = {} if self.place.file is not None else {"isolation_level": "REPEATABLE READ"}
        with self._trouble(), self._session() as session:
            session.connection(execution_options={READS: True, **level})
            yield session

    def has(self, key: str) -> bool:
        """Tell whether a night or a report is there to its end.

        Raises:
            HistoryError: the database cannot be read.
        """
        with self.reading() as session:
            return session.scalar(sa.select(Entry.finished).where(Entry.key == key)) or False

    def add(self, entry: Entry, items: Iterable[ItemFacts]) -> int:
        """Add a night or a report, and return how many of its items are new; existing ones are left as they are.

        Each item is a transaction of its own: what a writer that was killed had not finished can be added again.

        Raises:
            HistoryError: the database cannot be written to; some of the items may be in it by then.
        """
        if self.has(entry.key):
            return 0
        new = 0
        own = Entry.key == entry.key
        with self._trouble():
            self._add(replace(entry, finished=False), sa.select(Entry.row).where(own))
            with self._session() as session:
                row = session.scalars(sa.select(Entry.row).where(own)).one()
            for item in items:
                item.entry_id = row
                there = sa.select(ItemFacts.row).where(ItemFacts.entry_id == row, ItemFacts.id == item.id)
                new += self._add(item, there)
            # Note that a night has come to its end, once all its items are there.
            end = sa.update(Entry).where(own, sa.not_(Entry.finished))
            with self._session.begin() as session:
                session.execute(end.values(seconds=entry.seconds, finished=entry.finished))
        return new

    def _add(self, row: Entry | ItemFacts, there: sa.Select[Any]) -> bool:
        """Add a row with the rows below it, unless it is there."""
        with suppress(IntegrityError), self._session.begin() as session:  # another process added it meanwhile
            if session.scalar(there) is not None:
                return False
            session.add(row)
            session.flush()
            if isinstance(row, ItemFacts) and row.judged:
                session.execute(sa.insert(VerdictFacts), [{**one, "item_run_id": row.row} for one in row.judged])
            return True
        return False

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


def _configure(connection: sqlite3.Connection, _: object) -> None:
    """Prepare a new connection to an SQLite file: transactions begin when we say so."""
    connection.isolation_level = None
    # With synchronous=NORMAL a crash loses no consistency in WAL mode. Source: sqlite.org/pragma
    for pragma in ("foreign_keys=ON", "synchronous=NORMAL", "cache_size=-65536"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    """Begin a transaction; a writer's at once as one, or it fails where another wrote after it began to read."""
    reads = connection.get_execution_options().get(READS)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
