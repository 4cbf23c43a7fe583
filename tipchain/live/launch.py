"""Aligning live models in a process of their own, as its parent sees it; no framework is needed here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tipchain.blame import UsersError
from tipchain.errors import UsageError
from tipchain.outcome import ExitCode

PATIENCE_S = 30.0
"""How long a process that was interrupted may take to end: it finishes the comparison that it is in."""
LAST = 12
"""Lines of the process's output that a message about its end shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """How the process ended.

    Attributes:
        text: the report as it is printed, or why there is none.
        exit_code: of the command.
        document: the report's JSON; None without one.
        interrupted: whether the user ended it before its time.
    """

    text: str
    exit_code: int
    document: Mapping[str, Any] | None
    interrupted: bool = False


def launch(request: Mapping[str, Any], *, timeout_s: float | None = None, quiet: bool = False) -> Launched:
    """Align what ``request`` asks for (see `tipchain.live.worker`) in a process of its own.

    A process that crashes, or does not end in time, is an error of the check (exit code 1), with the signal's name.
    When the user interrupts, it begins nothing new and tells what it knows (exit code 130).

    Args:
        request: what is asked for.
        timeout_s: seconds in all.
        quiet: do not say how far it is.

    Raises:
        KeyboardInterrupt: the user interrupted before anything was known, or twice.
        UsageError: the process refused the request: wrong arguments, a case that cannot be read.
        UsersError: the user's own code raised while the models or what goes with them was built.
    """
    with tempfile.TemporaryDirectory(prefix="tipchain-align-") as folder, _own_stderr(quiet) as told:
        asked, report = Path(folder) / "request.json", Path(folder) / "report.json"
        interrupted = False
        asked.write_text(json.dumps({**request, "report": str(report), "progress": told, "began": time.monotonic()}))
        with subprocess.Popen(
            [sys.executable, "-m", "tipchain.live.worker", str(asked)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=() if told is None else (told,),
        ) as process:
            try:
                try:
                    output, _ = process.communicate(timeout=timeout_s)
                except KeyboardInterrupt:
                    interrupted = True
                    output = _interrupt(process)
            except BaseException as error:
                _kill(process)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return Launched(
                    text=f"ERROR: not finished after {timeout_s:g} s", exit_code=ExitCode.FAILED, document=None
                )
        if report.is_file() and process.returncode == 0:
            document = json.loads(report.read_bytes())
            if interrupted:
                text = f"interrupted; what was known by then:\n{document['text']}"
                return Launched(text=text, exit_code=ExitCode.INTERRUPTED, document=document, interrupted=True)
            return Launched(text=document["text"], exit_code=document["exit_code"], document=document)
    if interrupted:
        raise KeyboardInterrupt
    return _ended(process.returncode, output)


def _interrupt(process: subprocess.Popen[str]) -> str:
    """Let a process begin nothing new and end; return what it wrote.

    Raises:
        KeyboardInterrupt: it takes too long, or the user cannot wait.
    """
    print("interrupted: the result so far follows; Ctrl-C again ends at once", file=sys.stderr)
    os.kill(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        raise KeyboardInterrupt from None


@contextmanager
def _own_stderr(quiet: bool) -> Iterator[int | None]:
    """Yield another number of this process's standard error, for the other to write how far it is; None without one.

    The other's own standard error, which is number 2 there too, is kept apart for what a message about its end shows.
    """
    try:
        number = None if quiet else os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        number = None
    try:
        yield number
    finally:
        if number is not None:
            os.close(number)


def _ended(code: int, output: str) -> Launched:
    """Say why there is no report."""
    lines = output.strip().splitlines()
    said = "\n".join(line for line in lines if not line.startswith("W"))
    _, marked, message = f"\n{said}".rpartition("\nerror: ")
    if code == ExitCode.USAGE:
        raise UsageError(message)
    if code == ExitCode.FAILED and marked:
        raise UsersError(message)
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        what = f"the process that ran the models was killed by {name}"
    else:
        what = f"the process that ran the models ended with exit code {code}"
    shown = "\n".join(f"  | {line}" for line in lines[-LAST:])
    return Launched(text=f"ERROR: {what}\n{shown}".rstrip(), exit_code=ExitCode.FAILED, document=None)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()
