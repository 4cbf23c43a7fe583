"""The arguments of the schedules, checked; the same for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tipchain.errors import CaseError, did_you_mean
from tipchain.pairs.optimizer_settings import is_number

REQUIRED = object()
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "constant": {},
        "step": {"step_size": REQUIRED, "gamma": 0.1},
        "multistep": {"milestones": REQUIRED, "gamma": 0.1},
        "exponential": {"gamma": REQUIRED},
        "cosine": {"total_steps": REQUIRED, "end_rate": 0.0},
        "polynomial": {"total_steps": REQUIRED, "power": 1.0, "end_rate": 0.0, "cycle": False},
        "onecycle": {
            "total_steps": REQUIRED, "pct_start": 0.3, "div_factor": 25.0, "final_div_factor": 1e4,
            "anneal_strategy": "cos", "three_phase": False,
        },
    }
)  # fmt: skip
"""What each schedule takes; torch's defaults."""
WHOLE = ("step_size", "total_steps")
NUMBERS = ("gamma", "end_rate", "power", "pct_start", "div_factor", "final_div_factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """One schedule.

    Attributes:
        name: a key of `DEFAULTS`.
        options: the schedule's own arguments, all of them.
        warmup_steps: steps of the linear warm-up in front; the schedule begins after them, at its own step 0.
        warmup_start: the rate of step 0 as a share of the one that the schedule begins with.
    """

    name: str
    options: Mapping[str, Any]
    warmup_steps: int
    warmup_start: float


def read_settings(
    *, name: str, warmup_steps: int, warmup_start: float, options: Mapping[str, Any]
) -> SchedulerSettings:
    """Check the arguments of a builder.

    Raises:
        CaseError: an unknown name or option, a missing one, or a value that cannot be.
    """
    if name not in DEFAULTS:
        raise _error("name", "is no known schedule", name, ", ".join(DEFAULTS), did_you_mean(name, DEFAULTS))
    known = DEFAULTS[name]
    for key in options:
        if key not in known:
            raise _error(key, f"is no argument of {name}", options[key], ", ".join(known) or "none",
                         did_you_mean(key, known))  # fmt: skip
    merged = {**known, **options}
    _check_values(merged)
    if not _is_whole(warmup_steps, least=0):
        raise _error("warmup_steps", "is no whole number >= 0", warmup_steps)
    if not is_number(warmup_start) or not 0 <= warmup_start < 1:
        raise _error("warmup_start", "is no fraction below 1", warmup_start, "0 <= warmup_start < 1")
    return SchedulerSettings(
        name=name, options=merged, warmup_steps=warmup_steps, warmup_start=float(warmup_start)
    )


def _check_values(merged: Mapping[str, Any]) -> None:
    for key, value in merged.items():
        if value is REQUIRED:
            raise _error(key, "is missing", expected=f"{key}: ...")
        if key in WHOLE and not _is_whole(value, least=1):
            raise _error(key, "is no whole number >= 1", value)
        if key in NUMBERS and not is_number(value):
            raise _error(key, "is no number", repr(value))
    steps = merged.get("milestones", [])
    if (
        not isinstance(steps, list | tuple)
        or not all(_is_whole(one, least=1) for one in steps)
        or sorted(set(steps)) != list(steps)
    ):
        raise _error("milestones", "are no growing whole numbers >= 1", steps, "e.g. [30, 60, 80]")
    if "gamma" in merged and not 0 < merged["gamma"] < 1:
        raise _error(
            "gamma", "does not lie between 0 and 1", merged["gamma"], "0 < gamma < 1; Paddle takes no other"
        )


def _is_whole(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _error(
    key: str, message: str, found: object = None, expected: object = None, hint: str | None = None
) -> CaseError:
    return CaseError(message, key=f"scheduler.{key}", found=found, expected=expected, hint=hint)
