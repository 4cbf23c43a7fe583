"""From differences to verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.outcome import Outcome
from tipchain.parity.compare import TensorDiff


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement about one tensor, or about one key that is missing, extra or reshaped.

    Attributes:
        outcome: PASS, FAIL, ERROR or SKIP.
        subject: ``stage/key``, or the bare key outside a stage.
        reason: one sentence; for a FAIL it holds the worst index and both values.
        diff: the facts it rests on; None where there was nothing to compare.
    """

    outcome: Outcome
    subject: str
    reason: str
    diff: TensorDiff | None = None
