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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tipchain import __version__
from tipchain.blame import blame, users_fault
from tipchain.devices import parse_device
from tipchain.errors import MissingFrameworkError, TipchainError, UsageError, WeightsError
from tipchain.frameworks import load_framework
from tipchain.frameworks.base import Array, Framework
from tipchain.numbers.dumps import load_record, save_record
from tipchain.parity.case import Case, load_case
from tipchain.parity.digests import Reading, imported_sources
from tipchain.parity.envelope import ENVELOPES
from tipchain.parity.publish import dump_name, tensors_name
from tipchain.parity.settings import DOUBLE
from tipchain.parity.stages import Recording, record
from tipchain.parity.stages.bench import Bench
from tipchain.runs import replacing_path, sha256_of
from tipchain.stage_table import INFO

if TYPE_CHECKING:
    from tipchain.frameworks.torch_float64 import TorchFloat64


# Stages of the reference in float64: what they would give without rounding, and how sure that is.


TRUTH_STAGES = ("forward", "loss", "backward", "train")
"""Stages whose float32 numbers are those of a network, so that only float64 can tell what they should be."""
NOISE = "noise/"
"""What the names of tensors begin with that say how much rounding moves others in float64."""
RUNS = 2
"""Runs from shifted weights: a perturbation and its mirror image."""


def record_truth(stage: str, bench: Bench) -> Recording:
    """Record a stage in float64, arrays and tensors under their usual names.

    ``noise/<name>``, float64 ``[]``, is by how much at most an array moves where the weights start some of float64's
    units in the last place apart: two correct runs in float64 may differ by some times that.

    Raises:
        UsageError: a result is not in float64, for the case's own code asks for another precision.
    """
    framework = cast("TorchFloat64", bench.framework)
    case = replace(bench.case, backward=replace(bench.case.backward, dtype=DOUBLE))
    runs: list[dict[str, Array]] = []
    for shift in (None, *range(RUNS)):
        framework.shift = shift
        framework.seed(case.seed)
        with framework.double_precision():
            recording = record(stage, replace(bench, case=case, _built=[]))
        runs.append({**recording.arrays, **recording.tensors})
    framework.shift = None
    _check_precision(runs[0])
    noise = {
        f"{NOISE}{name}": np.array(max(_moved(one[name], array) for one in runs[1:]))
        for name, array in runs[0].items()
        if array.dtype.kind == "f"
    }
    return Recording(arrays=runs[0], tensors=noise)


def _check_precision(arrays: Mapping[str, Array]) -> None:
    short = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.dtype.itemsize < 8]
    if short:
        raise UsageError(
            f"no float64: {', '.join(short[:3])} came out as {arrays[short[0]].dtype}, "
            "for the case's own code asks for that precision"
        )


def _moved(shifted: Array, array: Array) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.max(np.abs(np.subtract(shifted, array)), initial=0.0))


# The process that records one side: it imports one framework, once, and runs stages one after another.
#
# Started by ``tipchain.parity.align`` as ``python -m tipchain.parity.recorder JOB.json FD``; events go
# as JSON lines to the file descriptor FD, so that whatever user code prints cannot be taken for them.


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNeeds:
    """What was prepared for one stage on one side.

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
    """What one recorder does.

    Attributes:
        reseed: what to add to the case's seeds.
        seeds: trainings from other seeds.
        folder: where dumps go.
        needs: what was prepared, by stage.
        truth: record torch in float64.
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
    truth: bool = False
    since: float = 0.0

    def to_json(self) -> str:
        """Return the job as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> RecordingJob:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        needs = {stage: StageNeeds(**one) for stage, one in data["needs"].items()}
        return cls(**{**data, "stages": tuple(data["stages"]), "needs": needs})


Emit = Callable[[Mapping[str, Any]], None]


def run_job(job: RecordingJob, emit: Emit) -> None:
    """Record every stage of ``job``; ``emit`` hears of each one."""
    known = {path for one in job.needs.values() for path in (one.inputs, one.weights, job.case)}
    case = load_case(job.case, job.reseed)
    apart = Path(job.folder), case.root / ENVELOPES
    reading = Reading(since=job.since, known=known, apart=apart) if job.since else None
    case = replace(case, train=replace(case.train, seeds=job.seeds))
    try:
        framework = load_framework(job.side, wide=job.truth)
        description = framework.configure(parse_device(job.device), case.seed, job.threads)
    except MissingFrameworkError as error:
        emit({"event": "missing", "message": str(error)})
        return
    emit({"event": "ready", "device": description, "versions": framework.versions()})
    benches: dict[str, Bench] = {}
    for stage in job.stages:
        emit({"event": "begin", "stage": stage})
        ended = _record_stage(job, case, framework, benches, stage, description)
        marks = reading.marks() if reading and ended["ok"] else None
        emit({"event": "end", "stage": stage, **ended, "marks": marks})


def _bench(job: RecordingJob, case: Case, framework: Framework, benches: dict[str, Bench], stage: str) -> Bench:
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
            truth=job.truth,
        )
    return bench


def _record_stage(
    job: RecordingJob, case: Case, framework: Framework, benches: dict[str, Bench], stage: str, device: str
) -> Mapping[str, Any]:
    """Record one stage; the one place where what user code raises becomes a result."""
    start = time.perf_counter()
    try:
        if "weights" in INFO[stage].uses:
            _check_weights(job.needs[stage])
        bench = _bench(job, case, framework, benches, stage)
        recording = record_truth(stage, bench) if job.truth else record(stage, bench)
        save_recording(job, bench, stage, recording, device)
    except TipchainError as error:
        return {"ok": False, "message": str(error)}
    except BaseException as error:  # noqa: BLE001  (the case's own code may raise anything; Ctrl-C does not reach here)
        if isinstance(error, OSError) and users_fault(error) is None:  # a full disk
            return {"ok": False, "message": f"{stage}: {error}"}
        traceback.print_exc()
        return {"ok": False, "message": blame(error)}
    return {"ok": True, "seconds": time.perf_counter() - start}


_checked: set[str] = set()


def _check_weights(needs: StageNeeds) -> None:
    """Refuse a weight file that is not the one that was prepared (truncated, replaced)."""
    if not needs.weights_sha256 or needs.weights in _checked:
        return
    path = Path(needs.weights)
    try:
        found = sha256_of(path)
    except OSError as error:
        raise WeightsError("cannot be read", file=path, found=error) from error
    if found != needs.weights_sha256:
        raise WeightsError(
            "is damaged or was changed",
            file=path,
            found=f"{path.stat().st_size} bytes, sha256 {found[:12]}…",
            expected=f"sha256 {needs.weights_sha256[:12]}…",
            hint="bash prepare.sh PARAMS MODE --force makes it anew",
        )
    _checked.add(needs.weights)


def save_recording(job: RecordingJob, bench: Bench, stage: str, recording: Recording, device: str) -> None:
    """Write the dump, its JSON and its safetensors file, each whole or not at all."""
    folder = Path(job.folder)
    if recording.tensors:
        save_tensors(folder / tensors_name(stage, job.side), recording.tensors)
    meta = {
        "side": job.side,
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
    save_record(folder / dump_name(stage, job.side), recording.arrays, meta=meta)
    if recording.reference is not None:
        if recording.reference_tensors:
            save_tensors(folder / tensors_name(stage, "torch"), recording.reference_tensors)
        meta = {**meta, "side": INFO[stage].reference}
        save_record(folder / dump_name(stage, "torch"), recording.reference, meta=meta)


def save_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write a safetensors file beside ``path`` and rename it."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with replacing_path(path) as beside:
        try:
            save_file(dict(tensors), beside)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from error


def main(argv: list[str]) -> int:
    """Run the job in ``argv[0]``; events go to the file descriptor ``argv[1]``."""
    job = RecordingJob.from_json(Path(argv[0]).read_text())
    with os.fdopen(int(argv[1]), "w", buffering=1) as events:

        def emit(event: Mapping[str, Any]) -> None:
            events.write(json.dumps(event) + "\n")

        try:
            run_job(job, emit)
        except TipchainError as error:
            emit({"event": "refused", "message": str(error)})
            return error.exit_code
    return 0


# A recording process as its parent sees it: start, events, deadline, end.


class RecordingProcess:
    """A recording process: its events, how each stage ended (None: well; else the message), and what it rests on."""

    def __init__(self, job: RecordingJob, stages: Sequence[str], timeout_s: float | None) -> None:
        self.side, self.job = job.side, job
        self.ended: dict[str, str | None] = {stage: None for stage in stages if stage not in job.stages}
        self.marks: dict[str, Mapping[str, str] | None] = {}
        self.current = ""
        self.deadline = time.monotonic() + timeout_s if timeout_s else None
        self.timeout_s = timeout_s
        folder = Path(job.folder)
        spec = folder / f"recorder_{job.side}.json"
        spec.write_text(job.to_json())
        self.log = folder / f"recorder_{job.side}.log"
        reading, writing = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tipchain.parity.recorder", str(spec), str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                start_new_session=True,
                env=_environment(job),
            )
        os.close(writing)
        self.events = os.fdopen(reading, "rb")
        self._partial = b""

    def read(self) -> None:
        """Take in the events that have come; at the end of them, account for every stage."""
        chunk = self.events.read1()
        if not chunk:
            self._close()
            return
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "missing":
                raise MissingFrameworkError(event["message"])
            case "refused":
                raise UsageError(event["message"])
            case "begin":
                self.current = event["stage"]
            case "end":
                self.ended[event["stage"]] = None if event["ok"] else event["message"]
                self.marks[event["stage"]] = event.get("marks")
                self.current = ""

    def _close(self) -> None:
        """Give every stage that did not end the reason why."""
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            what = f"the {self.side} process was killed by {name}"
        else:
            what = f"the {self.side} process ended with exit code {code}"
        for stage in self.job.stages:
            if stage not in self.ended:
                during = "" if stage == self.current or not self.current else f" during {self.current}"
                self.ended[stage] = f"{what}{during}; log: {self.log}"

    def expire(self) -> None:
        """End the process if its time is over."""
        if self.deadline is not None and time.monotonic() > self.deadline and self.process.poll() is None:
            self.stop()
            for stage in self.job.stages:
                self.ended.setdefault(
                    stage, f"the {self.side} process took longer than {self.timeout_s:g} s and was ended"
                )

    def stop(self) -> None:
        """End the process and all it started; one that has done its work may end by itself."""
        if self.finished:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=5.0)
        if self.process.poll() is None:
            for sign, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
                try:
                    os.killpg(self.process.pid, sign)
                    self.process.wait(timeout=patience)
                    break
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        self.events.close()

    @property
    def finished(self) -> bool:
        """Whether every stage is accounted for."""
        return all(stage in self.ended for stage in self.job.stages)


def _environment(job: RecordingJob) -> dict[str, str]:
    """Return the recorder's environment: equal threads on both sides, TF32 off, memory kept for reuse.

    glibc by default gives every large array back to the system, which then clears its pages anew for the next one:
    half of all system time with AlexNet.
    """
    threads = str(job.threads)
    return {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONUNBUFFERED": "1",
    }


def listen(recorders: Sequence[RecordingProcess]) -> None:
    """Wait until some recorder tells something or a deadline passes."""
    with selectors.DefaultSelector() as selector:
        for recorder in recorders:
            if not recorder.finished:
                selector.register(recorder.events, selectors.EVENT_READ, recorder)
        for key, _ in selector.select(timeout=0.5):
            key.data.read()
    for recorder in recorders:
        recorder.expire()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
