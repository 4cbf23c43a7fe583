"""Live models in their own process: as its parent sees it, and its work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipchain.core.blame import UsersError
from tipchain.core.guard import guarded
from tipchain.core.json_text import JsonObject
from tipchain.core.language import say
from tipchain.core.machine import end_with_parent, how_ended, paddle_kernels
from tipchain.core.progress import Progress, interrupted
from tipchain.errors import ExitCode, Outcome, UsageError
from tipchain.modes import INFO, STAGES

if TYPE_CHECKING:
    from tipchain.weights.given_names import NameMap

PATIENCE_S = 30.0
"""How long a process that was interrupted may take to end: it finishes the comparison that it is in."""
PATIENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""How threads of the process wait for work: both frameworks have threads of their own, and those that spin take the others' time."""
LAST = 12
"""Lines of the process's output that a message about its end shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """How the process ended.

    Attributes:
        text: the report as it is printed, or why there is none.
        exit_code: of the command.
        document: the report's JSON; None without one.
    """

    text: str
    exit_code: int
    document: JsonObject | None


def launch(request: Mapping[str, object], *, timeout_s: float | None = None, quiet: bool = False) -> Launched:
    """Align as ``request`` says (see `tipchain.live.worker`) in an own process; see `Worker.align`."""
    with start_worker(ahead=False, quiet=quiet) as worker:
        return worker.align(request, timeout_s=timeout_s)


@contextmanager
def start_worker(*, ahead: bool, quiet: bool = False) -> Iterator[Worker]:
    """Start a process for live models, and end it with the block.

    Args:
        ahead: import the frameworks before there is a request.
        quiet: do not say how far it is.
    """
    with tempfile.TemporaryDirectory(prefix="tipchain-align-") as folder, ExitStack() as stack:
        # Another file of this process's standard error, for the other to write how far it is. Its own standard error, which is
        # number 2 there too, is kept apart for what a message about its end shows.
        progress: int | None = None
        with suppress(OSError, ValueError, AttributeError):
            progress = None if quiet else stack.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "w")).fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "tipchain.live.worker", *(["--ahead"] if ahead else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=() if progress is None else (progress,),
            env={**PATIENT, **paddle_kernels(), **os.environ},
        )
        try:
            with process:
                try:
                    yield Worker(process=process, folder=Path(folder), progress=progress)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        except BrokenPipeError:  # of the request that a process which has died did not read
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process for live models, as its parent sees it.

    Attributes:
        process: the process.
        folder: where request and report are exchanged.
        progress: the file descriptor to which it writes how far it is; None for nowhere.
    """

    process: subprocess.Popen[str]
    folder: Path
    progress: int | None

    def align(self, request: Mapping[str, object], *, timeout_s: float | None = None) -> Launched:
        """Align as ``request`` says; a worker takes one request.

        A process that crashes, or does not end in time, is an error of the check (exit code 1), with the signal's name.
        When the user interrupts, it begins nothing new and tells what it knows (exit code 130).

        Raises:
            KeyboardInterrupt: the user interrupted before anything was known, or twice; or the process takes too long to end.
            UsageError: the process refused the request: wrong arguments, a case that cannot be read.
            UsersError: the user's own code raised while the models or what goes with them was built.
        """
        asked, report = self.folder / "request.json", self.folder / "report.json"
        given = {**request, "report": str(report), "progress": self.progress, "began": time.monotonic()}
        asked.write_text(json.dumps(given))
        interrupted = False
        try:
            output, _ = self.process.communicate(f"{asked}\n", timeout=timeout_s)
        except KeyboardInterrupt:
            interrupted = True
            print(say("interrupted: the result so far follows; Ctrl-C again ends at once"), file=sys.stderr)
            os.kill(self.process.pid, signal.SIGINT)
            try:
                output, _ = self.process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise KeyboardInterrupt from None
        except subprocess.TimeoutExpired:
            text = f"ERROR: not finished after {timeout_s:g} s"
            return Launched(text=text, exit_code=ExitCode.FAILED, document=None)
        if report.is_file() and self.process.returncode == 0:
            document = json.loads(report.read_bytes())
            text, code = document["text"], document["exit_code"]
            if interrupted:
                text, code = f"interrupted; what was known by then:\n{text}", ExitCode.INTERRUPTED
            return Launched(text=text, exit_code=code, document=document)
        if interrupted:
            raise KeyboardInterrupt
        return _ended(self.process.returncode, output)


def _ended(code: int, output: str) -> Launched:
    lines = output.strip().splitlines()
    said = "\n".join(line for line in lines if not line.startswith("W"))
    _, marked, message = f"\n{said}".rpartition("\nerror: ")
    if code == ExitCode.USAGE:
        raise UsageError(message)
    if code == ExitCode.FAILED and marked:
        raise UsersError(message)
    shown = "\n".join(f"  | {line}" for line in lines[-LAST:])
    text = f"ERROR: the process that ran the models {how_ended(code)}\n{shown}".rstrip()
    return Launched(text=text, exit_code=ExitCode.FAILED, document=None)


# The process in which live models run: it may crash without taking the command with it.


def main(*options: str) -> int:
    """Answer the JSON request named on standard input, and write its report.

    The file holds ``case``, ``mode``, ``reseed`` and ``data_path``, or ``reference``, ``port``, ``inputs``, ``loss``,
    ``optimizers``, ``schedulers``, ``clip``, ``outputs``, ``step``, ``data``, ``samples``, ``metrics`` and ``predict``; ``only``, the stages of a case that are
    run, ``uses``, what these depend on, ``stages``, those of `tipchain.align` that are compared, and ``accepts``, those in which the user accepts differences; ``names``, a YAML file of names; ``copy_weights``, whether a fresh port is given the reference's weights;
    ``options`` for `tipchain.align`; ``command``, what runs it again; ``began``, the monotonic clock's seconds from which its ``within`` counts; ``certify``,
    the number of faults to plant, for `certify` instead; and ``report``, a JSON file, which has the text that is printed too.
    """
    end_with_parent()
    if options:
        _import_frameworks()
    request = sys.stdin.readline().strip()
    if not request:  # what was started ahead is not needed
        return ExitCode.PASSED
    asked = json.loads(Path(request).read_bytes())
    told = asked["progress"]
    with (
        nullcontext() if told is None else os.fdopen(told, "w", closefd=False) as stream,
        Progress(stream, quiet=told is None) as progress,
    ):
        return _work(asked, progress)


def _work(asked: JsonObject, progress: Progress) -> int:
    progress.stage("importing torch and Paddle")
    from tipchain.live.sources import open_callables
    from tipchain.weights.given_names import read_names

    _import_frameworks()
    progress.stage("building the models")
    names = read_names(Path(asked["names"])) if asked.get("names") else None
    if asked.get("case"):
        given = _of_case(asked, names)
    else:
        models, inputs = (asked["reference"], asked["port"]), Path(asked["inputs"])
        given = open_callables(*models, inputs, asked, names=names, copy_weights=asked.get("copy_weights", True))
    notes, lacking, unfit = given.pop("notes", []), given.pop("lacking", {}), given.pop("unfit", False)
    given.update(asked.get("options", {}))
    if "within" in given:  # counted from the command's start: importing and building take seconds of it
        given["within"] = max(given["within"] - (time.monotonic() - asked["began"]), sys.float_info.min)
    # From here on something is known that is worth telling when the user interrupts.
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    if asked.get("certify"):
        if lacking:
            raise UsageError(next(iter(lacking.values())))
        from tipchain.live.certify import certify

        models = given.pop("reference"), given.pop("port")
        made = certify(*models, given.pop("inputs"), most=asked["certify"], progress=progress, **given)
        document: JsonObject = {**made.to_document(), "text": made.text, "exit_code": int(made.exit_code)}
    else:
        document = {**_aligned(asked, given, progress, notes, lacking), "unfit": unfit}
    Path(asked["report"]).write_text(json.dumps(document, indent=1))
    return ExitCode.PASSED


def _import_frameworks() -> None:
    from tipchain.frameworks.paddle_ import PaddleFramework
    from tipchain.frameworks.torch_ import Dynamo, TorchFramework
    from tipchain.live import align, sources  # noqa: F401

    Dynamo(TorchFramework().torch).install()  # torch must be imported before paddle
    PaddleFramework()


def _of_case(asked: JsonObject, names: NameMap | None) -> dict[str, Any]:
    from tipchain.live.sources import feed_case, open_case

    case, stages = (Path(asked["case"]), asked["mode"]), asked.get("stages")
    data_path = Path(asked["data_path"]) if asked.get("data_path") else None
    chosen = {"reseed": asked.get("reseed", 0), "data_path": data_path}
    weights = stages is None or "weights" in asked["uses"]
    trained = stages is None or bool({"backward", "train"} & {*stages})
    given = open_case(*case, **chosen, names=names, weights=weights, trained=trained)
    if stages is not None:
        given["stages"] = stages
    if not any("optimizer" in INFO[stage].builders for stage in asked.get("only", STAGES)):
        given = {name: value for name, value in given.items() if name not in ("optimizers", "schedulers")}
    return given if asked.get("certify") else given | feed_case(*case, **chosen, only=stages)


def _aligned(
    asked: JsonObject, given: dict[str, Any], progress: Progress, notes: list[str], lacking: dict[str, str]
) -> JsonObject:
    """Return the report; stages whose data could not be made are errors."""
    from tipchain.live.align import align
    from tipchain.live.construction import put_right
    from tipchain.live.places import place_pieces
    from tipchain.live.sources import builders_of

    reference, port, inputs = (given.pop(name) for name in ("reference", "port", "inputs"))
    report = align(reference, port, inputs, progress=progress, **given)
    rest: JsonObject = {}
    with put_right(report, asked.get("accepts", ()), reference, port) as settled:
        if settled:
            given = {name: one for name, one in given.items() if name not in ("data", "samples")}
            other = align(reference, port, inputs, progress=progress, **given)
            rest = {"rest": {"document": json.loads(other.to_json()), "settled": settled}}
    causes = place_pieces(report.diagnoses, builders_of(Path(asked["case"])) if asked.get("case") else {})
    stages, reasons = report.stages | dict.fromkeys(lacking, Outcome.ERROR), report.reasons | lacking
    report = replace(report, diagnoses=causes, stages=stages, reasons=reasons, command=asked["command"], notes=notes)
    return {**json.loads(report.to_json()), **rest, "text": report.text, "exit_code": int(report.exit_code)}


if __name__ == "__main__":
    sys.exit(guarded(main, *sys.argv[1:], said=str))
