"""Verdicts as JSON and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import isfinite, isnan
from typing import Any

from tipchain.outcome import Outcome
from tipchain.parity.compare import TensorDiff
from tipchain.parity.judge import Verdict

_SHAPES = ("expected_shape", "actual_shape", "worst_index")


def render_verdicts(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """Return verdicts as values that JSON can hold; NaN, Inf and complex numbers become strings."""
    return [
        {
            "outcome": verdict.outcome.value,
            "subject": verdict.subject,
            "reason": verdict.reason,
            "finite": verdict.finite,
            "diff": None
            if verdict.diff is None
            else {name: _encode(value) for name, value in asdict(verdict.diff).items()},
            **({} if verdict.share is None else {"share": verdict.share}),
        }
        for verdict in verdicts
    ]


def parse_verdicts(documents: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """Return what :func:`render_verdicts` was given."""
    return [
        Verdict(
            outcome=Outcome(item["outcome"]),
            subject=item["subject"],
            reason=item["reason"],
            diff=None if item["diff"] is None else _parse_diff(item["diff"]),
            finite=item.get("finite", True),
            share=item.get("share"),
        )
        for item in documents
    ]


def _parse_diff(document: Mapping[str, Any]) -> TensorDiff:
    texts = ("path", "expected_dtype", "actual_dtype")
    return TensorDiff(
        **{name: value if name in texts else _decode(name, value) for name, value in document.items()}
    )


def _encode(value: Any) -> Any:
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return list(value) if isinstance(value, tuple) else value


def _decode(name: str, value: Any) -> Any:
    if name in _SHAPES:
        return tuple(value)
    if isinstance(value, str):
        return complex(value) if "j" in value else float(value)
    return value
