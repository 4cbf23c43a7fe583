"""What comparing two live models came to: stages, layers, differences of construction, causes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tipchain.live.histograms import Histogram
from tipchain.outcome import ExitCode, Outcome, exit_code
from tipchain.parity.findings import Diagnosis, Finding
from tipchain.parity.locate.verdicts import Closeness, LayerVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Everything `tipchain.align` found.

    Attributes:
        stages: the outcome of each stage that ran: ``data``, ``train_data``, ``preflight``, ``forward``, ``metric``, ``loss``,
            ``backward``, ``optimizer``, ``schedule``, ``train``.
        reasons: the reason of each outcome, by stage.
        layers: one verdict for each call of a matched layer, first forward, then backward.
        first_divergence: the first layer at fault, in the order in which the port runs.
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
    origin: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether something was compared and nothing failed or errored."""
        outcomes = set(self.stages.values())
        return Outcome.PASS in outcomes and not outcomes & {Outcome.FAIL, Outcome.ERROR}

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: 0 (passed), 1 (a check failed or errored) or 4 (nothing was compared)."""
        return exit_code(self.stages.values())

    @property
    def headline(self) -> str:
        """The verdict in one line: PASS or FAIL, with the number of compared layers."""
        layers = len(
            {
                (one.reference_path, one.turn)
                for one in self.layers
                if one.closeness is not Closeness.NOT_COMPARABLE
            }
        )
        words = "the port is the reference" if self.passed else "the port is not the reference"
        if self.passed is False and not any(one is Outcome.FAIL for one in self.stages.values()):
            words = (
                "could not be found out" if Outcome.ERROR in self.stages.values() else "nothing was compared"
            )
        return f"{'PASS' if self.passed else 'FAIL'}: {words}; {layers} layers compared"

    def of_layers(self, cause: Diagnosis) -> str:
        """Return the number and the type of the layers with this cause: `` (94 BatchNorm2D)``; "" for one layer."""
        if len(cause.layers) < 2:
            return ""
        types = {one.port_type for one in self.layers if one.port_path in cause.layers}
        return f" ({len(cause.layers)} {types.pop() if len(types) == 1 else 'layers'})"
