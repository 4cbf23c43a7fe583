"""An alignment's findings so far, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tipchain.core.blame import one_line
from tipchain.core.progress import LATE, Pace
from tipchain.errors import Outcome, UsageError
from tipchain.explain.findings import Diagnosis, PieceCheck
from tipchain.explain.locate.verdicts import LayerVerdict
from tipchain.live.report import AlignmentReport


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
