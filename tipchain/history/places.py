"""Where the history is: a file in the project's folder, or a database that is named by a URL."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from tipchain.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL

VARIABLE = "TIPCHAIN_DATABASE"
FOLDER, FILE, OUTBOX = ".tipchain", "history.sqlite", "outbox"
DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
SHOWN = frozenset(
    """
    host hostaddr port dbname user connect_timeout client_encoding options application_name
    fallback_application_name keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout
    replication gssencmode sslmode sslnegotiation sslcompression sslcert sslkey sslrootcert sslcrl sslcrldir
    sslsni requirepeer krbsrvname gsslib ssl_min_protocol_version ssl_max_protocol_version target_session_attrs
    load_balance_hosts channel_binding passfile service timeout mode cache uri
""".split()
)
"""What may stand in a URL's query and be shown: the options of libpq and SQLite that are no secrets."""
HIDDEN = "***"
_NO_SCHEME = re.compile(r":[^/]*@|\bpassword\s*=|(?:postgres(?:ql)?(?:\+\w+)?|sqlite|mysql)(?::|//)", re.IGNORECASE)
"""What a path of a file does not look like, but a URL without its ``://`` does, and words for libpq do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPlace:
    """Where a history is.

    Attributes:
        url: SQLAlchemy's URL, with a password where there is one: never to be shown.
        outbox: folder for what could not be written.
    """

    url: URL
    outbox: Path

    @property
    def file(self) -> Path | None:
        """SQLite's file; None for a server."""
        return Path(str(self.url.database)) if self.url.get_backend_name() == "sqlite" else None

    def __str__(self) -> str:
        return str(self.file) if self.file else _shown(self.url)

    def __repr__(self) -> str:
        return f"Place({self})"

    def without_secrets(self, text: str) -> str:
        """Return ``text`` with the passwords replaced, in case a driver's message quotes them."""
        for secret in sorted(filter(None, _secrets(self.url)), key=len, reverse=True):
            for one in (secret, quote(secret, safe=""), quote_plus(secret)):
                text = text.replace(one, HIDDEN)
        return text


def _secrets(url: URL) -> Iterator[str]:
    """Yield the password of a URL, and the values in its query that are not known to be none."""
    yield str(url.password or "")
    for name, values in url.normalized_query.items():
        if name.lower() not in SHOWN:
            yield from values


def _shown(url: URL) -> str:
    query = {name: values if name.lower() in SHOWN else (HIDDEN,) for name, values in url.normalized_query.items()}
    return url.set(query=query).render_as_string(hide_password=True).replace("%2A%2A%2A", HIDDEN)


def root_of(folder: Path) -> Path:
    """Return the nearest folder, from ``folder`` upwards, that has a ``pyproject.toml`` or ``test_tipc``.

    Where none has, it is ``folder``.
    """
    folder = folder.absolute()
    for one in (folder, *folder.parents):
        if (one / "pyproject.toml").is_file() or (one / "test_tipc").is_dir():
            return one
    return folder


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
    url = _url(text)
    plain = url.set(password=None)
    plain = plain.difference_update_query([name for name in url.query if name.lower() not in SHOWN])
    digest = hashlib.sha256(plain.render_as_string().encode()).hexdigest()[:12]
    return HistoryPlace(url=url, outbox=root / FOLDER / OUTBOX / digest)


def make_folder(root: Path) -> None:
    """Make the project's ``.tipchain``, which git does not see.

    Raises:
        OSError: it cannot be made.
    """
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _url(text: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import ArgumentError

    if "://" not in text and _NO_SCHEME.search(text):  # shown nowhere, for a password may stand in it
        raise UsageError(
            "the database's name is no path of a file, and no URL: it has no ://\n"
            "  expected: postgresql://user:password@host:5432/name, sqlite:////path, or the path of an SQLite file"
        )
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # its message may quote the URL, and with it the password
        raise UsageError(
            "the database's URL cannot be read\n"
            "  expected: postgresql://user:password@host:5432/name, sqlite:////path, or the path of an SQLite file\n"
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
        return url.set(database=str(Path(url.database).absolute()))
    return url.set(drivername=DRIVERS[url.drivername])
