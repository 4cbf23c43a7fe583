"""The process that records one side, and the same as its parent sees it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from tipchain import __version__
from tipchain.core.blame import blame, users_fault
from tipchain.core.files import sha256_of
from tipchain.core.json_text import JsonObject, as_json, parse_as
from tipchain.core.machine import THREADS, end_with_parent, how_ended, paddle_kernels
from tipchain.errors import MissingFrameworkError, TipchainError, UsageError, WeightsError
from tipchain.frameworks import Framework, load_framework
from tipchain.modes import INFO, dump_name, parse_device, tensors_name
from tipchain.numbers.dumps import load_record, save_record
from tipchain.parity.case import Case, load_case
from tipchain.parity.inputs import Reading, imported_sources
from tipchain.parity.stages import Recording, record
from tipchain.parity.stages.bench import Bench
from tipchain.parity.stages.tensors import save_tensors

# The process that records one side: it imports one framework, once, and runs stages one after another.
#
# Started by ``tipchain.parity.align`` as ``python -m tipchain.parity.recorder JOB.json EVENTS``; events go as JSON lines to a file
# descriptor of their own, so that whatever user code prints cannot be taken for them.


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNeeds:
    """Files prepared for one stage on one side.

    Attributes:
        inputs: the dump of fake inputs; empty where the stage needs none.
        weights: weight file of this side, with its SHA-256; empty where the stage needs none.
        names: Paddle's name by torch's, as the conversion of the weights found them.
        digests: what the result depends on, by the names in a stage's ``uses``.
    """

    inputs: str = ""
    weights: str = ""
    weights_sha256: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingJob:
    """The job of one recorder.

    Attributes:
        reseed: what to add to the case's seeds.
        seeds: trainings from other seeds.
        folder: where dumps go.
        needs: what was prepared, by stage.
        noise: record with torch's gradients and losses how far rounding moves them.
        since: when the run began, seconds since the epoch, to tell of each stage what files it rests on; 0 for no.
    """

    side: str
    case: str
    reseed: int = 0
    stages: tuple[str, ...]
    device: str
    threads: int
    folder: str
    needs: Mapping[str, StageNeeds]
    train_data: str
    eval_data: str
    epochs: int
    seeds: int = 1
    commit: str
    noise: bool = True
    since: float = 0.0


def run_job(job: RecordingJob, emit: Callable[[JsonObject], None]) -> None:
    """Record the stages of a job, one after another; ``emit`` hears of each one."""
    known = {path for one in job.needs.values() for path in (one.inputs, one.weights, job.case)}
    case = load_case(job.case, job.reseed)
    reading = Reading(since=job.since, known=known, apart=[Path(job.folder)]) if job.since else None
    case = replace(case, train=replace(case.train, seeds=job.seeds))
    try:
        framework = load_framework(job.side)
        description = framework.configure(parse_device(job.device), case.seed, job.threads)
    except MissingFrameworkError as error:
        emit({"event": "missing", "message": str(error)})
        return
    benches: dict[str, Bench] = {}
    for stage in job.stages:
        emit({"event": "begin", "stage": stage})
        framework.seed(case.seed)  # whatever was recorded before, here or by another process
        ended = _record_stage(job, case, framework, benches, stage, description)
        marks = reading.marks() if reading and ended["ok"] else None
        emit({"event": "end", "stage": stage, **ended, "marks": marks})


def open_bench(job: RecordingJob, case: Case, framework: Framework, benches: dict[str, Bench], stage: str) -> Bench:
    """Return the stage's bench; stages that see the same case share one, and with it the model in eval mode."""
    needs, seen = job.needs[stage], case.for_stage(stage)
    if needs.names:
        seen = replace(seen, weights=replace(seen.weights, names=needs.names))
    bench = benches.get(seen.variant)
    if bench is None or (needs.inputs and not bench.inputs) or (needs.weights and bench.weights is None):
        inputs = load_record(Path(needs.inputs)).arrays if needs.inputs else {}
        bench = benches[seen.variant] = Bench(
            framework=framework,
            case=seen,
            weights=Path(needs.weights) if needs.weights else None,
            inputs={name: array for name, array in inputs.items() if not name.startswith("@")},
            other_inputs={name: array for name, array in inputs.items() if name.startswith("@")},
            train_data=Path(job.train_data),
            eval_data=Path(job.eval_data),
            epochs=job.epochs,
            folder=Path(job.folder),
            noise=job.noise,
        )
    return bench


def _record_stage(
    job: RecordingJob, case: Case, framework: Framework, benches: dict[str, Bench], stage: str, device: str
) -> Mapping[str, object]:
    """Record a stage; the one place where an exception of user code becomes a result."""
    try:
        if "weights" in INFO[stage].uses and job.needs[stage].weights_sha256:
            _check_weights(Path(job.needs[stage].weights), job.needs[stage].weights_sha256)
        bench = open_bench(job, case, framework, benches, stage)
        save_recording(job, bench, stage, record(stage, bench), device)
    except TipchainError as error:
        return {"ok": False, "message": str(error)}
    except BaseException as error:  # noqa: BLE001  (the case's own code may raise anything; Ctrl-C does not reach here)
        if isinstance(error, OSError) and users_fault(error) is None:  # a full disk
            return {"ok": False, "message": f"{stage}: {error}"}
        traceback.print_exc()
        return {"ok": False, "message": blame(error)}
    return {"ok": True}


@cache
def _check_weights(path: Path, expected: str) -> None:
    """Refuse a weight file that is not the one that was prepared (truncated, replaced)."""
    try:
        found = sha256_of(path)
    except OSError as error:
        raise WeightsError("cannot be read", file=path, found=error) from error
    if found != expected:
        raise WeightsError(
            "is damaged or was changed",
            file=path,
            found=f"{path.stat().st_size} bytes, sha256 {found[:12]}…",
            expected=f"sha256 {expected[:12]}…",
            hint="bash prepare.sh PARAMS MODE --force makes it anew",
        )


def save_recording(job: RecordingJob, bench: Bench, stage: str, recording: Recording, device: str) -> None:
    """Write the dump, its JSON and its safetensors file, each whole or not at all."""
    folder = Path(job.folder)
    meta = {
        "stage": stage,
        "case": job.case,
        "tipchain": __version__,
        "versions": {**bench.framework.versions(), "numpy": np.__version__, "python": sys.version.split()[0]},
        "device": device,
        "threads": job.threads,
        "tf32": False,
        "seed": bench.case.seed,
        "commit": job.commit,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "inputs": job.needs[stage].digests,
        "sources": imported_sources(bench.case.root),
        "details": recording.details,
    }
    sides = [(job.side, job.side, recording.arrays, recording.tensors)]
    if recording.reference is not None:
        sides.append(("torch", INFO[stage].reference, recording.reference, recording.reference_tensors))
    for name, side, arrays, tensors in sides:
        if tensors:
            save_tensors(folder / tensors_name(stage, name), tensors)
        save_record(folder / dump_name(stage, name), arrays, meta={"side": side, **meta})


def main(argv: list[str]) -> int:
    """Run the job in the file ``argv[0]``; events go to the file descriptor ``argv[1]``."""
    end_with_parent()
    job = parse_as(RecordingJob, json.loads(Path(argv[0]).read_text()))
    with os.fdopen(int(argv[1]), "w", buffering=1) as events:

        def emit(event: Mapping[str, object]) -> None:
            events.write(json.dumps(event) + "\n")

        try:
            run_job(job, emit)
        except TipchainError as error:
            emit({"event": "refused", "message": str(error)})
            return error.exit_code
    return 0


class RecordingSide:
    """One side: the process that records it, how each stage ended (None: well; else the message), and its sources.

    Args:
        job: what is recorded; no process starts where that is nothing.
        stages: the stages of the whole run.
        timeout_s: how long the side may take in all.

    Attributes:
        left: the stages that are not accounted for.
        current: the stage that the process is at, or "".
    """

    def __init__(self, job: RecordingJob, stages: Sequence[str], timeout_s: float | None) -> None:
        self.side, self.job = job.side, job
        self.ended: dict[str, str | None] = {stage: None for stage in stages if stage not in job.stages}
        self.marks: dict[str, Mapping[str, str] | None] = {}
        self.left = list(job.stages)
        self.current = ""
        self.deadline = time.monotonic() + timeout_s if timeout_s else None
        self.timeout_s = timeout_s
        self.log = Path(job.folder) / f"recorder_{job.side}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._partial = b""
        if not self.left:
            return
        spec = self.log.with_suffix(".json")
        spec.write_text(json.dumps(as_json(self.job)))
        files = {Path(needs.weights) for needs in job.needs.values() if needs.weights}
        large = any(path.is_file() and path.stat().st_size >= LARGE_WEIGHTS for path in files)
        reading, writing = os.pipe()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tipchain.parity.recorder", str(spec), str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                start_new_session=True,
                env={
                    **({"GLIBC_TUNABLES": LARGE_BLOCKS} if large else {}),
                    **model_environment(),
                    **dict.fromkeys(THREADS, str(job.threads)),  # equal on both sides, and TF32 off
                    "NVIDIA_TF32_OVERRIDE": "0",
                    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                    "PYTHONUNBUFFERED": "1",
                },
            )
        os.close(writing)
        self.events = os.fdopen(reading, "rb")

    def read(self) -> None:
        """Take in the events of the process; at the end of them, account for all its stages."""
        chunk = self.events.read1()
        if not chunk:
            assert self.process is not None
            what = f"the {self.side} process {how_ended(self.process.wait())}"
            for stage in self.left:
                during = "" if self.current in ("", stage) else f" during {self.current}"
                self.ended[stage] = f"{what}{during}; log: {self.log}"
            self.left.clear()
            self.stop()
            return
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for event in map(json.loads, lines):
            match event["event"]:
                case "missing" | "refused" as reason:
                    raise (MissingFrameworkError if reason == "missing" else UsageError)(event["message"])
                case "begin":
                    self.current = event["stage"]
                case "end":
                    self.left.remove(event["stage"])
                    self.ended[event["stage"]] = None if event["ok"] else event["message"]
                    self.marks[event["stage"]] = event.get("marks")

    def again(self, job: RecordingJob, timeout_s: float | None) -> RecordingSide:
        """Return the side with the stages of another job recorded once more."""
        self.stop()
        other = RecordingSide(job, (), timeout_s)
        other.ended = {stage: told for stage, told in self.ended.items() if stage not in job.stages}
        other.marks = self.marks
        return other

    def stop(self) -> None:
        """End the process and all it started; one that has done its work may end by itself."""
        if self.process is None:
            return
        process, self.process = self.process, None
        if not self.left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5.0)
        self.left.clear()
        if process.poll() is None:
            for sign, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, sign)
                    process.wait(timeout=patience)
                    break
        self.events.close()
        for path in Path(self.job.folder).glob(f".*_{self.side}.safetensors"):  # what a process that was ended was at
            path.unlink(missing_ok=True)


LARGE_WEIGHTS = 2**26
"""Bytes of a weight file from which memory is taken in large pages, where the kernel gives them to who asks.

AlexNet's alignment (233 MiB) spends 14 in place of 22 seconds in the system and is done in nine tenths of the time; with MobileNetV3 (10 MiB) nothing is
gained.

Source: https://sourceware.org/glibc/manual/2.36/html_node/Memory-Allocation-Tunables.html
"""


LARGE_BLOCKS = "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=0"
"""Large pages, and no store of small blocks.

An aligned block, which is what frameworks take, leaves some bytes beside it. While those wait in that store, the block does not join them
when it is freed, and another of its size does not fit where it was: torch's recorder of AlexNet grows by a gradient, 288 MiB.
"""


def model_environment() -> dict[str, str]:
    """Return the environment of a process that runs a case's models: the processor's kernels, memory kept for reuse.

    glibc by default gives every large array back to the system, which then clears its pages anew for the next one:
    half of all system time with AlexNet.
    """
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
    return {**kept, **paddle_kernels(), **os.environ}


def listen(sides: Sequence[RecordingSide]) -> None:
    """Wait until some process tells something or a deadline passes."""
    with selectors.DefaultSelector() as selector:
        for side in sides:
            if side.process is not None and side.left:
                selector.register(side.events, selectors.EVENT_READ, side)
        for key, _ in selector.select(timeout=0.5):
            key.data.read()
    for side in sides:
        if side.left and side.deadline is not None and time.monotonic() > side.deadline:
            for stage in side.left:
                side.ended[stage] = f"the {side.side} process took longer than {side.timeout_s:g} s and was ended"
            side.stop()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
