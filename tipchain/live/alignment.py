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
        origin: which models, when, at which commit: ``reference``, ``port``, ``date``, ``commit``.
        notes: what was done before anything was compared, such as copying weights.
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
        """Return 0, 1, or 4 where nothing was checked."""
        return exit_code(self.stages.values())

    @property
    def headline(self) -> str:
        """The verdict in one line: PASS or FAIL, and what goes with it."""
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
        """Return of how many layers of which type something is the cause: `` (94 BatchNorm2D)``; empty of one."""
        if len(cause.layers) < 2:
            return ""
        types = {one.port_type for one in self.layers if one.port_path in cause.layers}
        return f" ({len(cause.layers)} {types.pop() if len(types) == 1 else 'layers'})"
