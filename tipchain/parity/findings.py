"""What is told about a port beside numbers: differences of construction, and causes of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["here", "elsewhere", "none"]
"""What a difference of construction does: these inputs show it, others or a training would, or nothing would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference that is there before anything runs: an argument, a parameter, a setting, a flag.

    Attributes:
        code: a slug: ``"epsilon"``, ``"momentum"``, ``"padding"``, ``"weight-decay"``.
        kind: what is set differently: ``"argument"`` of a layer, ``"parameter"``, ``"flag"``, ``"optimizer"``,
            ``"scheduler"``, ``"environment"``.
        reference_path: the layer in torch's model; empty for what belongs to no layer.
        port_path: the layer in Paddle's.
        reference: the reference's value, as torch would write it.
        port: the port's, as Paddle would.
        message: one sentence with both values.
        fix: what to write in the port.
        effect: ``"here"``: the results differ; ``"elsewhere"``: other inputs, another mode or a training would show it, and
            the message says which; ``"none"``: it changes no result and no training; told, but it fails nothing.
    """

    code: str
    kind: Literal["argument", "parameter", "flag", "optimizer", "scheduler", "environment"]
    reference_path: str
    port_path: str
    reference: str
    port: str
    message: str
    fix: str
    effect: Effect = "here"

    @property
    def harmless(self) -> bool:
        """Whether it fails nothing."""
        return self.effect == "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A cause that explains an error.

    Attributes:
        code: a slug: ``"epsilon"``, ``"transposed-weight"``, ``"missing-bias"``, ``"unknown"``.
        port_path: the layer, or ``loss``, ``metric``, ``data``, ``optimizer``, ``scheduler``.
        message: one sentence: what is wrong.
        evidence: what was tried, with numbers.
        explained: the fraction of the error that is gone under the hypothesis, from 0 to 1; None where it rests on
            a difference of construction alone.
        fix: the line to change.
        paths: all layers that have it, where it is the cause of several; ``port_path`` is the first.
    """

    code: str
    port_path: str
    message: str
    evidence: str
    explained: float | None
    fix: str
    paths: tuple[str, ...] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """All layers that have it, the first one first."""
        return self.paths or (self.port_path,)

    def says(self, finding: Finding) -> bool:
        """Tell whether it is what a difference of construction is, of the same layer."""
        same = self.code.startswith(finding.code) or finding.code.startswith(self.code)
        return same and finding.port_path in self.layers
