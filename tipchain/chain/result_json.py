"""Results as JSON values, and back: for reports and for a run's journal.

NaN and infinities have no place in JSON; they are written as the strings ``NaN``, ``Infinity``, ``-Infinity``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tipchain.chain.plan import command_json, parse_command
from tipchain.chain.result import Result
from tipchain.outcome import Outcome


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
