"""Programs that tests start and wait for, and what is waited for meanwhile."""

import errno
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def completed(words: Any, *, check: bool = False, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return it with what it printed."""
    return subprocess.run(words, capture_output=True, text=True, check=check, **more)


def await_(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, as somebody with a name, and return what it printed."""
    name = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    return completed(["git", "-C", folder, *name, *words], check=True).stdout.strip()


def commit_all(folder: Path) -> None:
    """Make a folder a repository whose one commit has all its files."""
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")


def commit_once_more(folder: Path, name: str, message: str) -> str:
    """Write another text to a file of a repository, commit it, and return the short hash."""
    with (folder / name).open("a") as file:
        file.write(f"{message}\n")
    git(folder, "add", name)
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "--short", "HEAD")


def full_disk(*_args: Any, **_more: Any) -> None:
    """Stand in place of what writes, where there is no room left."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_full_disk(_state: Any, path: str) -> None:
    """Stand in place of what writes to ``path``, where there is room for a half."""
    Path(path).write_text("half")
    full_disk()
