"""What comparing one piece of a training came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tipchain.blame import one_line
from tipchain.errors import TipchainError
from tipchain.outcome import Outcome
from tipchain.parity.findings import Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceCheck:
    """The outcome of one piece: the loss, the optimizers, the schedules.

    Attributes:
        outcome: PASS, FAIL, or ERROR where it could not be found out.
        reason: one sentence, with both values where something differs.
        numbers: figures by name.
        curves: series by name.
        diagnoses: causes, the likeliest first; empty unless something differs.
        left_out: parameters of the reference that were not compared.
        excused: values differ for a reason that is no fault of the port's; nothing that follows from them fails.
    """

    outcome: Outcome
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, list[float]] = field(default_factory=dict)
    diagnoses: tuple[Diagnosis, ...] = ()
    left_out: tuple[str, ...] = ()
    excused: bool = False


def failed_to_run(what: str, error: BaseException) -> PieceCheck:
    """Return the ERROR of something that raised."""
    raised = "" if isinstance(error, TipchainError) else "raised "
    return PieceCheck(outcome=Outcome.ERROR, reason=f"{what}: {raised}{one_line(error)}")
