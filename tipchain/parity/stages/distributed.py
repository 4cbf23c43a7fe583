"""Several processes: training with ``paddle.DataParallel`` held against one process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from statistics import median

import numpy as np

from tipchain.core.json_text import JsonObject
from tipchain.core.machine import core_count
from tipchain.errors import RecordError, UsageError
from tipchain.framework_types import Array, Model, Tensor
from tipchain.numbers.dumps import save_record
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.outcome import Outcome
from tipchain.parity.data_parallel import STATE, Steps, WorkerGroup, WorkerJob, state, train, update_rms
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, batch_size, fake_batch
from tipchain.parity.stages.judging import Dumps, Judged, Rules, TensorFile, details, tensor_bound, tensor_paths


def record(bench: Bench) -> Recording:
    """Losses, rates, parameters and buffers of n steps; the port's from several processes, the reference's from one."""
    settings, place = bench.case.distributed, getattr(bench.framework, "place", "cpu")
    reason = _too_few_gpus(bench, place)
    if reason:
        return Recording(arrays={}, reference={}, details={"skipped": reason})
    model = bench.model(training=settings.training)
    if settings.training:
        _refuse_statistics(model)
    batch = fake_batch(bench.case, settings.global_batch(batch_size(bench.case)))
    with tempfile.TemporaryDirectory(prefix="distributed.", dir=bench.folder) as name:
        folder = Path(name)
        save_record(folder / "batch.npy", batch)
        job = _job(bench, folder, place)
        with WorkerGroup(job, processes=settings.processes, timeout_s=settings.timeout_s, logs=bench.folder) as group:
            before = state(bench, model)
            steps = train(bench, model, model, batch)
            after = state(bench, model)
            reports = group.reports()
        from safetensors.numpy import load_file

        port = load_file(folder / STATE)
    return Recording(
        arrays=_arrays(_mean(reports)),
        reference=_arrays(steps),
        tensors=port | update_rms(before, port),
        reference_tensors=after | update_rms(before, after),
        details={
            "processes": settings.processes,
            "steps": settings.iterations,
            "batch_size": len(next(iter(batch.values()))),
            "tensors": len(reports[0]["end"]),
            "diverged": {when: diverged([report[when] for report in reports]) for when in ("start", "end")},
        },
    )


def _too_few_gpus(bench: Bench, place: str) -> str:
    """Return why this cannot run on GPUs, or nothing."""
    if not place.startswith("gpu"):
        return ""
    processes = bench.case.distributed.processes
    count = bench.framework.paddle.device.cuda.device_count()  # type: ignore[attr-defined]
    if count >= processes:
        return ""
    return f"{processes} processes need {processes} GPUs, one each; visible: {count} (--device cpu runs them there)"


def _refuse_statistics(model: Model) -> None:
    """Refuse train mode for layers whose statistics are those of a process's own share of the batch."""
    found = [
        name
        for name, layer in model.named_sublayers(include_self=True)
        if "BatchNorm" in type(layer).__name__ and "Sync" not in type(layer).__name__
    ]
    if found:
        raise UsageError(
            f"distributed.training: {', '.join(found[:5])} would take the statistics of each process's own share, "
            "never those of the global batch\n"
            "  expected: `training: false`, or `paddle.nn.SyncBatchNorm` in place of BatchNorm"
        )


def _job(bench: Bench, folder: Path, place: str) -> WorkerJob:
    cores = core_count()
    return WorkerJob(
        case=str(bench.case.path.resolve()),
        batch=str(folder / "batch.npy"),
        weights=str(bench.weights),
        device=place.partition(":")[0],
        threads=max(1, cores // bench.case.distributed.processes),
        folder=str(folder),
        train_data=str(bench.train_data),
        eval_data=str(bench.eval_data),
        reseed=bench.case.reseed,
        names=dict(bench.case.weights.names),
    )


def _mean(reports: Sequence[JsonObject]) -> Steps:
    """Return the processes' steps as one: mean losses, and the rates of rank 0."""
    losses = np.mean([report["losses"] for report in reports], axis=0)
    return Steps(losses=tuple(losses.tolist()), rates=tuple(reports[0]["rates"]))


def _arrays(steps: Steps) -> dict[str, Array]:
    losses = {f"loss_{number}": np.array([loss]) for number, loss in enumerate(steps.losses)}
    return losses | {f"lr_{number}": np.array([rate]) for number, rate in enumerate(steps.rates)}


def diverged(digests: Sequence[Mapping[str, str]]) -> dict[str, list[int]]:
    """Return the tensors that are not the same on all processes, with the ranks that differ from rank 0."""
    first, others = digests[0], list(enumerate(digests))[1:]
    names = dict.fromkeys(name for one in digests for name in one)
    found = {name: [rank for rank, one in others if one.get(name) != first.get(name)] for name in names}
    return {name: ranks for name, ranks in found.items() if ranks}


# Judge training on several processes: losses and rates, parameters and buffers, and whether the processes agree.


STAGE = "distributed"
CLOSE = 0.1
"""How near a ratio must be to the number of processes, or to one over it, to be taken for that."""
Tensors = Mapping[str, Tensor]


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare several processes with one; what could not be run is a SKIP with the reason."""
    facts = details(dumps.port)
    if facts.get("skipped"):
        verdict = Verdict(outcome=Outcome.SKIP, subject=f"{STAGE}/processes", reason=facts["skipped"])
        return Judged(verdicts=(verdict,))
    processes = int(facts.get("processes") or 0)
    judged = _explain_losses(judging.judge_arrays(dumps, rules), dumps, processes)
    try:
        with TensorFile(tensor_paths(dumps)[0]) as left, TensorFile(tensor_paths(dumps)[1]) as right:
            judged += _judge_tensors(left, right, rules, processes)
    except RecordError as error:
        verdict = Verdict(outcome=Outcome.ERROR, subject=f"{STAGE}/tensors", reason=str(error))
        judged += Judged(verdicts=(verdict,))
    return judged + Judged(verdicts=tuple(_judge_ranks(facts)))


def _judge_ranks(facts: Mapping[str, object]) -> Iterator[Verdict]:
    """Judge whether all processes held the same tensors, bit by bit, before the first and after the last step."""
    subject, found = f"{STAGE}/ranks", facts.get("diverged")
    if not isinstance(found, Mapping):
        yield Verdict(outcome=Outcome.ERROR, subject=subject, reason="the processes' digests are not in the dump")
        return
    if not facts.get("tensors"):
        yield Verdict(outcome=Outcome.ERROR, subject=subject, reason="nothing was compared: no tensors")
        return
    if found.get("start"):
        yield Verdict(
            outcome=Outcome.FAIL,
            subject=subject,
            reason=(
                f"before the first step {_named(found['start'])}: they do not come from rank 0 "
                "(paddle.DataParallel leaves out a parameter with no_sync)"
            ),
        )
    elif found.get("end"):
        yield Verdict(
            outcome=Outcome.FAIL,
            subject=subject,
            reason=(
                f"after {facts.get('steps')} steps {_named(found['end'])}: each process updates them with gradients or "
                "a rate of its own"
            ),
        )
    else:
        yield Verdict(
            outcome=Outcome.PASS,
            subject=subject,
            reason=(
                f"{facts['tensors']} tensors equal on {facts.get('processes')} processes, before the first step and "
                "after the last"
            ),
        )


def _named(tensors: Mapping[str, list[int]]) -> str:
    shown = [f"{name} (rank {', '.join(map(str, ranks))})" for name, ranks in list(tensors.items())[:5]]
    more = f" and {len(tensors) - 5} more" if len(tensors) > 5 else ""
    return f"{len(tensors)} tensors differ from rank 0's: {', '.join(shown)}{more}"


def _explain_losses(judged: Judged, dumps: Dumps, processes: int) -> Judged:
    verdicts = []
    for verdict in judged.verdicts:
        key = verdict.subject.partition("/")[2]
        hint = ""
        if verdict.outcome is Outcome.FAIL and key in dumps.port.arrays and key in dumps.reference.arrays:
            ratio = _ratio(dumps.port.arrays[key], dumps.reference.arrays[key])
            hint = _hint(ratio, processes, "learning rate" if key.startswith("lr_") else "loss")
        verdicts.append(replace(verdict, reason=verdict.reason + hint) if hint else verdict)
    return replace(judged, verdicts=tuple(verdicts))


def _ratio(actual: Array, expected: Array) -> float:
    if not np.size(actual) or not np.size(expected):
        return float("nan")
    one, other = float(np.ravel(actual)[0]), float(np.ravel(expected)[0])
    return one / other if other else float("nan")


def _hint(ratio: float, processes: int, what: str) -> str:
    """Say what it means that something is as many times as large as there are processes, or as many times smaller."""
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
    verdicts: list[Verdict] = []
    tolerances: dict[str, Tolerance] = {}
    hint = _hint(_update_ratio(left, right), processes, "update")
    updates = [float(left[name]) for name in left if name.startswith("update_rms/")]
    update = max(filter(isfinite, updates), default=0.0)
    for first, second, words in ((left, right, "missing in the port"), (right, left, "not in the reference")):
        verdicts += [
            Verdict(outcome=Outcome.FAIL, subject=f"{STAGE}/{name}", reason=words)
            for name in first
            if name not in second and not name.startswith("update_rms/")
        ]
    for name in left:
        if name not in right or name.startswith("update_rms/"):
            continue
        group = name.partition("/")[0]
        bound = tensor_bound(group, rules.group(group, STAGE), update, left[name])
        (verdict,) = compare({name: left[name]}, {name: right[name]}, bound)
        failed = verdict.outcome is Outcome.FAIL and name.startswith("parameter/")
        reason = verdict.reason + (hint and f"; the updates are {hint[2:]}" if failed else "")
        verdicts.append(replace(verdict, subject=f"{STAGE}/{name}", reason=reason))
        tolerances[f"{STAGE}/{name}"] = bound
    if not update > 0:
        reason = "all updates are zero or NaN in the reference, so the comparison proves nothing"
        verdicts.append(Verdict(outcome=Outcome.ERROR, subject=f"{STAGE}/parameter", reason=reason))
    return Judged(verdicts=tuple(verdicts), tolerances=tolerances)


def _update_ratio(left: Tensors, right: Tensors) -> float:
    """Return how many times as large as the reference's a port's update is, for the parameter in the middle."""
    pairs = [
        (float(left[name]), float(right[name])) for name in left if name.startswith("update_rms/") and name in right
    ]
    ratios = [actual / expected for expected, actual in pairs if expected > 0]
    return median(ratios) if ratios else float("nan")
