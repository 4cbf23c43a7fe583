"""The process that records one side, and the same as its parent sees it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import termios
import time
import traceback
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from tipchain import __version__
from tipchain.core.blame import blame, users_fault
from tipchain.core.files import sha256_of
from tipchain.core.json_text import JsonObject, as_json, parse_as
from tipchain.core.machine import end_with_parent, has_threads, how_ended, paddle_kernels
from tipchain.errors import MissingFrameworkError, RecordError, TipchainError, UsageError, WeightsError
from tipchain.framework_types import Array
from tipchain.frameworks import Framework, load_framework
from tipchain.modes import INFO, dump_name, parse_device, tensors_name
from tipchain.numbers.dumps import load_record, save_record
from tipchain.parity.case import Case, load_case
from tipchain.parity.envelope import ENVELOPES
from tipchain.parity.inputs import Reading, imported_sources
from tipchain.parity.settings import DOUBLE
from tipchain.parity.stages import Recording, record
from tipchain.parity.stages.bench import Bench
from tipchain.parity.stages.tensors import TensorFile, TensorWriter, save_tensors

if TYPE_CHECKING:
    from tipchain.frameworks.torch_ import TorchFloat64


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
            recording = record(stage, replace(bench, case=case, _kept={}))
        runs.append({**recording.arrays, **recording.tensors})
    framework.shift = None
    floats = {name: array for name, array in runs[0].items() if array.dtype.kind == "f"}
    short = [name for name, array in floats.items() if array.dtype.itemsize < 8]
    if short:
        raise UsageError(
            f"no float64: {', '.join(short[:3])} came out as {floats[short[0]].dtype}, "
            "for the case's own code asks for that precision"
        )
    noise = {
        f"{NOISE}{name}": np.array(max(_moved(one[name], array) for one in runs[1:])) for name, array in floats.items()
    }
    return Recording(arrays=runs[0], tensors=noise)


def _moved(shifted: Array, array: Array) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.max(np.abs(np.subtract(shifted, array)), initial=0.0))


# The process that records one side: it imports one framework, once, and runs stages one after another.
#
# Started by ``tipchain.parity.align`` as ``python -m tipchain.parity.recorder FRAMEWORK JOB.json EVENTS ORDERS``; events go
# as JSON lines to a file descriptor of their own, so that whatever user code prints cannot be taken for them. Orders
# come as lines from another; where no more can come, the process ends. Two more are those of a copy, which there is if it
# gets an order. The framework, if one is named, is imported at once; the job need not be there before the first order.


NOISE_ORDER = " noise"
"""What the order for how far rounding moves a stage's gradients ends with."""


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
        noise: record with torch's gradients how far rounding moves them; otherwise only where that is asked for.
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
    noise: bool = True
    since: float = 0.0


def run_job(job: RecordingJob, orders: Iterable[str], emit: Callable[[JsonObject], None]) -> None:
    """Record what is ordered, one after another; ``emit`` hears of each one.

    An order is a stage of ``job``; with `NOISE_ORDER` behind it, it is what ``job.noise`` left out of a stage that is recorded.
    """
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
    for order in orders:
        stage = order.removesuffix(NOISE_ORDER)
        emit({"event": "begin", "stage": stage})
        framework.seed(case.seed)  # whatever was recorded before, here or by another process
        ended = _record_stage(job, case, framework, benches, order, description)
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
            noise=job.noise and not job.truth,
        )
    return bench


def _record_stage(
    job: RecordingJob, case: Case, framework: Framework, benches: dict[str, Bench], order: str, device: str
) -> Mapping[str, object]:
    """Record what is ordered; the one place where what user code raises becomes a result."""
    start = time.perf_counter()
    stage = order.removesuffix(NOISE_ORDER)
    try:
        if "weights" in INFO[stage].uses:
            _check_weights(job.needs[stage])
        bench = _bench(job, case, framework, benches, stage)
        if order != stage:
            _add_noise(job, bench, stage)
        else:
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


def _add_noise(job: RecordingJob, bench: Bench, stage: str) -> None:
    """Add to a stage's recorded gradients how far rounding moves them."""
    from tipchain.parity.stages.backward import record_noise

    dump, path = (Path(job.folder) / name(stage, job.side) for name in (dump_name, tensors_name))
    meta = load_record(dump).meta
    with TensorFile(path) as recorded:
        noise = record_noise(bench, recorded)
        sources = imported_sources(bench.case.root)
        here = {"inputs": job.needs[stage].digests, "versions": bench.framework.versions(), "sources": sources}
        for fact, now in here.items():
            then = meta.get(fact)
            if not isinstance(then, Mapping) or any(then.get(one, now[one]) != now[one] for one in now):
                raise RecordError(f"is of other {fact}", file=dump)
        save_tensors(path, {**recorded, **noise})


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
    if isinstance(recording.tensors, TensorWriter):
        recording.tensors.finish()
    elif recording.tensors:
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


def main(argv: list[str]) -> int:
    """Import the framework ``argv[0]`` and run the job in ``argv[1]``; events go to the file descriptor ``argv[2]``, orders come from ``argv[3]``; two more are a copy's."""
    end_with_parent()
    ahead, spec, *numbers = argv
    pipes = [(int(events), int(orders)) for events, orders in zip(numbers[::2], numbers[1::2], strict=True)]
    if ahead:
        with suppress(MissingFrameworkError):  # which is told in a moment
            load_framework(ahead)
    own = _become_two(argv[:2], pipes) if len(pipes) > 1 and _is_ordered(pipes[1][1]) else pipes[0]
    if not _is_ordered(own[1]):  # the run is over before there was anything to record
        return 0
    job = parse_as(RecordingJob, json.loads(Path(spec).read_text()))
    with os.fdopen(own[0], "w", buffering=1) as events, os.fdopen(own[1]) as orders:

        def emit(event: Mapping[str, object]) -> None:
            events.write(json.dumps(event) + "\n")

        try:
            run_job(job, (line.rstrip() for line in orders), emit)
        except TipchainError as error:
            emit({"event": "refused", "message": str(error)})
            return error.exit_code
    return 0


def _is_ordered(orders: int) -> bool:
    """Wait until there are orders or will be none, and tell whether there are."""
    select.select([orders], [], [])
    return bool(array("i", fcntl.ioctl(orders, termios.FIONREAD, bytes(4)))[0])


def _become_two(given: Sequence[str], pipes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Go on as two copies, with the framework imported once, and return the pipes of each; this process tells how they ended."""
    parent, running = os.getpid(), {}
    for own in pipes:
        child = os.fork()
        if not child:
            end_with_parent(parent)
            if has_threads():  # such a one cannot be doubled
                words = [sys.executable, "-m", "tipchain.parity.recorder", *given, *map(str, own)]
                os.execv(sys.executable, words)  # noqa: S606
            for end in {end for pipe in pipes for end in pipe} - {*own}:
                os.close(end)
            return own
        running[child] = own[0]
    while running:
        child, status = os.wait()
        with suppress(BrokenPipeError), os.fdopen(running.pop(child), "w") as events:
            events.write(json.dumps({"event": "exit", "code": os.waitstatus_to_exitcode(status)}) + "\n")
    os._exit(0)


# A recording process as its parent sees it: start, events, deadline, end.


class RecordingSide:
    """One side: the processes that record it, how each stage ended (None: well; else the message), and what it rests on.

    The processes take one stage after another of those that are left.

    Args:
        job: what is recorded; no process starts where that is nothing.
        stages: the stages of the whole run.
        timeout_s: how long the side may take in all.
        waits: whether the processes wait for `order` when nothing is left.
        early: a process that was started before the job was known.

    Attributes:
        unmet: why what was ordered besides could not be recorded, or "".
    """

    def __init__(
        self,
        job: RecordingJob,
        stages: Sequence[str],
        timeout_s: float | None,
        *,
        waits: bool = False,
        early: EarlyStart | None = None,
    ) -> None:
        self.side, self.job, self.waits = job.side, job, waits
        self.ended: dict[str, str | None] = {stage: None for stage in stages if stage not in job.stages}
        self.marks: dict[str, Mapping[str, str] | None] = {}
        self.unmet = ""
        self.left = list(job.stages)
        self.deadline = time.monotonic() + timeout_s if timeout_s else None
        self.timeout_s = timeout_s
        self.log = Path(job.folder) / f"recorder_{job.side}.log"
        self.processes: list[RecordingProcess] = []
        self._copy: RecordingProcess | None = None
        if self.left:
            self._start(early)

    def _start(self, early: EarlyStart | None = None) -> None:
        """Start a process beside those that record, or take the early one; it imports its framework while it has no order."""
        spec = self.log.with_suffix(".json")
        if not self.processes:  # others may be reading it
            spec.write_text(json.dumps(as_json(self.job)))
        fits = early is not None and early.large == has_large_weights(self.job)
        process, self._copy = early.pair if early and fits else RecordingProcess.start(self.job, spec, self.log)
        self.processes.append(process)

    def begin(self, second: str = "") -> None:
        """Let the process that was started record what is left; a copy of it begins with ``second`` and goes on from the end."""
        if self._copy is None:
            return
        process, copy, self._copy = self.processes[-1], self._copy, None
        if second in self.left and len(self.left) > 1:
            self.left.sort(key=lambda one: one == second)
            copy.from_end = True
            self.processes.append(copy)
            self._feed(copy)
        else:
            copy.discard()
        self._feed(process)

    def start(self) -> None:
        """Start a process that records what is left, beside those that do."""
        self._start()
        self.begin()

    @property
    def needs_help(self) -> bool:
        """Whether one process has stages left after it has recorded for as long as it took to start."""
        return bool(self.left) and len(self.processes) == 1 and self.processes[0].is_worth_another()

    def order(self, stage: str, what: str) -> None:
        """Have something recorded that belongs to a stage, which has not ended until that is."""
        del self.ended[stage]
        self.left.append(stage + what)
        if not self.processes:
            self.start()
            return
        idle = next((process for process in self.processes if not process.order), None)
        if idle is not None:  # else one that is busy takes it next
            self._feed(idle)

    def release(self) -> None:
        """Let processes end that wait for orders: none will come."""
        self.waits = False
        for process in self.processes:
            if not process.order:
                self._feed(process)

    def _feed(self, process: RecordingProcess) -> None:
        process.order, process.stage = self.left.pop(-1 if process.from_end else 0) if self.left else "", ""
        if process.order or not self.waits:
            process.tell(process.order)

    def read(self, process: RecordingProcess) -> None:
        """Take in the events of a process; at the end of them, account for what it was to record."""
        events = process.read()
        for event in events or ():
            match event["event"]:
                case "missing" | "refused" as reason if self.job.stages:
                    raise (MissingFrameworkError if reason == "missing" else UsageError)(event["message"])
                case "missing" | "refused":
                    self.unmet = event["message"]
                case "ready":
                    process.ready = time.monotonic()
                case "exit":
                    process.code = event["code"]
                case "begin":
                    process.stage = event["stage"]
                case "end":
                    self._end(process.order, None if event["ok"] else event["message"])
                    known, new = self.marks.get(event["stage"], {}), event.get("marks")
                    self.marks[event["stage"]] = {**known, **new} if known is not None and new else None
                    self._feed(process)
        if events is None:
            self._close(process)

    def _end(self, order: str, message: str | None) -> None:
        """Account for what was to be recorded; a stage has ended even if what was ordered besides could not be."""
        stage = order.removesuffix(NOISE_ORDER)
        self.ended[stage] = message if stage == order else None
        if stage != order and message:
            self.unmet = self.unmet or message

    def _close(self, process: RecordingProcess) -> None:
        """Give what a process was to record, and what nobody is left to record, the reason why it is not."""
        code = process.process.wait() if process.code is None else process.code
        what = f"the {self.side} process {how_ended(code)}"
        self.processes.remove(process)
        if any(one.process is process.process for one in self.processes):
            process.discard()
        else:
            process.stop(patience=0.0)
        lost = [process.order, *(() if self.processes else self.left)]
        for order in filter(None, lost):
            during = "" if process.stage in ("", order.removesuffix(NOISE_ORDER)) else f" during {process.stage}"
            self._end(order, f"{what}{during}; log: {self.log}")
        if not self.processes:
            self.left.clear()

    def expire(self) -> None:
        """End the processes if the side's time is over."""
        if self.deadline is None or time.monotonic() <= self.deadline or self.finished:
            return
        for order in (*self.left, *(process.order for process in self.processes)):
            if order:
                self._end(order, f"the {self.side} process took longer than {self.timeout_s:g} s and was ended")
        self.stop()

    def stop(self) -> None:
        """End the processes and all they started; if all have done their work, they may end by themselves."""
        self.left.clear()
        if self._copy is not None:
            self._copy.discard()
        patience = 0.0 if any(process.order for process in self.processes) else 5.0
        for process in self.processes:
            process.tell("")
        for process in self.processes:
            process.stop(patience)
        self.processes.clear()
        for path in Path(self.job.folder).glob(f".*_{self.side}.safetensors"):  # what a process that was ended was at
            path.unlink(missing_ok=True)

    @property
    def current(self) -> str:
        """The first stage that a process is at, or ""."""
        return next((process.stage for process in self.processes if process.stage), "")

    @property
    def finished(self) -> bool:
        """Whether every stage is accounted for."""
        return not self.left and not any(process.order for process in self.processes)


class RecordingProcess:
    """A recording process as its parent sees it: start, orders, events, end.

    Attributes:
        process: what was started; two may be copies of it.
        code: the exit code of a copy that has ended.
        order: what it is to record, or "".
        stage: the stage that it is at, or "".
        ready: when it had started; 0 until then.
        from_end: whether it takes the last of the stages that are left.
    """

    def __init__(self, process: subprocess.Popen[bytes], events: int, orders: int) -> None:
        self.process, self.code, self._orders = process, cast("int | None", None), orders
        self.order, self.stage, self.from_end = "", "", False
        self.began, self.ready = time.monotonic(), 0.0
        self.events = os.fdopen(events, "rb")
        self._partial = b""

    @classmethod
    def start(cls, job: RecordingJob, spec: Path, log: Path) -> tuple[RecordingProcess, RecordingProcess]:
        """Start a process; it becomes two if the second of those returned is given an order, and waits until that is or is discarded."""
        (reading, writing), (orders, ordering) = os.pipe(), os.pipe()
        (reading_copy, writing_copy), (orders_copy, ordering_copy) = os.pipe(), os.pipe()
        theirs = writing, orders, writing_copy, orders_copy
        ahead = "" if job.since or job.truth else job.side  # all that is opened since then is listened for
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tipchain.parity.recorder", ahead, str(spec), *map(str, theirs)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=theirs,
                start_new_session=True,
                env=_environment(job),
            )
        for end in theirs:
            os.close(end)
        return cls(process, reading, ordering), cls(process, reading_copy, ordering_copy)

    def discard(self) -> None:
        """Say that no order will come, and hear nothing any more."""
        self.tell("")
        self.events.close()

    def is_worth_another(self) -> bool:
        """Tell whether it has recorded for as long as it took to start, which is what another would take."""
        return 0 < self.ready - self.began <= time.monotonic() - self.ready

    def tell(self, order: str) -> None:
        """Hand on an order; an empty one says that none will come."""
        if order:
            with suppress(BrokenPipeError):  # one that has died tells so by the end of its events
                os.write(self._orders, f"{order}\n".encode())
        elif self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    def read(self) -> list[JsonObject] | None:
        """Return the events that have come; None at the end of them."""
        chunk = self.events.read1()
        if not chunk:
            return None
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def stop(self, patience: float) -> None:
        """End the process and all it started, after ``patience`` seconds in which it may end by itself."""
        self.tell("")
        if patience:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=patience)
        if self.process.poll() is None:
            for sign, given in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
                try:
                    os.killpg(self.process.pid, sign)
                    self.process.wait(timeout=given)
                    break
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        self.events.close()


class EarlyStart:
    """A process of a side that is started while its job is prepared, to have imported its framework by then.

    Args:
        job: what is known of the job, with a weight file of an earlier run.
    """

    def __init__(self, job: RecordingJob) -> None:
        log = Path(job.folder) / f"recorder_{job.side}.log"
        self.large = has_large_weights(job)
        self.pair = RecordingProcess.start(job, log.with_suffix(".json"), log)

    def stop(self) -> None:
        """End the process, unless it has ended."""
        for one in self.pair:
            one.discard()
        self.pair[0].process.kill()  # it has done nothing but import
        self.pair[0].process.wait()


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


def has_large_weights(job: RecordingJob) -> bool:
    """Return whether a weight file of the job has `LARGE_WEIGHTS` or more."""
    files = {Path(one.weights) for one in job.needs.values() if one.weights}
    return any(path.is_file() and path.stat().st_size >= LARGE_WEIGHTS for path in files)


def model_environment() -> dict[str, str]:
    """Return the environment of a process that runs a case's models: the processor's kernels, memory kept for reuse.

    glibc by default gives every large array back to the system, which then clears its pages anew for the next one:
    half of all system time with AlexNet.
    """
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
    return {**kept, **paddle_kernels(), **os.environ}


def _environment(job: RecordingJob) -> dict[str, str]:
    """Return the recorder's environment: equal threads on both sides, TF32 off, large pages for a large model."""
    threads = str(job.threads)
    return {
        **({"GLIBC_TUNABLES": LARGE_BLOCKS} if has_large_weights(job) else {}),
        **model_environment(),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONUNBUFFERED": "1",
    }


def listen(sides: Sequence[RecordingSide]) -> None:
    """Wait until some process tells something or a deadline passes."""
    with selectors.DefaultSelector() as selector:
        for side in sides:
            for process in side.processes:
                if process.order:
                    selector.register(process.events, selectors.EVENT_READ, (side, process))
        for key, _ in selector.select(timeout=0.5):
            side, process = key.data
            side.read(process)
    for side in sides:
        side.expire()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
