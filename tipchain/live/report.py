"""What comparing two live models came to: stages, layers, differences of construction, causes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from tipchain.live.histograms import Histogram
from tipchain.outcome import ExitCode, Outcome, exit_code
from tipchain.parity.findings import Diagnosis, Finding
from tipchain.parity.locate.verdicts import Closeness, LayerVerdict

LINES = 20
"""Lines that the text of a report has at most."""
MOST_CAUSES = 3
"""Causes that this text has at most."""
WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentReport:
    """Everything `tipchain.align` found.

    Attributes:
        stages: the outcome of each: ``data``, ``train_data``, ``preflight``, ``forward``, ``metric``, ``loss``, ``backward``,
            ``optimizer``, ``schedule``, ``train``; of those that were asked for.
        reasons: why, by stage.
        layers: a verdict per call of a matched layer, forward then backward.
        first_divergence: the first that is at fault, in the order in which the port runs.
        findings: differences of construction.
        diagnoses: causes, the likeliest first.
        unmatched: layers of either side that are in no pair, by side (``reference``, ``port``).
        numbers: figures by name: differences of outputs and losses.
        curves: series by name: losses of both sides, errors along depth.
        histograms: how the differences of some tensors are distributed: of the first divergence, and of the outputs.
        versions: of Python, torch, paddle, numpy and tipchain.
        command: what to run to see all this again.
    """

    stages: dict[str, Outcome]
    reasons: dict[str, str] = field(default_factory=dict)
    layers: list[LayerVerdict] = field(default_factory=list)
    first_divergence: LayerVerdict | None = None
    findings: list[Finding] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    unmatched: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    histograms: list[Histogram] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""

    @property
    def passed(self) -> bool:
        """Whether something was compared and nothing failed or errored."""
        outcomes = set(self.stages.values())
        return Outcome.PASS in outcomes and not outcomes & {Outcome.FAIL, Outcome.ERROR}

    @property
    def exit_code(self) -> ExitCode:
        """Return 0, 1, or 4 where nothing was checked."""
        return exit_code(self.stages.values())

    def to_json(self) -> str:
        """Return the report as JSON; NaN and Inf become strings."""
        document = {
            "passed": self.passed,
            "stages": {name: outcome.value for name, outcome in self.stages.items()},
            "reasons": self.reasons,
            "first_divergence": None if self.first_divergence is None else _layer(self.first_divergence),
            "layers": [_layer(one) for one in self.layers],
            "findings": [asdict(one) for one in self.findings],
            "diagnoses": [asdict(one) for one in self.diagnoses],
            "unmatched": self.unmatched,
            "numbers": self.numbers,
            "curves": self.curves,
            "histograms": [asdict(one) for one in self.histograms],
            "versions": self.versions,
            "command": self.command,
        }
        return json.dumps(_plain(document), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AlignmentReport:
        """Return the report that `to_json` wrote.

        Raises:
            RecordError: the text is not JSON, or not that of a report.
        """
        from tipchain.live.report_reading import read_report

        return read_report(text)

    def to_html(self, path: str | Path) -> None:
        """Write the report as one HTML file that needs no other and no network.

        Raises:
            OSError: it cannot be written; what ``path`` named before is then untouched.
        """
        from tipchain.live.html import render
        from tipchain.runs import atomic_write

        atomic_write(Path(path), render(self))

    def of_layers(self, cause: Diagnosis) -> str:
        """Return of how many layers of which type something is the cause: `` (94 BatchNorm2D)``; empty of one."""
        if len(cause.layers) < 2:
            return ""
        types = {one.port_type for one in self.layers if one.port_path in cause.layers}
        return f" ({len(cause.layers)} {types.pop() if len(types) == 1 else 'layers'})"

    def __str__(self) -> str:
        """Return the report in at most 20 lines: the verdict first, then where, then why."""
        lines = [_headline(self), *_stage_lines(self)]
        first = self.first_divergence
        if first is not None:
            port, reference = (path or "the model itself" for path in (first.port_path, first.reference_path))
            lines.append(
                f"first divergence: {port} ({first.port_type}), reference {reference} ({first.reference_type})"
            )
            lines.append(f"  {first.reason}")
        for one in self.diagnoses[:MOST_CAUSES]:
            share = "" if one.explained is None else f", explains {one.explained:.1%}"
            lines += [f"cause: {one.code}{self.of_layers(one)}{share}: {one.message}"]
            lines.append(
                f"  fix: {one.fix}" + (f", and to the other {len(one.layers) - 1}" if one.paths else "")
            )
        more = len(self.diagnoses) - MOST_CAUSES
        if more > 0:
            lines.append(f"{more} more cause{'s' if more > 1 else ''} in the report")
        told = self.diagnoses[:MOST_CAUSES]
        rest = [
            one for one in self.findings if not one.harmless and not any(cause.says(one) for cause in told)
        ]
        room = LINES - len(lines) - 1
        lines += [f"finding: {one.message}" for one in rest[:room]]
        if len(rest) > room:
            lines.append(f"{len(rest) - room} more findings in the report")
        return "\n".join(_cut(line) for line in lines[:LINES])


def _headline(report: AlignmentReport) -> str:
    layers = len(
        {
            (one.reference_path, one.turn)
            for one in report.layers
            if one.closeness is not Closeness.NOT_COMPARABLE
        }
    )
    words = "the port is the reference" if report.passed else "the port is not the reference"
    if report.passed is False and not any(one is Outcome.FAIL for one in report.stages.values()):
        words = (
            "could not be found out" if Outcome.ERROR in report.stages.values() else "nothing was compared"
        )
    return f"{'PASS' if report.passed else 'FAIL'}: {words}; {layers} layers compared"


def _stage_lines(report: AlignmentReport) -> list[str]:
    return [
        f"{outcome.value:<5} {name}: {report.reasons.get(name, '')}".rstrip(": ")
        for name, outcome in report.stages.items()
    ]


def _layer(verdict: LayerVerdict) -> Mapping[str, Any]:
    return {**asdict(verdict), "closeness": verdict.closeness.value}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    return value


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH * 2 else f"{line[: WIDTH * 2 - 1]}…"
