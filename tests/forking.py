"""The environment in which what needs torch or Paddle is forked from a process that has imported it (tests/forked)."""

import atexit
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
VARIABLE = "TIPCHAIN_FORKED"
"""What names the folder of the sockets, as in forked/sitecustomize.py."""


@cache
def _keeper() -> tuple[subprocess.Popen[str], tempfile.TemporaryDirectory[str]]:
    from tipchain.parity.recorder import model_environment

    # Whatever a test has made the folder for temporary files: a socket's path may have some 100 characters.
    folder = tempfile.TemporaryDirectory(prefix="tipchain-forked-", dir="/tmp")
    command = [sys.executable, str(HERE / "forked" / "sitecustomize.py"), folder.name]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=model_environment(),  # what glibc is told of memory it takes in as a process starts
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    atexit.register(process.communicate)
    return process, folder


def variables(*paths: Path) -> dict[str, str]:
    """Return the variables of forking, with ``paths`` to import from; the forks end with this process."""
    return {VARIABLE: _keeper()[1].name, "PYTHONPATH": os.pathsep.join(map(str, (HERE / "forked", *paths)))}


def environment(*paths: Path) -> dict[str, str]:
    """Return this process's variables with those of forking."""
    return {**os.environ, **variables(*paths)}
