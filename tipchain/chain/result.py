"""How commands ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tipchain.chain.plan import Command
from tipchain.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one command ended.

    Attributes:
        command: the command, with the environment variables that it was given besides the parent's.
        outcome: PASS, FAIL, ERROR or SKIP.
        reason: one sentence; "" for a PASS.
        exit_code: the exit status, None where there is none.
        signal: name of the signal that ended it, "" for none.
        started: local time as ISO 8601, "" if it did not start.
        seconds: wall time.
        peak_memory_mb: largest resident size of the command or of a process it waited for, in MiB.
        log: its log, relative to the run's folder.
        tail: the log's last lines.
        figures: numbers found in the log, by name: ``avg_ips``, ``loss``, ``top1``, ``inference_ms``, ...
        missing: the artifacts that it should have left and did not, as text.
        reused: whether an earlier attempt of the run had passed it, so that it was not run again.
    """

    command: Command
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    signal: str = ""
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    log: str = ""
    tail: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reused: bool = False
