"""How commands ended; as JSON values, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tipchain.chain.plan import Command, command_json, parse_command
from tipchain.outcome import Outcome

# How commands ended.


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one command ended.

    Attributes:
        command: the command, with the environment variables that it was given besides the parent's.
        outcome: PASS, FAIL, ERROR or SKIP.
        reason: one sentence; "" for a PASS.
        exit_code: the exit status, None where there is none.
        signal: name of the signal that ended it, "" for none.
        started: local time as ISO 8601, "" if it did not start.
        seconds: wall time.
        peak_memory_mb: largest resident size of the command or of a process it waited for, in MiB.
        log: its log, relative to the run's folder.
        tail: the log's last lines.
        figures: numbers found in the log, by name: ``avg_ips``, ``loss``, ``top1``, ``inference_ms``, ...
        missing: the artifacts that it should have left and did not, as text.
        reused: whether an earlier attempt of the run had passed it, so that it was not run again.
    """

    command: Command
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    signal: str = ""
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    log: str = ""
    tail: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reused: bool = False


# Results as JSON values, and back: for reports and for a run's journal.
#
# NaN and infinities have no place in JSON; they are written as the strings ``NaN``, ``Infinity``, ``-Infinity``.


def number_json(value: float) -> float | str:
    """Return ``value``, or its name if JSON has none for it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def result_json(result: Result) -> dict[str, Any]:
    """Return ``result`` as JSON values."""
    own = {item.name: getattr(result, item.name) for item in fields(result) if item.name != "command"}
    return {
        "command": command_json(result.command),
        **own,
        "outcome": result.outcome.value,
        "tail": list(result.tail),
        "figures": {name: number_json(value) for name, value in result.figures.items()},
        "missing": list(result.missing),
    }


def parse_result(data: Mapping[str, Any]) -> Result:
    """Return the result of JSON values.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: they are none.
    """
    return Result(
        command=parse_command(data["command"]),
        outcome=Outcome(data["outcome"]),
        reason=str(data["reason"]),
        exit_code=None if data["exit_code"] is None else int(data["exit_code"]),
        signal=str(data["signal"]),
        started=str(data["started"]),
        seconds=float(data["seconds"]),
        peak_memory_mb=float(data["peak_memory_mb"]),
        log=str(data["log"]),
        tail=tuple(str(line) for line in data["tail"]),
        figures={str(name): float(value) for name, value in data.get("figures", {}).items()},
        missing=tuple(str(text) for text in data.get("missing", ())),
        reused=bool(data.get("reused", False)),
    )
