"""The report of two live models: its findings, as text, as JSON and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tipchain.core.json_text import as_json, parse_as, parse_json
from tipchain.core.language import many, say
from tipchain.errors import ExitCode, Outcome, RecordError, exit_code
from tipchain.explain.findings import Diagnosis
from tipchain.explain.locate.differences import arrange, rms
from tipchain.explain.locate.trace import Store, StoredArray
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.framework_types import Array

if TYPE_CHECKING:
    from tipchain.explain.locate.locate import Located
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tipchain.core.blame import one_line
from tipchain.core.progress import LATE, Pace
from tipchain.errors import UsageError
from tipchain.explain.findings import PieceCheck

# How the differences of a tensor's elements are distributed, in a few numbers.


PER_DECADE = 4
"""Bins from one power of ten to the next."""
SMALLEST = -24
"""Differences below 10 to this power are counted in the first bin."""
MOST = 2**20
"""Elements that are counted of one tensor; of a larger one every k-th."""
TENSORS = 4
"""Tensors of one layer, or outputs of the model, that have a histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The absolute differences of a tensor's elements, counted in bins of equal width on a logarithmic scale.

    Attributes:
        what: which tensor it is.
        size: elements that were counted.
        every: 1, or k where only every k-th element was.
        same: elements that do not differ at all.
        odd: elements of which one side's, or the difference, is NaN or infinite.
        scale: the RMS of what is expected, in the tensor's own unit.
        first: where the first bin begins: 10 to the power of ``first / PER_DECADE``.
        counts: elements by bin, each a factor of 10 to the power of ``1 / PER_DECADE`` wide.
    """

    what: str
    size: int
    every: int
    same: int
    odd: int
    scale: float
    first: int
    counts: list[int]


def count(what: str, expected: Array, actual: Array) -> Histogram:
    """Return the histogram of the differences of two arrays of one shape; elements that both are NaN are the same."""
    every = max(1, -(-expected.size // MOST))
    ours, theirs = (one.reshape(-1)[::every] for one in (expected, actual))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(np.subtract(theirs, ours, dtype=np.result_type(theirs, ours, np.float64)))
    same = (ours == theirs) | (np.isnan(apart) & np.isnan(ours) & np.isnan(theirs))
    different = apart[~same & np.isfinite(apart)]
    places = np.floor(np.log10(np.maximum(different, 10.0**SMALLEST)) * PER_DECADE).astype(np.int64)
    first = int(places.min()) if places.size else 0
    scale = rms(ours)
    return Histogram(
        what=what,
        size=int(ours.size),
        every=every,
        same=int(same.sum()),
        odd=int(ours.size - same.sum() - different.size),
        scale=scale if isfinite(scale) else float("nan"),
        first=first,
        counts=np.bincount(places - first).tolist() if places.size else [],
    )


def count_all(located: Located, store: Store, first: LayerVerdict | None) -> list[Histogram]:
    """Return the histograms of the first divergence's tensors and of the models' outputs, as the runs gave them."""
    names = (f"output {name} of the model" for name in located.port.output_names)
    outputs = zip(names, located.reference.outputs, located.port.outputs, strict=False)
    pairs = chain(() if first is None else _of_layer(located, store, first), outputs)
    fitting = ((arrange(expected, actual), what, expected, actual) for what, expected, actual in pairs if expected.size)
    found = (count(what, one.transpose(axes), other) for axes, what, one, other in fitting if axes is not None)
    return [*islice(found, 2 * TENSORS)]


def _of_layer(located: Located, store: Store, first: LayerVerdict) -> Iterator[tuple[str, Array, Array]]:
    """Yield a layer's outputs, or, of a fault in backward, its inputs' gradients, each with its name.

    Those of the model itself are none: its outputs come anyway.
    """
    runs = (located.reference, first.reference_path), (located.port, first.port_path)
    every = [[one for one in run.trace.calls if one.path == path] for run, path in runs]
    if not all(every) or not first.port_path:
        return
    calls = [found[min(first.turn, len(found) - 1)] for found in every]
    theirs = calls[1]
    if first.direction == "backward":
        what, names = "gradient of input", theirs.input_names
        tensors = [[one.gradient for one in call.inputs] for call in calls]
    else:
        what, names = "output", theirs.output_names
        tensors = [[one.stored for one in call.outputs] for call in calls]
    place = f"of {theirs.path}" + (f", call {theirs.turn}" if theirs.turn else "")
    for name, one, other in list(zip(names, *tensors, strict=False))[:TENSORS]:
        if isinstance(one, StoredArray) and isinstance(other, StoredArray):
            yield f"{what} {name} {place}", store.get(one), store.get(other)


LINES = 20
"""Lines that the text of a report has at most."""
BLUNT = 0.1
"""The reach at most: where rounding is a tenth of an output, its numbers in float32 tell nothing."""
MOST_CAUSES = 3
"""Causes that this text has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentReport:
    """The result of `tipchain.align`. Printed it has at most 20 lines; a notebook shows it as a page.

    Attributes:
        stages: the outcome of each stage that ran: ``data``, ``train_data``, ``preflight``, ``forward``, ``metric``, ``loss``,
            ``backward``, ``optimizer``, ``schedule``, ``train``.
        reasons: the reason of each outcome, by stage.
        first_divergence: the first layer at fault, in the order in which the port runs.
        layers: one verdict for each call of a matched layer, first forward, then backward.
        findings: differences between the constructions of the two models.
        diagnoses: the causes, the likeliest first.
        unmatched: layers without a counterpart, by side (``reference``, ``port``).
        numbers: figures by name: differences of outputs and losses.
        curves: series by name: the losses of both sides, the errors along the depth.
        histograms: distributions of the differences: in the first divergence, and in the outputs.
        versions: the versions of Python, torch, paddle, numpy and tipchain.
        command: the command that repeats the alignment.
        origin: the models, the date and the commit: ``reference``, ``port``, ``date``, ``commit``.
        notes: actions before the comparison, such as copying weights.
        uncompared: what could not be compared, and no other check covers, each with its reason.
        reach: how far rounding in float32 may move the outputs, as a share of them.
    """

    stages: dict[str, Outcome]
    reasons: dict[str, str] = field(default_factory=dict)
    first_divergence: LayerVerdict | None = None
    layers: list[LayerVerdict] = field(default_factory=list)
    findings: list[Diagnosis] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    unmatched: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    histograms: list[Histogram] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""
    origin: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    reach: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether all that the models do was compared, and nothing failed or errored."""
        return self.exit_code is ExitCode.PASSED

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: 0 (passed), 1 (a check failed or errored) or 4 (nothing, or not all, could be compared)."""
        code = exit_code(self.stages.values())
        return ExitCode.NOTHING_CHECKED if self.uncompared and code is ExitCode.PASSED else code

    @property
    def headline(self) -> str:
        """The verdict in one line: PASS, FAIL, or ERROR or SKIP where there is none, with the number of compared layers."""
        compared = (one for one in self.layers if one.closeness is not Closeness.NOT_COMPARABLE)
        layers = len({(one.reference_path, one.turn) for one in compared})
        errors = [name for name, outcome in self.stages.items() if outcome is Outcome.ERROR]
        if self.passed:
            words = "PASS: the port is the reference"
        elif Outcome.FAIL in self.stages.values():
            words = "FAIL: the port is not the reference"
        elif self.uncompared and not errors:
            return f"INCONCLUSIVE: equal where compared; not compared: {'; '.join(self.uncompared)}"
        else:
            words = f"ERROR: no verdict on {', '.join(errors)}" if errors else "SKIP: nothing was compared"
        return f"{words}; {layers} layers compared"

    def of_layers(self, cause: Diagnosis) -> str:
        """Return the number and the type of the layers with this cause: `` (94 BatchNorm2D)``; "" for one layer."""
        if len(cause.layers) < 2:
            return ""
        types = {one.port_type for one in self.layers if one.port_path in cause.layers}
        return f" ({len(cause.layers)} {types.pop() if len(types) == 1 else 'layers'})"

    def to_json(self) -> str:
        """Return the report as JSON; NaN and Inf become strings."""
        document = {"passed": self.passed, **as_json(self)}
        for one in filter(None, (document["first_divergence"], *document["layers"])):
            one["closeness"] = Closeness[one["closeness"]].value
        return json.dumps(document, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AlignmentReport:
        """Return the report that `to_json` wrote; keys that it does not have are passed over.

        Raises:
            RecordError: the text is not JSON, or not that of a report.
        """
        try:
            return parse_as(cls, parse_json(text), lenient=True)
        except ValueError as error:
            raise RecordError(f"is no report of an alignment: {type(error).__name__}: {error}") from error

    def to_html(self, path: str | Path) -> None:
        """Write the report as one HTML file. It needs no other file and no network.

        Raises:
            OSError: the file cannot be written. An older file is then unchanged.
        """
        from tipchain.core.files import atomic_write
        from tipchain.live.html import render

        atomic_write(Path(path), render(self))

    def _repr_html_(self) -> str:
        """Return the report for notebooks: the verdict, stages, causes and differences of construction."""
        from tipchain.live.html import render_cell

        return render_cell(self)

    def __str__(self) -> str:
        """Return the report in at most 20 lines, in the reader's language: the verdict first, then where, then why."""
        return say(self.text)

    @property
    def text(self) -> str:
        """The printed lines in English, as logs have them; no line is cut."""
        lines = [self.headline, *(f"note: {one}" for one in self.notes)]
        for name, outcome in self.stages.items():
            lines.append(f"{outcome.value:<5} {name}: {self.reasons.get(name, '')}".rstrip(": "))
        first = self.first_divergence
        if first is not None:
            port, reference = (path or "the model itself" for path in (first.port_path, first.reference_path))
            lines.append(
                f"first divergence: {port} ({first.port_type}), reference {reference} ({first.reference_type})"
            )
            lines.append(f"  {first.reason}")
        for one in self.diagnoses[:MOST_CAUSES]:
            explains = one.explained is not None and one.is_known
            share = f", explains {one.explained:.1%}" if explains else ""
            lines += [f"cause: {one.code}{self.of_layers(one)}{share}: {one.message}"]
            lines.append(
                f"  fix: {one.fix}" + (f", and to the other {len(one.layers) - 1}" if len(one.layers) > 1 else "")
            )
        more = len(self.diagnoses) - MOST_CAUSES
        if more > 0:
            lines.append(f"{many(more, 'more cause')} in the report")
        told = self.diagnoses[:MOST_CAUSES]
        rest = [one for one in self.findings if not one.harmless and not any(cause.says(one) for cause in told)]
        room = LINES - len(lines) - 1
        lines += [f"finding: {one.message}" for one in rest[:room]]
        if len(rest) > room:
            lines.append(f"{len(rest) - room} more findings in the report")
        return "\n".join(lines[:LINES])


@dataclass(slots=True, kw_only=True)
class LiveResults:
    """The report as far as it goes.

    Attributes:
        pace: tells how far the work is, and whether its time is up.
        asked: the stages beside the layers', in their order.
        report: what was found.
        first: the first layer at fault.
        of_runs: verdicts of runs of their own, whose causes are told already.
        reach: the report's.
    """

    pace: Pace
    asked: Sequence[str]
    report: AlignmentReport = field(default_factory=lambda: AlignmentReport(stages={}))
    first: LayerVerdict | None = None
    of_runs: list[LayerVerdict] = field(default_factory=list)
    reach: float = 0.0

    def end(self, stage: str, outcome: Outcome, reason: str) -> None:
        """Note the outcome of a stage."""
        self.report.stages[stage], self.report.reasons[stage] = outcome, reason

    def add(self, stage: str, told: str) -> None:
        """Add something to a stage's reason."""
        self.report.reasons[stage] += f"; {told}" if told else ""

    def leave_out(self, told: str) -> None:
        """Note a part that could not be compared, and that no other check covers."""
        if told not in self.report.uncompared:
            self.report.uncompared.append(told)

    def passed(self, *stages: str) -> bool:
        """Tell whether some stages passed, as far as they were compared."""
        return all(self.report.stages.get(one) in (None, Outcome.PASS) for one in stages)

    @property
    def agrees(self) -> bool:
        """Whether the models agree in all that was compared."""
        stages = (self.report.stages.get(one) for one in ("preflight", "forward", "backward"))
        return all(one in (None, Outcome.PASS, Outcome.SKIP) for one in stages)

    def take(self, stage: str, check: PieceCheck) -> None:
        """Note the outcome of a stage's check."""
        self.end(stage, check.outcome, check.reason)
        self.report.numbers.update(check.numbers)
        self.report.curves.update(check.curves)
        self.report.diagnoses.extend(replace(one, stage=stage) for one in check.diagnoses)
        if check.left_out:
            self.report.unmatched["parameters"] = list(check.left_out)

    def take_verdicts(self, verdicts: Sequence[LayerVerdict]) -> None:
        """Add verdicts of a run of its own."""
        self.report.layers.extend(verdicts)
        self.of_runs.extend(verdicts)
        self.first = self.first or next((one for one in verdicts if one.at_fault), None)

    def take_run(self, verdicts: Sequence[LayerVerdict], causes: Sequence[Diagnosis], how: str) -> None:
        """Add verdicts and causes of a run of its own, and how the models were run."""
        self.take_verdicts([replace(one, reason=f"{how}: {one.reason}") for one in verdicts])
        self.report.diagnoses.extend(replace(one, message=f"{how}: {one.message}", run=how) for one in causes)

    def run(self, stage: str, work: Callable[..., PieceCheck], *args: object) -> PieceCheck | None:
        """Do a stage's work; return None where it was not asked for, and where it raises or runs late: its ERROR."""
        if stage not in self.asked:
            return None
        number = self.asked.index(stage) + 1
        self.pace.tell(f"stage {number} of {len(self.asked)}: {stage}" if len(self.asked) > 1 else f"stage {stage}")
        if self.pace.over and stage != "preflight":
            self.end(stage, Outcome.ERROR, LATE)
            return None
        check: PieceCheck | None = None
        with self.erring(stage):
            check = work(*args)
            self.take(stage, check)
        return check

    @contextmanager
    def erring(self, stage: str) -> Iterator[None]:
        """Make exceptions inside the stage's ERROR; wrong use is raised as it is."""
        try:
            yield
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a user's model, loss or optimizer may raise anything)
            self.end(stage, Outcome.ERROR, one_line(error))
