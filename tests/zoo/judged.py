"""What `tipchain.align` says of a planted fault, and how much of that is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tipchain

SHARES = {"caught": 0.95, "layer": 0.9, "cause": 0.8}
"""The shares of a list of faults that must be right at least."""


def align(pair: Any) -> Any:
    """Return the report of a pair."""
    return tipchain.align(
        pair.reference,
        pair.port,
        pair.inputs,
        loss=pair.loss,
        optimizers=pair.optimizers,
        schedulers=pair.schedulers,
        training=pair.training,
    )


def right(fault: Any, pair: Any) -> dict[str, bool]:
    """Tell what is right about what is said of a fault: that it was caught, its layer, its cause.

    Args:
        fault: with ``part``, ``where`` and ``is_named``.
        pair: the pair that has it.
    """
    report = align(pair)
    first = report.first_divergence
    cause = report.diagnoses[0] if report.diagnoses else None
    place = cause.port_path if cause is not None else None
    if first is not None and fault.part == "layer":
        place = first.port_path
    return {
        "caught": not report.passed,
        "layer": not report.passed and place in fault.where,
        "cause": fault.is_named(cause),
    }


def assert_as_promised(results: Mapping[str, Mapping[str, bool]]) -> None:
    """Assert that enough is right about a list of faults, by their names."""
    for what, goal in SHARES.items():
        missed = [name for name, result in results.items() if not result[what]]
        assert 1 - len(missed) / len(results) >= goal, f"{what}: {missed}"
