"""What an item's JSON report tells beside how it ended: numbers that are worth a curve over nights, and why it failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from tipchain.json_text import read_json
from tipchain.parity.findings import Diagnosis, read_diagnosis

LARGEST = 32 * 2**20
"""Bytes of a report that is read; a larger one would take longer than its curves are worth."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
_LOSSES = ("loss",)
_SPEEDS = ("avg_ips", "ips", "qps")
_NEVER = ("batch_size", "data_num", "lr", "gpu_util")
_COSTS = ("_ms", "_s", "_mb")
_STEPS = ("eval", "train", "infer")


def read_figures(report: Path) -> dict[str, float]:
    """Return the numbers of a report by what they are called, the most telling first; none if it cannot be read.

    Of a chain: metrics, then losses, speeds and costs, of evaluation, training and inference in this order. Of an
    alignment: for each stage the largest mean difference of a tensor.
    """
    try:
        data = _read(report)
        found = [*_of_results(data.get("results", ())), *_of_verdicts(data.get("verdicts", ()))]
    except UNREADABLE:
        return {}
    return {name: value for _, name, value in sorted(found, key=lambda one: one[0]) if isfinite(value)}


def read_causes(report: Path) -> tuple[Diagnosis, ...]:
    """Return why an item failed, the cause that checks fail because of first; () if its report cannot be read."""
    try:
        return causes_in(_read(report))
    except UNREADABLE:
        return ()


def causes_in(document: Mapping[str, Any]) -> tuple[Diagnosis, ...]:
    """Return the causes of a report's JSON, the one that checks fail because of first; () where they cannot be read."""
    try:
        found = [read_diagnosis(one) for one in document.get("diagnoses", ())]
    except UNREADABLE:
        return ()
    return tuple(sorted(found, key=lambda one: not one.explains))


def _read(report: Path) -> Mapping[str, Any]:
    if report.stat().st_size > LARGEST:
        raise ValueError("too large")
    found: Mapping[str, Any] = read_json(report)
    return found


def _of_results(results: Any) -> Iterator[tuple[tuple[int, int], str, float]]:
    for result in results:
        command = result["command"]
        step = _STEPS.index(command["step"]) if command["step"] in _STEPS else len(_STEPS)
        for name, value in result.get("figures", {}).items():
            rank = _rank(name)
            if rank is not None:
                yield (rank, step), f"{name} of {command['id']}", float(value)


def _rank(name: str) -> int | None:
    name = name.partition("[")[0]  # a unit stands in brackets
    if name in _NEVER:
        return None
    for rank, names in enumerate((_LOSSES, _SPEEDS), 1):
        if name in names:
            return rank
    return 3 if name.endswith(_COSTS) else 0


def _of_verdicts(verdicts: Any) -> Iterator[tuple[tuple[int, int], str, float]]:
    largest: dict[str, float] = {}
    for verdict in verdicts:
        diff: Mapping[str, Any] | None = verdict["diff"]
        with suppress(ValueError):
            value = float(diff["mean_abs"]) if diff else float("nan")
            if isfinite(value):
                stage = str(verdict["subject"]).partition("/")[0]
                largest[stage] = max(value, largest.get(stage, value))
    for stage, value in largest.items():
        yield (0, 0), f"largest mean difference in {stage}", value
