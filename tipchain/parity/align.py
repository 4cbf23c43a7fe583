"""Run the stages of a case: record both sides in processes of their own, then compare and judge.

Recording and judging meet as files: a side may come from another machine, and a finished run can be
judged again (`judge_folder`).
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import DataError, MissingFrameworkError, UsageError
from tipchain.modes import Mode
from tipchain.outcome import Outcome
from tipchain.parity.case import SIDES, Case
from tipchain.parity.judge import Verdict
from tipchain.parity.names import dump_name
from tipchain.parity.publish import adopt_dumps
from tipchain.parity.record import save_record
from tipchain.parity.recorder import USES, Job
from tipchain.parity.stage_judge import Rules, StageJudgement, judge_stage
from tipchain.parity.weights import WeightFiles, data_digest, data_roots, prepare_weights
from tipchain.runs import commit

INPUTS_NAME = "fake_inputs.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One alignment run.

    Attributes:
        folder: where this run's dumps and logs go.
        dumps: dumps made elsewhere, by side: a folder or one file; that side is not run.
        sides: the sides to record; with one side only nothing is compared.
        data_path: a data folder of the user's instead of the mode's.
        timeout_s: how long a side may take in all; None for no limit.
        threads: threads of each recording process.
    """

    case: Case
    mode: Mode
    stages: tuple[str, ...]
    folder: Path
    device: str = "cpu"
    dumps: Mapping[str, Path] = field(default_factory=dict)
    sides: tuple[str, ...] = SIDES
    data_path: Path | None = None
    timeout_s: float | None = None
    threads: int = 0
    rules: Rules | None = None


Listener = Callable[[StageJudgement], None]


def align(request: Request, listener: Listener = lambda _: None) -> list[StageJudgement]:
    """Record, compare and judge; ``listener`` hears of each stage as soon as it is judged.

    Raises:
        MissingFrameworkError: a framework is absent or lacks the device.
        CaseError, WeightsError, DataError: what the stages need cannot be had.
    """
    request.folder.mkdir(parents=True, exist_ok=True)
    adopt_dumps(request.dumps, request.stages, request.folder)
    recorders = _start(request)
    rules = request.rules or Rules.of(request.case)
    judged: list[StageJudgement] = []
    pending = list(request.stages)
    try:
        while pending:
            ready = [stage for stage in pending if all(stage in one.ended for one in recorders)]
            for stage in ready:
                pending.remove(stage)
                judgement = _judge(request, stage, recorders, rules)
                judged.append(judgement)
                listener(judgement)
            if pending and not ready:
                _listen(recorders)
    finally:
        for recorder in recorders:
            recorder.stop()
    return judged


def _judge(request: Request, stage: str, recorders: Sequence[_Recorder], rules: Rules) -> StageJudgement:
    """Judge one stage that both sides have ended."""
    failures = [
        Verdict(outcome=Outcome.ERROR, subject=f"{stage}/{one.side}", reason=message)
        for one in recorders
        if (message := one.ended[stage]) is not None
    ]
    if failures:
        return StageJudgement(stage=stage, verdicts=tuple(failures))
    recorded = [one.side for one in recorders]
    if len(recorded) + len(request.dumps) < len(SIDES):
        reason = f"only {recorded[0]} was recorded; nothing was compared"
        return StageJudgement(
            stage=stage,
            verdicts=(Verdict(outcome=Outcome.SKIP, subject=f"{stage}/{recorded[0]}", reason=reason),),
        )
    return judge_stage(stage, request.folder, rules)


def judge_folder(folder: Path, stages: Sequence[str], rules: Rules) -> list[StageJudgement]:
    """Judge the dumps in ``folder`` again, without running anything."""
    return [judge_stage(stage, folder, rules) for stage in stages]


def present_stages(folder: Path, stages: Sequence[str]) -> tuple[str, ...]:
    """Return those of ``stages`` of which ``folder`` has at least one dump."""
    return tuple(
        stage for stage in stages if any((folder / dump_name(stage, side)).is_file() for side in SIDES)
    )


def check_dumps(dumps: Mapping[str, Path], stages: Sequence[str]) -> None:
    """Refuse dumps that cannot serve: a missing path, or one file for several stages.

    Raises:
        UsageError: the message names the path and what was expected.
    """
    for side, path in dumps.items():
        if not path.exists():
            raise UsageError(f"--{side}-dump: no such file or folder: {path}")
        if path.is_file() and len(stages) > 1:
            names = ", ".join(dump_name(stage, side) for stage in stages)
            raise UsageError(
                f"--{side}-dump: {path} is one file for {len(stages)} stages\n  expected: a folder with {names}"
            )


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the case's fake inputs: standard normal floats, uniform integers, from NumPy's seeded generator."""
    arrays: dict[str, Any] = {}
    for name, spec in case.inputs.items():
        generator = np.random.default_rng(spec.seed)
        if np.dtype(spec.dtype).kind == "f":
            arrays[name] = generator.standard_normal(spec.shape).astype(spec.dtype)
        else:
            arrays[name] = generator.integers(spec.low, spec.high, spec.shape).astype(spec.dtype)
    return arrays


def _start(request: Request) -> list[_Recorder]:
    """Prepare what the stages need and start a recorder for each side that has no dump."""
    case = request.case
    sides = tuple(side for side in request.sides if side not in request.dumps)
    if case.train.benchmark is not None and "train" in request.stages and "torch" not in request.dumps:
        _save_benchmark(request.folder, case.train.benchmark)
    if not sides:
        return []
    uses = {name for stage in request.stages for name in USES[stage]}
    digests: dict[str, str] = {"settings": _settings_digest(case, request)}
    inputs = request.folder / INPUTS_NAME
    if "fake" in uses:
        arrays = make_inputs(case)
        save_record(inputs, arrays)
        digests["fake"] = _arrays_digest(arrays)
    train_data, eval_data = data_roots(case, request.mode, request.data_path)
    if uses & {"train_data", "eval_data"}:
        digests |= {
            "train_data": _folder_digest(train_data, request),
            "eval_data": _folder_digest(eval_data, request),
        }
    weights: WeightFiles | None = None
    if "weights" in uses:
        weights = prepare_weights(case, request.mode, data_path=request.data_path, sides=sides)
        digests["weights"] = weights.digest
    present = commit(case.root)
    return [
        _Recorder(
            Job(
                side=side,
                case=str(case.path.resolve()),
                stages=_recorded_stages(request, side),
                device=request.device,
                threads=request.threads or default_threads(len(sides)),
                folder=str(request.folder.resolve()),
                inputs=str(inputs.resolve()) if "fake" in uses else "",
                weights=str(weights.paths[side].resolve()) if weights else "",
                weights_sha256=weights.sha256.get(side, "") if weights else "",
                train_data=str(train_data),
                eval_data=str(eval_data),
                epochs=case.epochs(request.mode),
                digests=digests,
                commit=present,
            ),
            request.stages,
            request.timeout_s,
        )
        for side in sides
    ]


def default_threads(sides: int) -> int:
    """Return threads for each of ``sides`` recorders that run side by side."""
    cores = len(os.sched_getaffinity(0))
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else max(1, cores // max(1, sides))


def _recorded_stages(request: Request, side: str) -> tuple[str, ...]:
    """Leave out torch's training where a published number is the benchmark."""
    published = request.case.train.benchmark is not None and side == "torch"
    return tuple(stage for stage in request.stages if not (published and stage == "train"))


def _save_benchmark(folder: Path, benchmark: Mapping[str, float]) -> None:
    arrays = {key: np.array([value], dtype=np.float32) for key, value in benchmark.items()}
    meta = {"side": "benchmark", "stage": "train", "details": {"source": "published, from the case"}}
    save_record(folder / dump_name("train", "torch"), arrays, meta=meta)


def _folder_digest(folder: Path, request: Request) -> str:
    try:
        return data_digest(folder)
    except DataError as error:
        if not folder.exists():
            raise DataError(
                "no such data folder", file=folder, expected=f"the data of {request.mode.value}",
                hint=f"bash prepare.sh PARAMS {request.mode.value}, or --data-path with a folder of your own",
            ) from error  # fmt: skip
        raise


def _arrays_digest(arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _settings_digest(case: Case, request: Request) -> str:
    settings = (
        case.backward,
        case.train,
        dict(case.optimizer_args),
        dict(case.scheduler_args),
        case.epochs(request.mode),
    )
    return hashlib.sha256(repr(settings).encode()).hexdigest()


class _Recorder:
    """A recording process: its events, and how each stage ended (None: well; else the message)."""

    def __init__(self, job: Job, stages: Sequence[str], timeout_s: float | None) -> None:
        self.side, self.job = job.side, job
        self.ended: dict[str, str | None] = {stage: None for stage in stages if stage not in job.stages}
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
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=(writing,),
                start_new_session=True, env=_environment(job),
            )  # fmt: skip
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
        """End the process and all it started."""
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


def _environment(job: Job) -> dict[str, str]:
    """Return the recorder's environment: equal threads on both sides, TF32 off, no idle spinning."""
    threads = str(job.threads)
    return {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONUNBUFFERED": "1",
    }


def _listen(recorders: Sequence[_Recorder]) -> None:
    """Wait until some recorder tells something or a deadline passes."""
    with selectors.DefaultSelector() as selector:
        for recorder in recorders:
            if not recorder.finished:
                selector.register(recorder.events, selectors.EVENT_READ, recorder)
        for key, _ in selector.select(timeout=0.5):
            key.data.read()
    for recorder in recorders:
        recorder.expire()
