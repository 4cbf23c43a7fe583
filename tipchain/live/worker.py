"""Live models in a process of their own: as its parent sees it, and what runs in it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tipchain.core.blame import UsersError
from tipchain.core.files import append, atomic_write
from tipchain.core.guard import guarded
from tipchain.core.json_text import JsonObject
from tipchain.core.language import fold, say, terminal_width
from tipchain.core.machine import end_with_parent, how_ended, paddle_kernels
from tipchain.core.progress import Pace, Progress, interrupted
from tipchain.errors import ExitCode, Outcome, TipchainError, UsageError
from tipchain.modes import LOCATABLE
from tipchain.report.model import Diagnosed, RunReport, diagnose_run, stage_of

if TYPE_CHECKING:
    from tipchain.numbers.verdicts import Verdict
    from tipchain.parity.align import AlignRequest
    from tipchain.parity.stages.judging import Rules
    from tipchain.report.page import Section
    from tipchain.weights.given_names import NameMap

PATIENCE_S = 30.0
"""How long a process that was interrupted may take to end: it finishes the comparison that it is in."""
LAST = 12
"""Lines of the process's output that a message about its end shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """How the process ended.

    Attributes:
        text: the report as it is printed, or why there is none.
        exit_code: of the command.
        document: the report's JSON; None without one.
        interrupted: whether the user ended it before its time.
    """

    text: str
    exit_code: int
    document: JsonObject | None
    interrupted: bool = False


def launch(request: Mapping[str, object], *, timeout_s: float | None = None, quiet: bool = False) -> Launched:
    """Align what ``request`` asks for (see `tipchain.live.worker`) in a process of its own.

    A process that crashes, or does not end in time, is an error of the check (exit code 1), with the signal's name.
    When the user interrupts, it begins nothing new and tells what it knows (exit code 130).

    Raises:
        KeyboardInterrupt: the user interrupted before anything was known, or twice.
        UsageError: the process refused the request: wrong arguments, a case that cannot be read.
        UsersError: the user's own code raised while the models or what goes with them was built.
    """
    with tempfile.TemporaryDirectory(prefix="tipchain-align-") as folder, _own_stderr(quiet) as told:
        asked, report = Path(folder) / "request.json", Path(folder) / "report.json"
        interrupted = False
        asked.write_text(json.dumps({**request, "report": str(report), "progress": told, "began": time.monotonic()}))
        with subprocess.Popen(
            [sys.executable, "-m", "tipchain.live.worker", str(asked)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=() if told is None else (told,),
            env={**paddle_kernels(), **os.environ},
        ) as process:
            try:
                try:
                    output, _ = process.communicate(timeout=timeout_s)
                except KeyboardInterrupt:
                    interrupted = True
                    output = _interrupt(process)
            except BaseException as error:
                _kill(process)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return Launched(
                    text=f"ERROR: not finished after {timeout_s:g} s", exit_code=ExitCode.FAILED, document=None
                )
        if report.is_file() and process.returncode == 0:
            document = json.loads(report.read_bytes())
            if interrupted:
                text = f"interrupted; what was known by then:\n{document['text']}"
                return Launched(text=text, exit_code=ExitCode.INTERRUPTED, document=document, interrupted=True)
            return Launched(text=document["text"], exit_code=document["exit_code"], document=document)
    if interrupted:
        raise KeyboardInterrupt
    return _ended(process.returncode, output)


def _interrupt(process: subprocess.Popen[str]) -> str:
    """Let a process begin nothing new and end; return what it wrote.

    Raises:
        KeyboardInterrupt: it takes too long, or the user cannot wait.
    """
    print(say("interrupted: the result so far follows; Ctrl-C again ends at once"), file=sys.stderr)
    os.kill(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        raise KeyboardInterrupt from None


@contextmanager
def _own_stderr(quiet: bool) -> Iterator[int | None]:
    """Yield another number of this process's standard error, for the other to write how far it is; None without one.

    The other's own standard error, which is number 2 there too, is kept apart for what a message about its end shows.
    """
    try:
        number = None if quiet else os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        number = None
    try:
        yield number
    finally:
        if number is not None:
            os.close(number)


def _ended(code: int, output: str) -> Launched:
    """Say why there is no report."""
    lines = output.strip().splitlines()
    said = "\n".join(line for line in lines if not line.startswith("W"))
    _, marked, message = f"\n{said}".rpartition("\nerror: ")
    if code == ExitCode.USAGE:
        raise UsageError(message)
    if code == ExitCode.FAILED and marked:
        raise UsersError(message)
    shown = "\n".join(f"  | {line}" for line in lines[-LAST:])
    return Launched(
        text=f"ERROR: the process that ran the models {how_ended(code)}\n{shown}".rstrip(),
        exit_code=ExitCode.FAILED,
        document=None,
    )


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


# The causes of what an alignment of a case found, looked for in such a process.


LOCATE_TIMEOUT_S = 900.0
"""How long the search for causes may take, in a process of its own."""
SWITCHED_OFF = "not looked for: --no-locate"
INTERRUPTED = "not looked for: interrupted"
AGREEING = (Outcome.PASS.value, Outcome.SKIP.value)
ONE_SIDE = "not looked for: it takes both models, and a side's dumps were given"
NEEDS_TORCH = (
    "not looked for: it takes the live torch model, and a bundle has none; "
    "tipchain align CASE without --reference, where torch is installed, looks for it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSearch:
    """How causes are looked for.

    Attributes:
        wanted: whether they are.
        within: seconds for the search itself; None for no limit.
        timeout_s: seconds in all; None for `LOCATE_TIMEOUT_S`.
        quiet: do not say how far it is.
        stream: where what is found is printed; None for nowhere.
    """

    wanted: bool = True
    within: float | None = None
    timeout_s: float | None = None
    quiet: bool = False
    stream: TextIO | None = None


def explain_failures(report: RunReport, request: AlignRequest, out: Path, search: CauseSearch) -> RunReport:
    """Return the report of an alignment with the causes of what failed, or why they were not looked for.

    Raises:
        OSError: the output folder cannot be written to.
    """
    try:
        found, report = _find_causes(report, request, out, search)
    except KeyboardInterrupt:
        found = Diagnosed(undiagnosed=INTERRUPTED, interrupted=True)
    if found == Diagnosed():
        if not report.diagnoses:
            _located_file(request).unlink(missing_ok=True)
        return report
    interrupted = report.interrupted or found.interrupted
    return replace(report, diagnoses=found.diagnoses, undiagnosed=found.undiagnosed, interrupted=interrupted)


def _find_causes(
    report: RunReport, request: AlignRequest, out: Path, search: CauseSearch
) -> tuple[Diagnosed, RunReport]:
    """Look for the causes where a stage failed that runs the model, and both sides were run here; settle what is open."""
    from tipchain.parity.stages.judging import Rules

    rules = request.rules or Rules.of(request.case)
    failed, is_open = _stages_failed(report), any(_is_open(one, rules) for one in report.verdicts)
    if report.interrupted or not (failed or is_open):
        return Diagnosed(undiagnosed=INTERRUPTED if failed else ""), report
    if not failed & LOCATABLE and not is_open:
        return _untold(failed), report
    if not search.wanted:
        return Diagnosed(undiagnosed=SWITCHED_OFF if failed else ""), report
    if request.dumps or len(request.sides) < 2:
        why = ONE_SIDE if request.given is None else NEEDS_TORCH
        return Diagnosed(undiagnosed=why if failed else ""), report
    asked = {
        "case": str(request.case.path.resolve()),
        "mode": request.mode.value,
        "reseed": request.case.reseed,
        "data_path": str(request.data_path) if request.data_path else "",
        "only": sorted({*failed, "forward"} if is_open else failed),
        "options": {"within": search.within} if search.within else {},
    }
    try:
        done = launch(asked, timeout_s=search.timeout_s or LOCATE_TIMEOUT_S, quiet=search.quiet)
        text, document, interrupted = done.text, done.document, done.interrupted
    except TipchainError as error:
        text, document, interrupted = str(error), None, False
    if document is None:
        _located_file(request).unlink(missing_ok=True)
        text = f"could not be looked for: {text.removeprefix('ERROR: ')}"
        found = Diagnosed(undiagnosed=text if failed else "")
    else:
        if is_open:
            report = _settled(report, request, out, document, rules)
        failed = _stages_failed(report)
        found = diagnose_run(report.verdicts, document, request.case.root) if failed & LOCATABLE else _untold(failed)
        atomic_write(_located_file(request), json.dumps(document) + "\n")
    if search.stream is not None:
        print(f"== where and why\n{fold(say(text), terminal_width())}", file=search.stream, flush=True)
    append(out / "alignment.log", f"# run {request.folder.parent.name} where and why\n{text}\n")
    return replace(found, interrupted=interrupted), report


def _stages_failed(report: RunReport) -> set[str]:
    return {stage_of(verdict) for verdict in report.verdicts if verdict.outcome is Outcome.FAIL}


def _untold(failed: Iterable[str]) -> Diagnosed:
    """Return that the causes of stages which run no model, or an exported one, were not looked for."""
    stages = ", ".join(sorted(failed))
    return Diagnosed(undiagnosed=f"not looked for: {stages} tells itself what differs" if stages else "")


def _is_open(verdict: Verdict, rules: Rules) -> bool:
    """Tell whether a verdict is open until both models run in one process.

    There they can be given equal random numbers, and float64 tells rounding, which may exceed the default tolerance, from a fault.
    """
    from tipchain.parity.stages.forward import RANDOM, may_be_rounding

    return (verdict.subject in RANDOM and verdict.outcome is Outcome.SKIP) or may_be_rounding(verdict, rules)


def _settled(report: RunReport, request: AlignRequest, out: Path, document: JsonObject, rules: Rules) -> RunReport:
    """Return the report with what the live models told in place of open verdicts; what failed still does unless they agree."""
    from tipchain.parity.align import amend_stage
    from tipchain.parity.stages.forward import RANDOM

    stages, reasons = document["stages"], document.get("reasons", {})
    wrong = next((one for one in ("preflight", "forward") if stages.get(one) == Outcome.FAIL.value), "")
    told = f"both models in one process: {reasons.get(wrong or 'forward', '')}"
    # Train mode is compared where all agrees before; where it could not be, the reason says so.
    agree = all(stages.get(one) in AGREEING for one in ("preflight", "forward", "backward"))
    left = re.search("mode was not compared|the results are random", told)
    outcome = Outcome.FAIL if wrong else Outcome.PASS if agree and not left else Outcome.SKIP
    same_loss = outcome is Outcome.PASS and stages.get("loss") == Outcome.PASS.value
    tolds = {"forward": told, "loss": f"both models in one process: {reasons.get('loss', '')}"}
    settled = tuple(
        replace(one, outcome=outcome, reason=tolds[stage_of(one)], share=None)
        if _is_open(one, rules)
        and (one.subject in RANDOM or (same_loss if stage_of(one) == "loss" else outcome is Outcome.PASS))
        else one
        for one in report.verdicts
    )
    for stage in dict.fromkeys(stage_of(one) for one in report.verdicts if _is_open(one, rules)):
        amend_stage(stage, settled, request, out)
    return replace(report, verdicts=settled)


def located_details(folder: Path) -> list[Section]:
    """Return what live models showed, of the first of the alignments in a folder that failed; [] where nothing is kept."""
    for file in sorted(folder.glob("located*.json")):
        from tipchain.live.html import detail_sections
        from tipchain.live.report import AlignmentReport

        # One that cannot be read is passed over: a page without it tells the causes all the same.
        with suppress(OSError, ValueError, TipchainError):
            return list(detail_sections(AlignmentReport.from_json(file.read_text(encoding="utf-8"))))
    return []


def _located_file(request: AlignRequest) -> Path:
    """Return the file that keeps what the live models showed, beside an alignment's report."""
    return request.folder / f"{request.report_name.replace('alignment', 'located')}.json"


def command_line(asked: JsonObject) -> str:
    """Return the ``tipchain`` command of a request (see `tipchain.live.worker`), as a shell takes it."""
    options = asked.get("options", {})
    return shlex.join(["tipchain", "locate", *_arguments(asked), *_options(asked, options)])


def _arguments(asked: JsonObject) -> Iterator[str]:
    if asked.get("case"):
        yield from (asked["case"], "--mode", asked["mode"])
        return
    for name in ("reference", "port", "inputs"):
        yield from (f"--{name}", asked[name])
    for name in ("loss", "optimizers", "schedulers", "clip", "step", "data", "metrics", "predict"):
        if asked.get(name):
            yield from (f"--{name}", *asked[name])
    if asked.get("outputs"):
        yield from ("--outputs", *asked["outputs"])
    if asked.get("samples"):
        yield from ("--samples", asked["samples"])


def _options(asked: JsonObject, options: Mapping[str, object]) -> Iterator[str]:
    if asked.get("names"):
        yield from ("--names", asked["names"])
    if not options.get("causes", True):
        yield "--no-causes"
    if not asked.get("copy_weights", True):
        yield "--no-copy-weights"
    if options.get("training"):
        yield "--training"
    if "iterations" in options:
        yield from ("--iterations", str(options["iterations"]))
    seed = asked.get("reseed", 0) if asked.get("case") else options.get("seed", 0)
    if seed:
        yield from ("--seed", str(seed))


# The process in which live models run: it may crash without taking the command with it.


UPDATES = frozenset(("backward", "regularization", "optimizer", "lr", "train"))
"""Stages in which parameters are updated."""


def main(request: str) -> int:
    """Align what the JSON file ``request`` asks for, and write the report where it says.

    The file holds ``case``, ``mode``, ``reseed`` and ``data_path``, or ``reference``, ``port``, ``inputs``, ``loss``,
    ``optimizers``, ``schedulers``, ``clip``, ``outputs``, ``step``, ``data``, ``samples``, ``metrics`` and ``predict``; ``only``, the stages of a case that are
    looked into; ``names``, a YAML file of names; ``copy_weights``, whether a fresh port is given the reference's weights;
    ``options`` for `tipchain.align`; ``began``, the monotonic clock's seconds from which its ``within`` counts; ``certify``,
    the number of faults to plant, for `certify` instead; and ``report``, a JSON file, which has the text that is printed too.
    """
    end_with_parent()
    asked = json.loads(Path(request).read_bytes())
    with _progress(asked.get("progress")) as progress:
        return _work(asked, progress)


def _work(asked: JsonObject, progress: Progress) -> int:
    progress.stage("importing torch and Paddle")
    from tipchain.frameworks.paddle_ import PaddleFramework
    from tipchain.frameworks.torch_ import Dynamo, TorchFramework
    from tipchain.weights.given_names import read_names

    Dynamo(TorchFramework().torch).install()  # torch must be imported before paddle
    PaddleFramework()
    progress.stage("building the models")
    names = read_names(Path(asked["names"])) if asked.get("names") else None
    given = (_of_case if asked.get("case") else _of_callables)(asked, names)
    notes, lacking = given.pop("notes", []), given.pop("lacking", {})
    given.update(asked.get("options", {}))
    if "within" in given:  # counted from the command's start: importing and building take seconds of it
        given["within"] = max(given["within"] - (time.monotonic() - asked["began"]), sys.float_info.min)
    # From here on something is known that is worth telling when the user interrupts.
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    if asked.get("certify"):
        if lacking:
            raise UsageError(next(iter(lacking.values())))
        document = _certified(asked, given, progress)
    else:
        document = _aligned(asked, given, progress, notes, lacking)
    Path(asked["report"]).write_text(json.dumps(document, indent=1))
    return ExitCode.PASSED


def _of_case(asked: JsonObject, names: NameMap | None) -> dict[str, Any]:
    """Return the arguments of `tipchain.align` that a case has."""
    from tipchain.live.sources import feed_case, open_case

    case, only = (Path(asked["case"]), asked["mode"]), asked.get("only")
    data_path = Path(asked["data_path"]) if asked.get("data_path") else None
    chosen = {"reseed": asked.get("reseed", 0), "data_path": data_path}
    given = open_case(*case, **chosen, names=names)
    if only is not None and not UPDATES & set(only):
        # Nothing that failed updates parameters: training both models in float64 as well takes the most memory of all.
        given = {name: value for name, value in given.items() if name not in ("optimizers", "schedulers")}
    return given if asked.get("certify") else given | feed_case(*case, **chosen, only=only)


def _of_callables(asked: JsonObject, names: NameMap | None) -> dict[str, Any]:
    """Return the arguments of `tipchain.align` that are named one by one."""
    from tipchain.live.sources import feed_callables, open_callables, read_outputs

    given = open_callables(
        asked["reference"],
        asked["port"],
        Path(asked["inputs"]),
        asked,
        names=names,
        copy_weights=asked.get("copy_weights", True),
    )
    given |= feed_callables(asked)
    return given | {"outputs": read_outputs(asked["outputs"])} if asked.get("outputs") else given


def _certified(asked: JsonObject, given: dict[str, Any], progress: Progress) -> JsonObject:
    from tipchain.live.certify import certify

    pace = Pace(progress=progress)
    found = certify(
        given.pop("reference"),
        given.pop("port"),
        given.pop("inputs"),
        most=asked["certify"],
        tell=lambda number, of: pace.tell("planting faults", number - 1, of),
        **given,
    )
    return {**found.to_document(), "text": found.text, "exit_code": int(found.exit_code)}


def _aligned(
    asked: JsonObject, given: dict[str, Any], progress: Progress, notes: list[str], lacking: dict[str, str]
) -> JsonObject:
    """Return the report; stages whose data could not be made are errors."""
    from tipchain.live.align import align
    from tipchain.live.causes import place_pieces
    from tipchain.live.sources import builders_of

    report = align(given.pop("reference"), given.pop("port"), given.pop("inputs"), progress=progress, **given)
    report = replace(
        report,
        diagnoses=place_pieces(report.diagnoses, builders_of(asked)),
        command=command_line(asked),
        notes=notes,
        stages=report.stages | dict.fromkeys(lacking, Outcome.ERROR),
        reasons=report.reasons | lacking,
    )
    return {**json.loads(report.to_json()), "text": report.text, "exit_code": int(report.exit_code)}


@contextmanager
def _progress(told: int | None) -> Iterator[Progress]:
    """Yield what writes progress to the parent's standard error, or nowhere if it has none or wants none."""
    if told is None:
        yield Progress(quiet=True)
        return
    with os.fdopen(told, "w", closefd=False) as stream, Progress(stream) as progress:
        yield progress


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1], said=str))
