"""A run's report: what every renderer shows, and the only place where a run's exit code is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tipchain.chain.result import Result
from tipchain.outcome import ExitCode, Outcome, exit_code

if TYPE_CHECKING:
    from tipchain.parity.findings import Diagnosis
    from tipchain.parity.judge import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A chain's results, an alignment's verdicts, or both.

    Attributes:
        title: what ran: the parameter file or the case.
        mode: the mode's name.
        chain: the kind of chain (`tipchain.chain.kinds`); "" for alignments, and in reports of earlier tipchains.
        run: the run's folder, as shown to the user; "" where there is none.
        started: local time as ISO 8601.
        seconds: wall time.
        versions: name to version of what the run rests on.
        where: machine, processor, GPUs, commit by name, as `tipchain.nightly.machine.origin` has them; empty in
            reports of earlier tipchains.
        models: what ran: ``reference`` and ``port``, or ``model``, each with what builds it; empty where that is not known.
        results: how the commands ended.
        verdicts: judgements about tensors.
        diagnoses: what makes verdicts fail, in the order of the stages, each with the verdicts that follow from it.
        undiagnosed: why nothing, or not all, was looked for where verdicts failed; "" where all was.
        notes: what was left out and why.
        interrupted: whether the user interrupted the run.
        page: its page as shown to the user; "" where none was written.
    """

    title: str
    mode: str
    run: str
    started: str
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    undiagnosed: str = ""
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    page: str = ""
    chain: str = ""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes of all results and verdicts."""
        return (*(result.outcome for result in self.results), *(verdict.outcome for verdict in self.verdicts))

    @property
    def exit_code(self) -> ExitCode:
        """The program's exit code."""
        return ExitCode.INTERRUPTED if self.interrupted else exit_code(self.outcomes)
