"""The port's training on several processes, held against one process."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite, nan
from pathlib import Path
from statistics import median
from typing import NoReturn

import numpy as np

from tipchain.core.blame import blame
from tipchain.core.files import atomic_write
from tipchain.core.json_text import JsonObject, as_json, parse_as
from tipchain.core.machine import THREADS, core_count, end_with_parent, how_ended, leave_group
from tipchain.errors import Outcome, RecordError, TipchainError, UsageError
from tipchain.framework_types import Array, Loss, Model, Tensor
from tipchain.frameworks import load_framework
from tipchain.frameworks.base import scalar
from tipchain.modes import parse_device
from tipchain.numbers.dumps import save_record
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.case import LABEL, load_case
from tipchain.parity.recorder import RecordingJob, StageNeeds, open_bench
from tipchain.parity.stages import judging
from tipchain.parity.stages.backward import BLUNT, NOISE_FACTOR, compare_tensors, excused
from tipchain.parity.stages.bench import Bench, Recording, fake_batch
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details, root_mean_square
from tipchain.parity.stages.tensors import TensorFile, save_tensors
from tipchain.weights.files import view_of

# Some training steps on one batch: the same code for one process and for each of several.


def train(bench: Bench, model: Model, network: Model, batch: Mapping[str, Array]) -> tuple[list[float], list[float]]:
    """Train on ``batch`` for as many steps as the case's ``distributed`` says; the schedule moves on with each.

    Return by step the losses before the update, and the rates of the updates.

    Args:
        bench: the case's Paddle side.
        model: whose parameters are updated.
        network: what is called: ``model``, or ``paddle.DataParallel`` around it.
        batch: inputs and label by name, this process's share.
    """
    settings, framework = bench.case.distributed, bench.framework
    inputs, label, criterion = _open(bench, model, batch)
    trainer = bench.trainer(model, settings.learning_rate)
    losses, rates = [], []
    for _ in range(settings.iterations):
        rates.append(trainer.learning_rate())
        loss = criterion(network(*inputs), label)
        loss.backward()
        trainer.step()
        trainer.step_schedule()
        losses.append(float(scalar(framework.array(loss))[0]))
    return losses, rates


def _open(bench: Bench, model: Model, batch: Mapping[str, Array]) -> tuple[list[Tensor], Tensor, Loss]:
    bench.framework.let_backward(model)
    tensors = {name: bench.framework.tensor(array) for name, array in batch.items()}
    return [one for name, one in tensors.items() if name != LABEL], tensors[LABEL], bench.builder("loss")()


def state(bench: Bench, model: object) -> dict[str, Array]:
    """Return the model's tensors in torch's names and layout, as ``parameter/NAME`` and ``buffer/NAME``."""
    framework, names = bench.framework, bench.case.weights.names
    parameters = {f"parameter/{name}": array for name, array in framework.parameters(model, names)}
    return parameters | {f"buffer/{name}": array for name, array in framework.buffers(model, names)}


def update_rms(before: Mapping[str, Array], after: Mapping[str, Array]) -> dict[str, Array]:
    """Return the root mean square of every parameter's update, as ``update_rms/NAME``."""
    names = [name.partition("/")[2] for name in after if name.startswith("parameter/")]
    changes = {name: np.subtract(after[f"parameter/{name}"], before[f"parameter/{name}"]) for name in names}
    return {f"update_rms/{name}": np.array(root_mean_square(change)) for name, change in changes.items()}


def rounding(
    bench: Bench, batch: Mapping[str, Array], losses: Iterable[float], after: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the distance of one process from its own results, where its weights start a little apart.

    They are ``noise/loss_i`` and ``noise/NAME`` of each tensor, and of the first gradients ``gradient/NAME`` and
    ``gradient_noise/NAME``: where a gradient is rounding alone, Adam takes whole steps all the same, in each process its own.

    Args:
        bench: the case's Paddle side.
        batch: the global batch.
        losses: what one process gave on it.
        after: the tensors at its end, as ``parameter/NAME`` and ``buffer/NAME``.
    """
    framework, names = bench.framework, bench.case.weights.names
    model = bench.model(training=bench.case.distributed.training)
    inputs, label, criterion = _open(bench, model, batch)

    def gradients() -> dict[str, Array]:
        criterion(model(*inputs), label).backward()
        found = {f"gradient/{name}": array.copy() for name, array in framework.gradients(model, names)}
        model.clear_gradients()
        return found

    def run() -> dict[str, Array]:
        first = gradients()
        return first | _arrays(*train(bench, model, model, batch)) | state(bench, model)

    first = gradients()
    if any(not np.array_equal(array, first[name]) for name, array in gradients().items()):
        return {}  # random layers: what moves it is not rounding
    moved = bench.moved(model, run, first | _arrays(losses, ()) | dict(after))
    of = {name: f"gradient_noise/{name.partition('/')[2]}" for name in first}
    return first | {of.get(name, f"noise/{name}"): far for name, far in moved.items()}


def digests(model: Model) -> dict[str, str]:
    """Return a checksum of the bytes of every parameter and persistent buffer, by Paddle's name."""
    return {
        name: f"{zlib.crc32(np.ascontiguousarray(view_of(tensor)).data):08x}"
        for name, tensor in model.state_dict().items()
    }


# One of several processes that train together: ``python -m tipchain.parity.stages.distributed JOB.json``, in the environment that
# ``paddle.distributed.launch`` gives. Every process leaves ``rank_<n>.json`` beside the job: its losses and rates, and digests of
# all tensors before the first and after the last step. Rank 0 alone loads the case's weights, so that the others have them
# from `paddle.DataParallel` or not at all, and saves the last tensors.
#
# Source: https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/DataParallel_en.html


STATE = "state.safetensors"
STAGE = "distributed"
POLL_S = 0.02
"""Seconds between two looks at another process."""
PATIENCE_S = 5.0
"""Seconds that a process may take to listen."""


def run(job: RecordingJob, rank: int, processes: int) -> JsonObject:
    """Do this process's share of the work, and return its report."""
    import psutil

    framework, case = load_framework("paddle"), load_case(job.case, job.reseed)
    # Seeds differ, so that what DataParallel does not broadcast from rank 0 differs too.
    selected = os.environ.get("FLAGS_selected_gpus", "0").split(",")[0]  # noqa: SIM112  (the launcher's name)
    framework.configure(
        parse_device(f"gpu:{selected}" if job.device.startswith("gpu") else job.device), case.seed + rank, job.threads
    )
    paddle = framework.paddle  # type: ignore[union-attr]
    if rank:  # rank 0 listens first: Paddle tries a refused connection again only after three seconds
        port, deadline = int(os.environ["PADDLE_MASTER"].rpartition(":")[2]), time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not any(
            one.status == psutil.CONN_LISTEN and one.laddr[1:] == (port,) for one in psutil.net_connections("tcp")
        ):
            time.sleep(POLL_S)
    paddle.distributed.init_parallel_env()
    bench = open_bench(job, case, framework, {}, STAGE)
    settings = case.distributed
    if rank:  # initial values of its own
        model = framework.build(bench.builder("model"), bench.case.model_args)
        framework.set_training(model, settings.training)
    else:
        model = bench.model(training=settings.training)
    network = paddle.DataParallel(model, find_unused_parameters=settings.find_unused_parameters)
    start = digests(model)
    batch = {  # equal shares of the global one, in order
        name: array[rank * len(array) // processes : (rank + 1) * len(array) // processes]
        for name, array in bench.inputs.items()
    }
    losses, rates = train(bench, model, network, batch)
    if rank == 0:
        save_tensors(Path(job.folder) / STATE, state(bench, model))
    return {"losses": losses, "rates": rates, "start": start, "end": digests(model)}


def main(argv: Sequence[str]) -> NoReturn:
    """Do the job in ``argv[0]`` and end the process; faults stand in this process's report."""
    end_with_parent()
    job = parse_as(RecordingJob, json.loads(Path(argv[0]).read_text()))
    rank, processes = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
    try:
        report = run(job, rank, processes)
    except TipchainError as error:
        report = {"error": str(error)}
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the case's own code may raise anything)
        traceback.print_exc()
        report = {"error": blame(error)}
    atomic_write(Path(job.folder) / f"rank_{rank}.json", json.dumps(report))
    leave_group(1 if "error" in report else 0)


# The processes that train together, as their parent sees them: start, deadline, end, reports.


LOOPBACK = "127.0.0.1"
COMPLAINTS = ("Exception", "Error:", "error:")
PORTS = (20000, 30000)
"""Ports that are tried: below those that systems hand out by themselves."""


class GroupError(TipchainError):
    """Processes that should train together could not: one raised, died, or they took too long."""

    exit_code = 1


class WorkerGroup:
    """Processes on this machine that train together; they work while others do.

    Args:
        job: what they do.
        processes: how many.
        timeout_s: after how long they are ended.
        logs: folder that gets what they print, as ``distributed_rank<n>.log``.
    """

    def __init__(self, job: RecordingJob, *, processes: int, timeout_s: float, logs: Path) -> None:
        self.folder, self.timeout_s, self.logs = Path(job.folder), timeout_s, logs
        spec = self.folder / "job.json"
        spec.write_text(json.dumps(as_json(job)))
        port, self.ranks = free_port(), list[subprocess.Popen[bytes]]()
        for rank in range(processes):
            with self._log(rank).open("wb") as log:
                words = [sys.executable, "-m", "tipchain.parity.stages.distributed", str(spec)]
                environment = _environment(job, rank, processes, port)
                self.ranks.append(subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT))

    def __enter__(self) -> WorkerGroup:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.ranks:
            process.kill()
            process.wait()

    def reports(self) -> list[JsonObject]:
        """Wait for the processes, and return the report of each, by rank.

        Raises:
            GroupError: a process raised or died, or they took longer than their time.
        """
        deadline, count = time.monotonic() + self.timeout_s, len(self.ranks)
        # Where one has failed, the others would wait for it.
        while not any(codes := [one.poll() for one in self.ranks]) and None in codes:
            if time.monotonic() > deadline:
                unfinished = ", ".join(str(rank) for rank, code in enumerate(codes) if code is None)
                raise GroupError(
                    f"the {count} processes took longer than {self.timeout_s:g} s and were ended; "
                    f"unfinished: rank {unfinished}\n  log: {self._log(0)}"
                )
            time.sleep(POLL_S)
        paths = [self.folder / f"rank_{rank}.json" for rank in range(count)]
        found: list[JsonObject | None] = [json.loads(one.read_text()) if one.is_file() else None for one in paths]
        for rank, report in enumerate(found):
            if report is not None and "error" in report:
                raise GroupError(f"rank {rank} of {count}: {report['error']}")
        for rank, code in enumerate(codes):
            if found[rank] is None and code is not None:
                # The log's first line that speaks of an error, such as gloo's after 30 s of waiting.
                lines = map(str.strip, self._log(rank).read_text(errors="replace").splitlines())
                said = next((line for line in lines if any(word in line for word in COMPLAINTS)), "")
                raise GroupError(
                    f"rank {rank} of {count} {how_ended(code)}, without a report"
                    + (f": {said}" if said else "")
                    + f"\n  log: {self._log(rank)}"
                )
        return [report for report in found if report is not None]

    def _log(self, rank: int) -> Path:
        return self.logs / f"distributed_rank{rank}.log"


def free_port() -> int:
    """Return a port of the loopback that nobody listens on.

    Raises:
        GroupError: none was found.
    """
    for _ in range(100):
        port = PORTS[0] + secrets.randbelow(PORTS[1] - PORTS[0])  # the seeded generators are alike in every run
        with suppress(OSError), socket.socket() as one:
            one.bind((LOOPBACK, port))
            return port
    raise GroupError(f"no free port between {PORTS[0]} and {PORTS[1]}")


def _environment(job: RecordingJob, rank: int, processes: int, port: int) -> dict[str, str]:
    """Return a process's environment: nothing of another launch, the threads shared, gloo on the loopback of a CPU."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PADDLE_", "MASTER_"))}
    endpoints = [f"{LOOPBACK}:{port + number}" for number in range(processes)]
    return {
        **kept,
        **({"FLAGS_selected_gpus": str(rank)} if job.device.startswith("gpu") else {"PADDLE_DISTRI_BACKEND": "gloo"}),
        "PADDLE_MASTER": endpoints[0],
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(processes),
        "GLOO_SOCKET_IFNAME": "lo",
        **dict.fromkeys(THREADS, str(job.threads)),
    }


def record(bench: Bench) -> Recording:
    """Losses, rates, parameters and buffers of n steps; the port's from several processes, the reference's from one."""
    settings, place = bench.case.distributed, getattr(bench.framework, "place", "cpu")
    processes = settings.processes
    count = bench.framework.paddle.device.cuda.device_count() if place.startswith("gpu") else processes  # type: ignore[union-attr]
    if count < processes:
        reason = (
            f"{processes} processes need {processes} GPUs, one each; visible: {count} (--device cpu runs them there)"
        )
        return Recording(arrays={}, reference={}, details={"skipped": reason})
    bench.forget()
    given = next(one.shape[0] for name, one in bench.case.inputs.items() if name != LABEL)
    batch = fake_batch(bench.case, settings.batch_size or -(-given // processes) * processes)
    with tempfile.TemporaryDirectory(prefix="distributed.", dir=bench.folder) as name:
        folder = Path(name)
        save_record(folder / "batch.npy", batch)
        job = RecordingJob(
            side="paddle",
            case=str(bench.case.path.resolve()),
            reseed=bench.case.reseed,
            stages=(STAGE,),
            device=place.partition(":")[0],
            threads=max(1, core_count() // processes),
            folder=name,
            needs={
                STAGE: StageNeeds(
                    inputs=str(folder / "batch.npy"),
                    weights=str(bench.weights),
                    names=dict(bench.case.weights.names),
                    digests={},
                )
            },
            train_data=str(bench.train_data),
            eval_data=str(bench.eval_data),
            epochs=1,
            commit="",
        )
        with WorkerGroup(job, processes=processes, timeout_s=settings.timeout_s, logs=bench.folder) as group:
            model = bench.model(training=settings.training)
            local = [
                name
                for name, layer in model.named_sublayers(include_self=True)
                if "BatchNorm" in type(layer).__name__ and "Sync" not in type(layer).__name__
            ]
            if settings.training and local:
                raise UsageError(
                    f"distributed.training: {', '.join(local[:5])} would take the statistics of each process's own share, "
                    "never those of the global batch\n"
                    "  expected: `training: false`, or `paddle.nn.SyncBatchNorm` in place of BatchNorm"
                )
            before = state(bench, model)
            losses, rates = train(bench, model, model, batch)
            after = state(bench, model)
            reports = group.reports()
        from safetensors.numpy import load_file

        port = load_file(folder / STATE)
    reference = after | update_rms(before, after)
    rules = Rules.of(bench.case)
    judged = _judge_tensors(reference, port, rules, processes)
    mean_losses = np.mean([report["losses"] for report in reports], axis=0)
    expected, actual = _arrays(losses, rates), _arrays(mean_losses, reports[0]["rates"])
    compared = compare(expected, actual, rules.for_arrays(STAGE, expected))
    if any(verdict.outcome is Outcome.FAIL for verdict in (*judged.verdicts, *compared)):
        reference |= rounding(bench, batch, losses, after)
    return Recording(
        arrays=actual,
        reference=expected,
        tensors=port | update_rms(before, port),
        reference_tensors=reference,
        details={
            "processes": processes,
            "steps": settings.iterations,
            "batch_size": len(next(iter(batch.values()))),
            "tensors": len(reports[0]["end"]),
            "diverged": {when: diverged([report[when] for report in reports]) for when in ("start", "end")},
        },
    )


def _arrays(losses: Iterable[float], rates: Iterable[float]) -> dict[str, Array]:
    arrays = {f"loss_{number}": np.array([loss]) for number, loss in enumerate(losses)}
    return arrays | {f"lr_{number}": np.array([rate]) for number, rate in enumerate(rates)}


def diverged(digests: Sequence[Mapping[str, str]]) -> dict[str, list[int]]:
    """Return the tensors that are not the same on all processes, with the ranks that differ from rank 0."""
    first, others = digests[0], list(enumerate(digests))[1:]
    names = dict.fromkeys(name for one in digests for name in one)
    found = {name: [rank for rank, one in others if one.get(name) != first.get(name)] for name in names}
    return {name: ranks for name, ranks in found.items() if ranks}


# Judge training on several processes: losses and rates, parameters and buffers, and whether the processes agree.


CLOSE = 0.1
"""How near a ratio must be to the number of processes, or to one over it, to be taken for that."""
Tensors = Mapping[str, Tensor]


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare several processes with one; a part that could not be run is a SKIP with the reason."""
    facts = details(dumps.port)
    if facts.get("skipped"):
        return Judged(verdicts=[Verdict(Outcome.SKIP, "processes", facts["skipped"])])
    processes = int(facts.get("processes") or 0)
    judged = judging.judge_arrays(dumps, rules)
    verdicts = list(judged.verdicts)
    for number, verdict in enumerate(verdicts):
        if verdict.outcome is Outcome.FAIL and verdict.diff is not None:
            actual, expected = (record.arrays[verdict.subject] for record in (dumps.port, dumps.reference))
            known = expected.size and actual.size and expected.flat[0]
            ratio = float(actual.flat[0]) / float(expected.flat[0]) if known else nan
            what = "learning rate" if verdict.subject.startswith("lr_") else "loss"
            verdicts[number] = replace(verdict, reason=verdict.reason + _hint(ratio, processes, what))
    try:
        with TensorFile(dumps.tensors[0]) as left, TensorFile(dumps.tensors[1]) as right:
            tensors = _judge_tensors(left, right, rules, processes)
            # Losses pass that are no further apart than one process from itself.
            for number, verdict in enumerate(verdicts):
                noise = float(left.get(f"noise/{verdict.subject}", 0.0))
                if verdict.outcome is not Outcome.FAIL or verdict.diff is None or not noise:
                    continue
                most, size = verdict.diff.max_abs, verdict.diff.expected_max_abs
                if isfinite(most) and most <= NOISE_FACTOR * noise:
                    reason = (
                        f"max {most:.3g}; one process's own moves by {noise:.3g} where its weights start a little apart"
                    )
                    verdicts[number] = excused(verdict, reason, told=NOISE_FACTOR * noise <= BLUNT * size)
    except RecordError as error:
        tensors = Judged(verdicts=[Verdict(Outcome.ERROR, "tensors", str(error))])
    return replace(judged, verdicts=verdicts) + tensors + Judged(verdicts=[_judge_ranks(facts)])


def _judge_ranks(facts: Mapping[str, object]) -> Verdict:
    """Judge whether all processes held the same tensors, bit by bit, before the first and after the last step."""
    parted, outcome = facts.get("diverged"), Outcome.FAIL
    if not isinstance(parted, Mapping):
        outcome, reason = Outcome.ERROR, "the processes' digests are not in the dump"
    elif not facts.get("tensors"):
        outcome, reason = Outcome.ERROR, "nothing was compared: no tensors"
    elif parted.get("start"):
        reason = (
            f"before the first step {_named(parted['start'])}: they do not come from rank 0 "
            "(paddle.DataParallel leaves out a parameter with no_sync)"
        )
    elif parted.get("end"):
        reason = (
            f"after {facts.get('steps')} steps {_named(parted['end'])}: each process updates them with gradients or "
            "a rate of its own"
        )
    else:
        outcome = Outcome.PASS
        reason = (
            f"{facts['tensors']} tensors equal on {facts.get('processes')} processes, before the first step and "
            "after the last"
        )
    return Verdict(outcome, "ranks", reason)


def _named(tensors: Mapping[str, list[int]]) -> str:
    shown = [f"{name} (rank {', '.join(map(str, ranks))})" for name, ranks in list(tensors.items())[:5]]
    more = f" and {len(tensors) - 5} more" if len(tensors) > 5 else ""
    return f"{len(tensors)} tensors differ from rank 0's: {', '.join(shown)}{more}"


def _hint(ratio: float, processes: int, what: str) -> str:
    """Explain that something is as many times as large as there are processes, or as many times smaller."""
    if processes < 2:
        return ""
    if abs(ratio * processes - 1) < CLOSE:
        reason = {
            "loss": "it is a sum over the batch, so that each process has a part of it; take the mean",
            "update": "DataParallel averages the processes' gradients, and a loss that sums over the batch then gives "
            "a part of them; take the mean",
        }.get(what, "")
        return f"; 1/{processes} of one process's{': ' if reason else ''}{reason}"
    if abs(ratio / processes - 1) < CLOSE:
        reason = {
            "loss": "something multiplies it by the number of processes",
            "update": "gradients are summed in place of averaged, or the loss or the rate is multiplied by the number "
            "of processes",
            "learning rate": "something scales it by the number of processes; both runs have the same global batch",
        }[what]
        return f"; {processes} times one process's: {reason}"
    return ""


def _judge_tensors(left: Tensors, right: Tensors, rules: Rules, processes: int) -> Judged:
    judged = compare_tensors(left, right, rules, STAGE, ("parameter", "buffer"))
    # How many times as large as the reference's a port's update is, for the parameter in the middle.
    updates = {name: float(left[name]) for name in left if name.startswith("update_rms/")}
    ratios = [float(right[name]) / rms for name, rms in updates.items() if name in right and rms > 0]
    hint = _hint(median(ratios) if ratios else nan, processes, "update")
    verdicts = list(judged.verdicts)
    for number, one in enumerate(verdicts if hint else ()):
        if one.outcome is Outcome.FAIL and one.diff is not None and one.subject.startswith("parameter/"):
            verdicts[number] = replace(one, reason=f"{one.reason}; the updates are {hint[2:]}")
    return replace(judged, verdicts=verdicts)


if __name__ == "__main__":
    main(sys.argv[1:])
