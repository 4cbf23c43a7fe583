"""A PostgreSQL server of the tests' own, on loopback, as an ordinary user: the server refuses to be root's."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER, PASSWORD = "tipchain", "s3cret/word"  # the slash has to be escaped in a URL
ORDINARY = "nobody"


def programs() -> Path | None:
    """Return the folder with initdb and postgres; None where there is none."""
    found = shutil.which("initdb")
    # A link in the PATH leads to where the server's other files are.
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((one for one in places if (one / "initdb").is_file() and (one / "postgres").is_file()), None)


def missing() -> str:
    """Return why no server can be started here; "" if one can."""
    if programs() is None:
        return "no initdb: neither in PATH nor below /usr/lib/postgresql (Debian: apt-get install postgresql)"
    if os.getuid() == 0:
        try:
            pwd.getpwnam(ORDINARY)
        except KeyError:
            return f"PostgreSQL refuses root, and there is no user {ORDINARY}"
    return ""


class Server:
    """A server that can be stopped as if the machine were gone, and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.data, self.folder = programs(), folder / "data", folder
        self.process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.databases = 0

    def _as_user(self) -> dict[str, object]:
        return (
            {"user": ORDINARY, "group": pwd.getpwnam(ORDINARY).pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
        )

    def make(self) -> None:
        if os.getuid() == 0:
            shutil.chown(self.folder, ORDINARY)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        subprocess.run(
            [self.bin / "initdb", "-D", self.data, "-U", USER, "--pwfile", secret, "--auth=scram-sha-256",
             "--no-sync", "--encoding=UTF8", "--locale=C"],
            check=True, capture_output=True, cwd=self.folder, **self._as_user(),
        )  # fmt: skip

    def start(self) -> None:
        assert self.process is None
        settings = f"-p {self.port} -c fsync=off -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self.process = subprocess.Popen(
            [self.bin / "postgres", "-D", self.data, *settings.split()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            **self._as_user(),
        )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, "postgres ended"
            assert time.monotonic() < deadline, "postgres does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        ready = [self.bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self) -> None:
        """End the server at once, with all its connections."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)
            self.process = None

    def url(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://{USER}:{password.replace('/', '%2F')}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        import psycopg

        self.databases += 1
        name = f"history{self.databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


@contextmanager
def running_server() -> Iterator[Server]:
    """Yield a server that runs; nothing of it is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="tipchain-postgres-", dir="/tmp"))
    server = Server(folder)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
