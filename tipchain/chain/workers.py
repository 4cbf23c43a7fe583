"""Logs of the worker processes that ``paddle.distributed.launch`` starts.

Without more ado every launch writes to ``./log/workerlog.N``, over what the one before wrote there. The launcher
reads ``PADDLE_LOG_DIR`` as the default of ``--log_dir`` (paddle/distributed/launch/context/args_envs.py), so each
command gets a folder of its own beside its log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from tipchain.chain.process import last_lines

VARIABLE = "PADDLE_LOG_DIR"
LAUNCHERS = ("paddle.distributed.launch", "fleetrun")
TAIL_BYTES = 65536
_ERROR = re.compile(
    r"Traceback \(most recent call last\)|\w*(?:Error|Exception)\b|\bFatal\b|terminate called|\bSIG[A-Z]{3,}\b"
    r"|[Oo]ut of memory"
)


def worker_folder(log: Path) -> Path:
    """Return the folder for the logs of the workers of the command whose own log is ``log``."""
    return log.with_name(f"{log.stem}-workers")


def names_folder(argv: Sequence[str]) -> bool:
    """Tell whether a launching command says itself where its workers shall log to.

    What stands after the program to launch is the program's own.
    """
    start = next((index for index, word in enumerate(argv) if word in LAUNCHERS), -1) + 1
    own = takewhile(lambda word: not word.endswith(".py"), argv[start:])
    return any(word.partition("=")[0] in ("--log_dir", "--log-dir") for word in own)


def worker_error(folder: Path, count: int = 20) -> tuple[str, tuple[str, ...]]:
    """Return name and last lines of the first worker's log that tells of an error; ("", ()) if none does."""
    for path in sorted(folder.glob("workerlog.*"), key=_number):
        lines: tuple[str, ...] = ()
        with suppress(OSError):
            lines = last_lines(_tail(path), 1000)
        if any(map(_ERROR.search, lines)):
            return path.name, lines[-count:]
    return "", ()


def _number(path: Path) -> tuple[int, str]:
    digits = path.name.rpartition(".")[2]
    return (int(digits) if digits.isdecimal() else 1 << 30), path.name


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - TAIL_BYTES))
        return file.read()
