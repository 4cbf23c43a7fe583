"""Run folders, and files that several runs write.

``out/runs/<time-id>/`` holds one run whole; ``results_python.log`` and ``alignment.log`` in ``out`` are
appended to, one record per write, under a lock. The latest runs keep their large files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from tipchain import __version__
from tipchain.errors import OutputError, TipchainError, UsageError

RUN_VARIABLE = "TIPCHAIN_RUN"
DATA_VARIABLE = "TIPCHAIN_DATA"
MODE_VARIABLE = "TIPCHAIN_MODE"
ROOT_VARIABLE = "TIPCHAIN_ROOT"
"""The project's root, where ``--root`` says it: of every process that a command starts."""

LARGE = (".safetensors", ".pdparams", ".pdopt", ".pdiparams")
_NAME = re.compile(r"2\d{3}[01]\d[0-3]\d-[0-2]\d[0-5]\d[0-5]\d-[0-9a-f]{5}")
"""A folder's time, with its microseconds."""
RUN_LOCK = ".lock"
"""Held by the process of a run, in the run's folder."""


def find_root(path: Path) -> Path:
    """Return where imports and paths start for a file.

    It is what ``--root`` says, else the nearest folder above with a pyproject.toml or a test_tipc, else its own.
    """
    given = os.environ.get(ROOT_VARIABLE)
    return Path(given).resolve() if given else project_above(path.resolve().parent)


def project_above(folder: Path) -> Path:
    """Return the nearest folder, from ``folder`` up, with a pyproject.toml or test_tipc, else ``folder``."""
    for one in (folder, *folder.parents):
        if (one / "pyproject.toml").is_file() or (one / "test_tipc").is_dir():
            return one
    return folder


def made_in(root: Path, what: Literal["output", "data"]) -> Path:
    """Return where runs and weights of a project go: in ``test_tipc`` of a TIPC checkout, else in ``tipchain-output``."""
    folder = root / "test_tipc"
    if (folder / "configs").is_dir() or any(folder.glob("*.sh")):
        return folder / what
    return root / "tipchain-output" if what == "output" else root / "tipchain-output" / "data"


def root_of_callables() -> Path:
    """Return the root of a command line's callables: ``--root``, else the working folder."""
    return Path(os.environ.get(ROOT_VARIABLE) or Path.cwd()).resolve()


def new_run(out: Path) -> Path:
    """Make and return a new folder ``out/runs/<time-id>``, never one that exists.

    The run is held, by a lock in its folder, until this process ends: `prune` leaves it alone.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        path = new_folder(out / "runs")
    except OSError as error:
        raise UsageError(f"cannot write below {out}: {error.strerror}") from error
    hold_run(path)
    return path


def new_folder(above: Path) -> Path:
    """Make and return a folder whose name sorts by time.

    Its name tells when, in local time, unless an earlier one seems to be later: a clock was set back, or summer time
    ended. Then it is named as the one after that.

    Raises:
        OSError: it cannot be made.
    """
    above.mkdir(parents=True, exist_ok=True)
    while True:
        now = datetime.now().astimezone()
        earlier = (one for one in os.listdir(above) if _NAME.fullmatch(one))  # noqa: PTH208 - names alone
        names = [
            f"{now:%Y%m%d-%H%M%S}-{now.microsecond:05x}",
            *(f"{one[:16]}{int(one[16:], 16) + 1:05x}" for one in earlier),
        ]
        folder = above / max(names)
        with suppress(FileExistsError):
            folder.mkdir()
            return folder


def hold_run(path: Path) -> None:
    """Hold the run in the folder ``path`` until this process ends, however it ends.

    Raises:
        UsageError: another process holds it, so the run still goes on; or nothing can be written there.
    """
    try:
        take_lock(path / RUN_LOCK)
    except BlockingIOError:
        raise UsageError(f"{path}: this run still goes on, in another process") from None
    except OSError as error:
        raise UsageError(f"{path}: this run cannot be continued: {error.strerror}") from error


def take_lock(path: Path, told: str = "", *, mode: int = 0o666, flags: int = 0) -> int:
    """Lock a file without waiting, and return the handle that holds the lock.

    Args:
        path: the file.
        told: what it shall say about who holds it; on a full disk it says nothing.
        mode: of a file that is made.
        flags: for `os.open`, besides the usual ones.

    Raises:
        BlockingIOError: another process holds it.
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | flags, mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    if told:
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, told.encode(), 0)
    return handle


def prune(out: Path, keep: int = 2) -> int:
    """Remove weights and gradients of all but the ``keep`` latest runs; return bytes freed.

    Logs, dumps and reports stay, and so does all that a run still going on has, or that another user owns.
    """
    freed = 0
    for run in sorted((out / "runs").glob("*/"))[: -keep or None]:
        # Held, another user's, on a disk that is read-only: what cannot be removed stays, and hinders no run.
        with suppress(OSError), os.fdopen(take_lock(run / RUN_LOCK)):
            for file in run.rglob("*"):
                if file.suffix in LARGE and file.is_file() and not file.is_symlink():
                    stat = file.stat()
                    file.unlink()
                    freed += stat.st_size if stat.st_nlink == 1 else 0
    return freed


def append(path: Path, text: str) -> None:
    """Append a record, newline added if missing, to ``path`` in one write under a lock."""
    from filelock import FileLock

    record = text if text.endswith("\n") else text + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")), path.open("ab") as file:
        file.write(record.encode(errors="backslashreplace"))


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a file to write, which takes ``path``'s place if the block ends well.

    The name ends as ``path`` does, for writers that look at the suffix. A link stays one: what it names is replaced.
    A device or a pipe (``/dev/null``) is written to as it stands: root would replace it for everybody.

    Raises:
        OSError: the disk is full, the folder cannot be written, or ``path`` is one; it is then untouched.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir():
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    if path.exists() and not path.is_file():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.urandom(4).hex()}.{path.name}")
    try:
        yield beside
        os.replace(beside, path)  # noqa: PTH105
    finally:
        beside.unlink(missing_ok=True)  # also after the rename: a file is not renamed over another name of itself


def check_writable(targets: Mapping[str, str | Path | None]) -> None:
    """Refuse, before a long run, files that could not be written after it.

    Where the file's folder is not there yet, what counts is whether the folder above could hold it.

    Args:
        targets: by the option that names it, the file; None and ``-`` (standard output) need no check.

    Raises:
        UsageError: one cannot be written, and why.
    """
    for option, target in targets.items():
        if target in (None, "-"):
            continue
        # What writing would raise is raised here, without writing.
        with writing(f"{option} {target}", UsageError):
            path = Path(str(target))
            path = path.resolve() if path.is_symlink() else path
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if path.exists() and not path.is_file():  # a device or a pipe: opening it may block
                if not os.access(path, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
                continue
            folder = next(one for one in path.parents if one.exists())
            beside = folder / f".{os.urandom(4).hex()}.{path.name}"
            beside.open("xb").close()
            beside.unlink()


@contextmanager
def writing(target: object, error: type[TipchainError] = OutputError) -> Iterator[None]:
    """Raise an error that names the user's file if it cannot be written."""
    try:
        yield
    except OSError as problem:
        raise error(f"{target}: cannot be written: {problem.strerror or problem}") from problem


def atomic_write(path: Path, data: bytes | str) -> None:
    """Replace ``path`` by ``data``, whole or not at all; of a text, bytes of a path's name that are no UTF-8 are escaped."""
    with replacing_path(path) as beside:
        beside.write_bytes(data.encode(errors="backslashreplace") if isinstance(data, str) else data)


def files_below(folder: Path) -> list[str]:
    """Return the posix paths of all files and links below ``folder``, sorted."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, read piece by piece."""
    import hashlib

    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def commit(folder: Path) -> str:
    """Return the short git commit of ``folder``, with ``-dirty`` for local changes; "" outside git."""
    return git(folder, "describe", "--always", "--dirty")


def git(folder: Path, *words: str) -> str:
    """Return git's output; "" without git, a repository or the commit."""
    import subprocess

    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def local_time(precision: str = "seconds") -> str:
    """Return the time now in ISO 8601, with the local offset."""
    return datetime.now().astimezone().isoformat(timespec=precision)


def run_header(run: Path, facts: Mapping[str, str]) -> str:
    """Return the comment lines that head a run in an appended log."""
    facts = {"time": local_time(), "tipchain": __version__, **facts}
    return f"# ==== run {run.name} ====\n# " + " ".join(f"{key}={value}" for key, value in facts.items() if value)
