"""Numbers with a unit: the kinds of a command's figures; times and sizes as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from math import ceil, inf


class FigureKind(Enum):
    """The kind of a command's figure."""

    METRIC = "metric"
    TIME = "time"
    SPEED = "speed"
    MEMORY = "memory"


def figure_kind(name: str) -> FigureKind:
    """Return a figure's kind by its name, such as ``avg_ips[images/s]`` or ``inference_ms``."""
    name = name.partition("[")[0]  # a unit stands in brackets
    if name in ("ips", "avg_ips", "qps", "gpu_util"):
        return FigureKind.SPEED
    if name.endswith("_mb"):
        return FigureKind.MEMORY
    return FigureKind.TIME if name == "seconds" or name.endswith(("_s", "_ms")) else FigureKind.METRIC


# Times and sizes: ``90s``, ``30m``, ``2h``, ``1.5h``, ``2h 30m``, ``512MiB``, ``4GiB``.


SECONDS: Mapping[str, float] = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MEBIBYTES: Mapping[str, float] = {"MiB": 1, "GiB": 1024, "TiB": 1024**2, "MB": 1e6 / 2**20, "GB": 1e9 / 2**20}
TIME_EXPECTED = "a time such as 90s, 30m or 2h"
MEMORY_EXPECTED = "a size such as 512MiB or 4GiB"
_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]+)")
_TIMES = re.compile(r"(?:\d+\s*d\s*)?(?:\d+\s*h\s*)?(?:\d+\s*m\s*)?(?:\d+\s*s)?")
"""The spelling that `duration` writes: whole numbers of units, the largest first."""


def parse_seconds(text: object) -> float:
    """Return the seconds of ``30m`` or ``2h 30m``; a bare number is in seconds.

    Raises:
        ValueError: it is no time above 0 and of a year at most.
    """
    if isinstance(text, str) and _TIMES.fullmatch(text.strip()):
        seconds = sum(float(one["number"]) * SECONDS[one["unit"]] for one in _QUANTITY.finditer(text))
    elif isinstance(text, (int, float)) and not isinstance(text, bool):
        seconds = float(text)
    else:
        seconds = _parse(text, SECONDS, TIME_EXPECTED)
    if not 0 < seconds <= 366 * 86400:
        raise ValueError(TIME_EXPECTED)
    return seconds


def parse_mebibytes(text: object) -> int:
    """Return the MiB of ``4GiB`` and the like, rounded up; a number needs its unit.

    Raises:
        ValueError: it is no size above 0.
    """
    return ceil(_parse(text, MEBIBYTES, MEMORY_EXPECTED))


def _parse(text: object, units: Mapping[str, float], expected: str) -> float:
    match = _QUANTITY.fullmatch(text.strip()) if isinstance(text, str) else None
    value = float(match["number"]) * units.get(match["unit"], 0.0) if match else 0.0
    if not 0 < value < inf:
        raise ValueError(expected)
    return value


def duration(seconds: float) -> str:
    """Return a time for people: ``4.2s``, ``3m 05s``, ``2h 07m``."""
    if seconds < 59.95:
        return f"{max(seconds, 0):.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest:02}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02}m"
