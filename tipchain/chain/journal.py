"""What a run has done so far, so that ``--resume`` does not do it again.

``journal.jsonl`` in the run's folder has one JSON object a line:

- ``{"journal": 1, "params", "sha256", "mode", "suite", "tipchain", "time"}`` for each attempt at the run;
- ``{"started": id}`` before a command starts, so that an earlier pass of it, and of what needs it, no longer counts;
- ``{"ended": id, "result": {...}, "inputs": {...}, "artifacts": {...}}`` after it ended, safely on the disk.

A last line that a killed process left half-written is ignored, and so is any other line that is none of these: the
worst that comes of it is that a command runs again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tipchain import __version__
from tipchain.chain.artifacts import snapshot, stamp
from tipchain.chain.execute import Place
from tipchain.chain.inputs import InputReader, Inputs
from tipchain.chain.plan import Command, Plan
from tipchain.chain.result import Result
from tipchain.chain.result_json import parse_result, result_json
from tipchain.outcome import Outcome

FILE_NAME = "journal.jsonl"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """A passed command: its result, and what it rested on and left."""

    result: Result
    call: str
    inputs: Mapping[str, str]
    artifacts: Mapping[str, str]


class Journal:
    """The journal of one run. Its methods may be called from several threads at once.

    For each command that is run: `before`, then the command, then `record`.

    Attributes:
        path: the file.
        problem: why it could not be written; "" if it could. The run goes on without.
    """

    def __init__(self, run: Path) -> None:
        """Read what earlier attempts at the run in the folder ``run`` have left, if there were any."""
        self.path = run / FILE_NAME
        self.problem = ""
        self._lock = threading.Lock()
        self._reader = InputReader()
        self._before: dict[str, Inputs] = {}
        self._passed = _passes(self.path)

    def start(self, plan: Plan) -> None:
        """Begin an attempt at ``plan``."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        head = _identity(plan) | {"sha256": _sha256(Path(plan.params)), "tipchain": __version__, "time": now}
        self._append({"journal": FORMAT, **head}, whole=True)

    def before(self, command: Command, place: Place) -> None:
        """Take note of the inputs of ``command``, as planned, which is about to start."""
        inputs = self._reader.read(command, place)
        with self._lock:
            self._before[command.id] = inputs
            _forget(self._passed, command.id)
        self._append({"started": command.id})

    def record(self, result: Result, place: Place) -> None:
        """Write down how a command ended; what was reused stands there already."""
        if result.reused:
            return
        line: dict[str, Any] = {"ended": result.command.id, "result": result_json(result)}
        with self._lock:
            before = self._before.pop(result.command.id, None)
        if result.outcome is Outcome.PASS and before is not None:
            # The words as they were planned are in ``before``; those in the result may be settled.
            later = self._reader.folders_again(before, result.command, place)
            line["inputs"] = {"call": before.call, "files": before.states(later)}
            line["artifacts"] = _artifacts(result, place)
        self._append(line, whole=True)

    def finished(self, command: Command, place: Place) -> Result | None:
        """Return the PASS of an earlier attempt, marked as reused, if it still holds.

        It does if the command's words, environment and folder and the files that they name are what they were
        before it started then, and what it left is there, unchanged. The answer stays the same for one attempt.
        """
        with self._lock:
            earlier = self._passed.get(command.id)
        if earlier is None:
            return None
        if not self._holds(earlier, command, place):
            with self._lock:
                self._passed.pop(command.id, None)
            return None
        return replace(earlier.result, reused=True)

    def _holds(self, earlier: _Pass, command: Command, place: Place) -> bool:
        now = self._reader.read(command, place)
        return (
            now.call == earlier.call
            and earlier.inputs.items() <= now.states().items()  # what is new may be its own output
            and earlier.artifacts.items() <= _artifacts(earlier.result, place).items()
            # What the plan asks for now may be more than what was asked for then.
            and earlier.result.command.leaves == command.leaves
        )

    def _append(self, line: Mapping[str, Any], *, whole: bool = False) -> None:
        """Append one line in one write; ``whole`` waits until it is on the disk."""
        data = json.dumps(line, ensure_ascii=True, allow_nan=False).encode() + b"\n"
        try:
            with self._lock, self.path.open("ab+", buffering=0) as file:
                if not _ends_a_line(file.fileno()):
                    data = b"\n" + data
                file.write(data)
                if whole:
                    os.fsync(file.fileno())
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"


def _ends_a_line(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size == 0 or os.pread(handle, 1, size - 1) == b"\n"


def _artifacts(result: Result, place: Place) -> dict[str, str]:
    """Return size and time of change of what a command left, by path."""
    leaves = result.command.leaves
    found = {path: f"{state.size} {state.mtime_ns}" for path, state in snapshot(leaves, place.root).items()}
    if any(one.in_log for one in leaves):
        log = stamp(place.run / result.log)
        found[result.log] = f"{log.size} {log.mtime_ns}" if log else ""
    return found


def resumable(out: Path, plan: Plan) -> Path | None:
    """Return the latest run below ``out`` that was an attempt at the same file, mode and suite; None if none was.

    The file's text may have changed since: commands that differ are not the same commands. Whether that run
    still goes on is not looked at.
    """
    wanted = _identity(plan)
    for run in sorted((out / "runs").glob("*/"), reverse=True):
        first = next((line for line in _lines(run / FILE_NAME) if "journal" in line), {})
        if first.get("journal") == FORMAT and all(first.get(key) == value for key, value in wanted.items()):
            return run
    return None


def _identity(plan: Plan) -> dict[str, str]:
    return {"params": os.path.relpath(plan.params), "mode": plan.mode.value, "suite": plan.suite}


def _passes(path: Path) -> dict[str, _Pass]:
    """Return the commands whose latest attempt passed, by id."""
    passes: dict[str, _Pass] = {}
    for line in _lines(path):
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            if "started" in line:
                _forget(passes, line["started"])
            elif "inputs" not in line:
                passes.pop(line["ended"], None)
            else:
                result, inputs = parse_result(line["result"]), line["inputs"]
                passes[line["ended"]] = _Pass(
                    result=result,
                    call=inputs["call"],
                    inputs=dict(inputs["files"]),
                    artifacts=dict(line["artifacts"]),
                )
    return passes


def _forget(passes: dict[str, _Pass], name: str) -> None:
    """Remove the pass of a command, and those that rest on it: what it leaves anew they have not seen.

    An attempt may be killed when the command has passed again and before what needs it was repeated. A folder of
    the run is no input (`tipchain.chain.inputs`), so nothing else would tell the next attempt.
    """
    passes.pop(name, None)
    for other in [key for key, one in passes.items() if name in one.result.command.needs]:
        _forget(passes, other)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a journal; what is none, as a line half-written, is left out."""
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    with suppress(ValueError, RecursionError):
                        data = json.loads(line)
                        if isinstance(data, dict):
                            yield data
    except OSError:
        return


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
