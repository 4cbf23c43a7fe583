"""The verdict on a case's run: live models in float64 decide, recorded numbers show it, and a user's tolerance may accept it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.core.files import append, atomic_write
from tipchain.core.json_text import JsonObject
from tipchain.core.language import fold, say, terminal_width
from tipchain.errors import BAD, ExitCode, Outcome, TipchainError
from tipchain.live.worker import Launched, Worker, start_worker
from tipchain.modes import CHECKS, INFO, LOCATABLE, PREFLIGHT
from tipchain.numbers.tolerance import ROUGH
from tipchain.numbers.verdicts import Verdict
from tipchain.parity.align import AlignRequest, choose_stages
from tipchain.parity.stages.judging import Rules, deviate
from tipchain.report.model import Diagnosed, RunReport, diagnose_run, stage_of

if TYPE_CHECKING:
    from tipchain.parity.case import KnownDeviation
    from tipchain.report.page import PageSection

TIMEOUT_S = 900.0
"""How long the comparison of the live models may take, with its search for causes."""
SWITCHED_OFF = "not looked for: --no-locate"
INTERRUPTED = "not looked for: interrupted"
ONE_SIDE = "not looked for: it takes both models, and a side's dumps were given"
NEEDS_BOTH = "not looked for: it takes both models, and torch or paddle is not installed here"
NEEDS_TORCH = (
    "not looked for: it takes the live torch model, and a bundle has none; "
    "tipchain align CASE without --reference, where torch is installed, looks for it"
)
UNFIT = "not compared: the reference's weights do not fit the port"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSearch:
    """How causes are looked for.

    Attributes:
        wanted: whether they are.
        within: seconds for the comparison itself; None for no limit.
        timeout_s: seconds in all; None for `TIMEOUT_S`.
        quiet: do not say how far it is.
        stream: where the live models' report is printed; None for nowhere.
    """

    wanted: bool = True
    within: float | None = None
    timeout_s: float | None = None
    quiet: bool = False
    stream: TextIO | None = None


@contextmanager
def start_judge(request: AlignRequest, search: CauseSearch) -> Iterator[Judge]:
    """Start the process of the live models, which imports both frameworks while the sides record.

    There is none where a side is not recorded here, or a framework is not installed: the dumps are judged by tolerances.
    """
    both = not request.dumps and len(request.sides) > 1 and all(find_spec(one) for one in ("torch", "paddle"))
    with start_worker(ahead=True, quiet=search.quiet) if both else nullcontext() as worker:
        yield Judge(request=request, search=search, worker=worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Turns a run's records into its verdict."""

    request: AlignRequest
    search: CauseSearch
    worker: Worker | None

    def decide(self, report: RunReport, out: Path) -> RunReport:
        """Return a run's report with the live models' verdicts and the causes of failures.

        Raises:
            OSError: the output folder cannot be written to.
        """
        failed = _failed(report.verdicts)
        if report.interrupted:
            return replace(report, undiagnosed=INTERRUPTED if failed else "")
        if self.worker is None:
            both = not self.request.dumps and len(self.request.sides) > 1
            why = NEEDS_TORCH if self.request.given else NEEDS_BOTH if both else ONE_SIDE
            return replace(report, undiagnosed=why if failed & LOCATABLE else _untold(failed))
        try:
            done = self._compare(self.worker, report, failed)
        except KeyboardInterrupt:
            return replace(report, undiagnosed=INTERRUPTED if failed else "", interrupted=True)
        except TipchainError as error:
            done = Launched(text=str(error), exit_code=error.exit_code, document=None)
        # The live models' report of a difference is kept, and printed where that is asked for.
        file = self.request.folder / f"{self.request.report_name.replace('alignment', 'located')}.json"
        if done.document is not None and done.exit_code:
            atomic_write(file, json.dumps(done.document) + "\n")
        else:
            file.unlink(missing_ok=True)
        if self.search.stream is not None:
            text = fold(say(done.text), terminal_width())
            print(f"== both models in one process\n{text}", file=self.search.stream, flush=True)
        run = self.request.folder.parent.name
        append(out / "alignment.log", f"# run {run} both models in one process\n{done.text}\n")
        if done.document is None:
            text = done.text.removeprefix("ERROR: ")
            verdict = Verdict(Outcome.ERROR, f"{PREFLIGHT}/models", f"both models in one process: {text}")
            known = any(one in BAD for one in report.outcomes)  # the recording of a side told the same
            verdicts = report.verdicts if known else (verdict, *report.verdicts)
            return replace(report, verdicts=verdicts, undiagnosed=f"could not be looked for: {text}" if failed else "")
        return replace(self._decided(report, done.document), interrupted=done.exit_code == ExitCode.INTERRUPTED)

    def _compare(self, worker: Worker, report: RunReport, failed: set[str]) -> Launched:
        """Compare the models in the stages that they judge, and look for the causes of the others that failed."""
        case, stages = self.request.case, self.request.stages
        causes = {live for one in failed for live in INFO[one].live if self.search.wanted}
        options: dict[str, object] = {"causes": self.search.wanted}
        seed = ("--seed", str(case.reseed)) if case.reseed else ()
        if self.search.within:
            options["within"] = self.search.within
        asked = {
            "case": str(case.path.resolve()),
            "mode": self.request.mode.value,
            "reseed": case.reseed,
            "data_path": str(self.request.data_path) if self.request.data_path else "",
            "only": stages,
            "uses": sorted({one for stage in stages for one in INFO[stage].uses}),
            "stages": sorted({*self._judged, *causes} or {PREFLIGHT}),
            "accepts": sorted(_permissions(report.verdicts, self._rules)),
            "options": options,
            "command": shlex.join(["tipchain", "locate", str(case.path), "--mode", self.request.mode.value, *seed]),
        }
        return worker.align(asked, timeout_s=self.search.timeout_s or TIMEOUT_S)

    @property
    def _rules(self) -> Rules:
        return self.request.rules or Rules.of(self.request.case)

    @property
    def _judged(self) -> dict[str, str]:
        stages, case, mode = self.request.stages, self.request.case, self.request.mode
        judged = {live: one for one in stages if INFO[one].judged_live for live in INFO[one].live}
        if "forward" in judged and mode.trains and stages == choose_stages(case, mode, ()):
            judged["backward"] = "backward"  # gradients belong to the network, whether or not the case trains it
        return judged

    def _decided(self, report: RunReport, document: JsonObject) -> RunReport:
        rules, judged = self._rules, {PREFLIGHT: PREFLIGHT, **self._judged}
        verdicts = [*_live_verdicts(document, judged)]
        lacking: list[str] = []  # outputs that the case names and only the reference returns, the port's not recorded
        if any(one.outcome is Outcome.ERROR and one.subject == "forward/paddle" for one in report.verdicts):
            names, alone = self.request.case.outputs, document.get("unmatched", {}).get("outputs", ())
            alone = [one.removesuffix(" (reference only)") for one in alone if one.endswith(" (reference only)")]
            lacking = [names[int(one)] if one.isdigit() and int(one) < len(names) else one for one in alone]
        for at, one in enumerate(verdicts):
            if lacking and one.outcome is Outcome.PASS and stage_of(one) == "forward":
                lost = f"the port does not return {', '.join(lacking)}, the reference does"
                verdicts[at] = replace(one, outcome=Outcome.FAIL, reason=lost)
            elif one.outcome is Outcome.PASS and document.get("unfit") and stage_of(one) != PREFLIGHT:
                verdicts[at] = replace(one, outcome=Outcome.SKIP, reason=f"{UNFIT}: {one.reason}")
            elif one.outcome is Outcome.PASS:
                verdicts[at] = deviate(one, rules.deviations)
        failed = _failed(verdicts)
        unequal = {stage_of(one) for one in verdicts if one.outcome is not Outcome.PASS}
        equal = {stage_of(one) for one in verdicts} - unequal
        random = "; ".join(document.get("uncompared", ()))
        rough = max(ROUGH, document.get("reach", 0.0))
        for one in report.verdicts:
            stage = stage_of(one)
            if document.get("unfit") and one.subject == f"{stage}/needs":
                if not INFO[stage].judged_live:
                    verdicts.append(replace(one, outcome=Outcome.SKIP, reason=UNFIT))
            elif (deviation := _deviation(one, rules)) is not None:
                hidden = stage in failed and one.outcome is Outcome.FAIL and "known deviation is gone" in one.reason
                reason = f"known deviation: {deviation.reason}"  # the live models show it still
                verdicts.append(replace(one, outcome=Outcome.SKIP, reason=reason) if hidden else one)
            elif stage in equal and PREFLIGHT in equal and "forward" not in failed:
                verdicts.append(_as_rounding(one, random, rough if stage == "forward" else ROUGH))
            elif stage in equal and "forward" in failed and one.outcome is Outcome.FAIL:
                verdicts.append(replace(one, outcome=Outcome.SKIP, reason=f"follows from the network: {one.reason}"))
            else:
                verdicts.append(one)
        told = tuple(verdicts)
        found = Diagnosed(undiagnosed=_untold(_failed(told)))
        if _failed(told) & {*LOCATABLE, PREFLIGHT}:
            found = diagnose_run(told, document, self.request.case.root)
            told, found = self._accepted(told, found, document, judged)
            left = found.undiagnosed if self.search.wanted else SWITCHED_OFF
            known = all(one.is_known for one in found.diagnoses) and not found.undiagnosed
            found = replace(found, undiagnosed=left if _failed(told) and not (known and found.diagnoses) else "")
        uncompared, left = tuple(document.get("uncompared", ())), found.undiagnosed
        return replace(report, verdicts=told, diagnoses=found.diagnoses, undiagnosed=left, uncompared=uncompared)

    def _accepted(
        self, verdicts: tuple[Verdict, ...], found: Diagnosed, document: JsonObject, judged: Mapping[str, str]
    ) -> tuple[tuple[Verdict, ...], Diagnosed]:
        """Return the verdicts with the user's accepted differences, and the causes of the others.

        A setting that is accepted was put right, and everything judged again. What could not be put right is accepted in
        the stages of which the user says so.
        """
        permissions = _permissions([one for one in verdicts if not _is_live(one)], self._rules)
        rest, causes = document.get("rest"), found.diagnoses
        again = {} if rest is None else {one.subject: one for one in _live_verdicts(rest["document"], judged)}
        settled = [] if rest is None else rest["settled"]
        told = []
        for one in verdicts:
            if one.outcome is not Outcome.FAIL or not _is_live(one):
                told.append(one)
                continue
            stage, accepted, known = stage_of(one), "", _deviation(one, self._rules)
            own = [cause for cause in causes if one.subject in cause.explains]
            if known is not None and own:
                accepted = f"{own[0].message} (known deviation of {one.subject}: {known.reason})"
            elif one.subject in again:
                accepted = "; ".join(permissions[cause["stage"]](cause["message"]) for cause in settled)
                if again[one.subject].outcome is not Outcome.PASS:
                    told.append(again[one.subject])
                    continue
            elif stage in permissions and own and all(cause.stage == stage and not cause.run for cause in own):
                accepted = (
                    f"{permissions[stage](own[0].message)}; with it, no other inputs and no other mode were compared"
                )
            passed = replace(one, outcome=Outcome.PASS, reason=f"accepted: {accepted}", accepted=accepted)
            told.append(passed if accepted else one)
        if not _failed(told) & {*LOCATABLE, PREFLIGHT}:
            return tuple(told), Diagnosed(undiagnosed=_untold(_failed(told)))
        root = self.request.case.root
        return tuple(told), found if rest is None else diagnose_run(told, rest["document"], root)


def _failed(verdicts: Sequence[Verdict]) -> set[str]:
    return {stage_of(one) for one in verdicts if one.outcome is Outcome.FAIL}


def _untold(failed: set[str]) -> str:
    stages = ", ".join(sorted(failed))
    return f"not looked for: {stages} tells itself what differs" if stages else ""


def _live_verdicts(document: JsonObject, judged: Mapping[str, str]) -> Iterator[Verdict]:
    for live, stage in judged.items():
        if live in document["stages"]:
            outcome, reason = Outcome(document["stages"][live]), document.get("reasons", {}).get(live, "")
            yield Verdict(outcome, f"{stage}/{CHECKS[live]}", reason)


def _as_rounding(verdict: Verdict, random: str, rough: float) -> Verdict:
    """Return a recorded tensor's verdict where float64 agrees: rounding's differences are none, either.

    ``random`` tells what could not be compared, for each side drew other numbers; ``rough``, how far rounding may reach.
    """
    diff = verdict.diff
    concerned = verdict.outcome in BAD and "/lr_" not in verdict.subject
    if not concerned or diff is None or diff.expected_shape != diff.actual_shape:
        return verdict
    # Gradients, parameters and buffers are measured by the model's largest, which their share tells.
    share = verdict.share if verdict.share is not None and "/" in verdict.subject.partition("/")[2] else None
    close = diff.max_abs <= rough * diff.expected_max_abs or (share is not None and share * ROUGH <= 1)
    if not diff.expected_dtype.startswith("float") or not close:
        return replace(verdict, outcome=Outcome.SKIP, reason=random, share=None) if random else verdict
    return replace(verdict, outcome=Outcome.PASS, reason=f"rounding, equal in float64: {verdict.reason}", share=None)


def _deviation(verdict: Verdict, rules: Rules) -> KnownDeviation | None:
    return next((one for one in rules.deviations if one.subject == verdict.subject), None)


def _permissions(verdicts: Sequence[Verdict], rules: Rules) -> dict[str, Callable[[str], str]]:
    """Return how the user accepts a difference, by stages whose recorded numbers all pass: by a tolerance, or a known deviation."""
    found: dict[str, Callable[[str], str]] = {}
    wrong = _failed(verdicts)
    for one in verdicts:
        stage = stage_of(one)
        permission = None if stage in wrong or _is_live(one) else _permission(one, stage, rules)
        if permission is not None:
            found.setdefault(stage, permission)
    return found


def _is_live(verdict: Verdict) -> bool:
    return verdict.diff is None and verdict.subject.partition("/")[2] in CHECKS.values()


def _permission(verdict: Verdict, stage: str, rules: Rules) -> Callable[[str], str] | None:
    """Return the function that words a recorded tensor's accepted difference; None where nobody accepts it."""
    subject, key = verdict.subject, verdict.subject.removeprefix(f"{stage}/")
    known = _deviation(verdict, rules)
    if known is not None:
        return lambda what: f"{what} (known deviation of {subject}: {known.reason})"
    own = next((rule for pattern, rule in rules.own.get(stage, {}).items() if fnmatchcase(key, pattern)), None)
    if own is None or verdict.outcome is not Outcome.PASS:
        return None
    why = f": {own.reason}" if own.reason else ""
    return lambda what: f"{what} (your tolerance {own} on {key}{why})"


# What the live models showed, beside a run's report.


def located_details(folder: Path) -> list[PageSection]:
    """Return the page's sections on live models, of the first of the alignments in a folder that failed; [] where nothing is kept."""
    for file in sorted(folder.glob("located*.json")):
        from tipchain.live.html import detail_sections
        from tipchain.live.report import AlignmentReport

        # One that cannot be read is passed over: a page without it tells the causes all the same.
        with suppress(OSError, ValueError, TipchainError):
            return list(detail_sections(AlignmentReport.from_json(file.read_text(encoding="utf-8"))))
    return []
