"""What `tipchain.align` says of a pair, and how much of that is right."""

from __future__ import annotations

from typing import Any

import tipchain

ASKED = ("loss", "optimizers", "schedulers", "training", "data", "samples", "metrics", "clip", "step")


def align(pair: Any, **more: Any) -> Any:
    """Return the report of a pair."""
    asked = {name: getattr(pair, name) for name in ASKED}
    return tipchain.align(pair.reference, pair.port, pair.inputs, **asked, **more)


def place(report: Any) -> str | None:
    """Return the first layer that differs, or what the first cause is about."""
    first = report.first_divergence or next(iter(report.diagnoses), None)
    return None if first is None else first.port_path
