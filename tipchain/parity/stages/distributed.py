"""Several processes: training with ``paddle.DataParallel`` held against one process with the same global batch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.cores import core_count
from tipchain.errors import UsageError
from tipchain.paddle_export import Array
from tipchain.parity.data_parallel.group import WorkerGroup
from tipchain.parity.data_parallel.steps import Steps, state, train, update_rms
from tipchain.parity.data_parallel.worker import STATE, WorkerJob
from tipchain.parity.record import save_record
from tipchain.parity.stages.batches import batch_size, fake_batch
from tipchain.parity.stages.bench import Bench, Recording


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
        with WorkerGroup(
            job, processes=settings.processes, timeout_s=settings.timeout_s, logs=bench.folder
        ) as group:
            before = state(bench, model)
            steps = train(bench, model, model, batch)
            after = state(bench, model)
            reports = group.reports()
        port = _load(folder / STATE)
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


def _refuse_statistics(model: Any) -> None:
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
            "  expected: training: false, or paddle.nn.SyncBatchNorm in place of BatchNorm"
        )


def _job(bench: Bench, folder: Path, place: str) -> WorkerJob:
    cores = core_count()
    return WorkerJob(
        case=str(bench.case.path.resolve()), batch=str(folder / "batch.npy"), weights=str(bench.weights),
        device=place.partition(":")[0], threads=max(1, cores // bench.case.distributed.processes),
        folder=str(folder), train_data=str(bench.train_data), eval_data=str(bench.eval_data),
        reseed=bench.case.reseed, names=dict(bench.case.weights.names),
    )  # fmt: skip


def _load(path: Path) -> dict[str, Array]:
    from safetensors.numpy import load_file

    return dict(load_file(path))


def _mean(reports: Sequence[Mapping[str, Any]]) -> Steps:
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
