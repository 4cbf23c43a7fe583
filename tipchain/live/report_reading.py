"""The report of two live models, read from its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from tipchain.errors import RecordError
from tipchain.live.histograms import Histogram
from tipchain.live.report import AlignmentReport
from tipchain.outcome import Outcome
from tipchain.parity.findings import Diagnosis, Finding
from tipchain.parity.locate.verdicts import Closeness, LayerVerdict

T = TypeVar("T")
WORDS = {"NaN", "Infinity", "-Infinity"}
"""How JSON has what is no finite number."""


def read_report(text: str) -> AlignmentReport:
    """Return the report that `AlignmentReport.to_json` wrote; keys that it does not have are passed over.

    Raises:
        RecordError: the text is not JSON, or not that of a report.
    """
    try:
        return _report(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"is no report of an alignment: {type(error).__name__}: {error}") from error


def _report(document: Mapping[str, Any]) -> AlignmentReport:
    first = document["first_divergence"]
    return AlignmentReport(
        stages={name: Outcome(value) for name, value in document["stages"].items()},
        reasons=dict(document.get("reasons", {})),
        layers=[_layer(one) for one in document["layers"]],
        first_divergence=None if first is None else _layer(first),
        findings=[_finding(one) for one in document.get("findings", ())],
        diagnoses=[
            _made(Diagnosis, one, explained=_optional, paths=tuple) for one in document.get("diagnoses", ())
        ],
        unmatched={name: list(map(str, ones)) for name, ones in document.get("unmatched", {}).items()},
        numbers={name: _number(value) for name, value in document.get("numbers", {}).items()},
        curves={name: list(map(_number, ones)) for name, ones in document.get("curves", {}).items()},
        histograms=[_made(Histogram, one, scale=_number) for one in document.get("histograms", ())],
        versions=dict(document.get("versions", {})),
        command=str(document.get("command", "")),
    )


def _layer(document: Mapping[str, Any]) -> LayerVerdict:
    return _made(
        LayerVerdict, document, closeness=Closeness, inherited=_number, own=_optional, ratio=_optional
    )


def _finding(document: Mapping[str, Any]) -> Finding:
    """Return a finding; a report of before there were effects says of some that they are harmless."""
    found = _made(Finding, document)
    return replace(found, effect="none") if document.get("harmless") else found


def _made(kind: type[T], document: Mapping[str, Any], **read: Callable[[Any], Any]) -> T:
    """Return an object of a dataclass, those of its fields that JSON has otherwise read by the given callables."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in document.items() if name in names}
    return kind(**{name: read[name](value) if name in read else value for name, value in given.items()})


def _number(value: Any) -> float:
    """Return a number that JSON has as one, or as the word for what is not finite.

    Raises:
        ValueError: it is something else.
    """
    if value in WORDS or (isinstance(value, int | float) and not isinstance(value, bool)):
        return float(value)
    raise ValueError(f"{value!r} is no number")


def _optional(value: Any) -> float | None:
    return None if value is None else _number(value)
