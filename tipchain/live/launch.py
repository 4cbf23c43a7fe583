"""Aligning live models in a process of their own, as its parent sees it; no framework is needed here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tipchain.errors import UsageError
from tipchain.outcome import ExitCode

LAST = 12
"""Lines of the process's output that a message about its end shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """How the process ended.

    Attributes:
        text: the report as it is printed, or why there is none.
        exit_code: of the command.
        document: the report's JSON; None without one.
    """

    text: str
    exit_code: int
    document: Mapping[str, Any] | None


def launch(request: Mapping[str, Any], *, timeout_s: float | None = None) -> Launched:
    """Align what ``request`` asks for (see `tipchain.live.worker`) in a process of its own.

    A process that crashes, or does not end in time, is an error of the check (exit code 1), with the signal's name.

    Raises:
        UsageError: the process refused the request: wrong arguments, a case that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="tipchain-align-") as folder:
        asked, report = Path(folder) / "request.json", Path(folder) / "report.json"
        told = _own_stderr()
        asked.write_text(json.dumps({**request, "report": str(report), "progress": told}))
        with subprocess.Popen(
            [sys.executable, "-m", "tipchain.live.worker", str(asked)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
            pass_fds=() if told is None else (told,),
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=timeout_s)
            except BaseException as error:
                _kill(process)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return Launched(
                    text=f"ERROR: not finished after {timeout_s:g} s",
                    exit_code=ExitCode.FAILED,
                    document=None,
                )
        if report.is_file() and process.returncode == 0:
            document = json.loads(report.read_bytes())
            return Launched(text=document["text"], exit_code=document["exit_code"], document=document)
    return _ended(process.returncode, output)


def _own_stderr() -> int | None:
    """Return this process's standard error, to which the other writes how far it is; None where there is none."""
    try:
        number = sys.stderr.fileno()
        os.fstat(number)
    except (OSError, ValueError, AttributeError):
        return None
    return number


def _ended(code: int, output: str) -> Launched:
    """Say why there is no report."""
    lines = output.strip().splitlines()
    if code == ExitCode.USAGE:
        said = [line for line in lines if not line.startswith("W")]
        first = next((number for number, line in enumerate(said) if line.startswith("error: ")), 0)
        raise UsageError("\n".join(said[first:]).removeprefix("error: "))
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
