"""One of several processes that train together; started by ``paddle.distributed.launch``.

Run as ``python -m tipchain.parity.data_parallel.worker JOB.json``. Every process leaves ``rank_<n>.json`` beside the
job: its losses and rates, and digests of all tensors before the first and after the last step. Rank 0 alone loads the
case's weights, so that the others have them from `paddle.DataParallel` or not at all, and saves the last tensors.

Source: https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/DataParallel_en.html
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tipchain.blame import blame
from tipchain.devices import parse_device
from tipchain.errors import TipchainError
from tipchain.parity.case import load_case
from tipchain.parity.data_parallel.lifeline import end_with_parent
from tipchain.parity.data_parallel.steps import digests, state, train
from tipchain.parity.frameworks import load_framework
from tipchain.parity.frameworks.base import Array
from tipchain.parity.record import load_record
from tipchain.parity.recorder import save_tensors
from tipchain.parity.stages.bench import Bench
from tipchain.runs import atomic_write

STATE = "state.safetensors"
STAGE = "distributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """What the processes do together.

    Attributes:
        batch: dump of the global batch, inputs and label.
        weights: weight file of the Paddle side.
        device: ``cpu``, or ``gpu`` for a GPU of each process's own.
        folder: where the reports go.
        names: Paddle's name by torch's, as the conversion of the weights found them.
    """

    case: str
    batch: str
    weights: str
    device: str
    threads: int
    folder: str
    train_data: str
    eval_data: str
    reseed: int = 0
    names: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the job as JSON."""
        return json.dumps(asdict(self), indent=1)


def report_path(folder: Path, rank: int) -> Path:
    """Return where the process ``rank`` leaves its report."""
    return folder / f"rank_{rank}.json"


def run(job: WorkerJob, rank: int, processes: int) -> Mapping[str, Any]:
    """Do this process's share of the work, and return its report."""
    framework = load_framework("paddle")
    case = load_case(job.case, job.reseed).for_stage(STAGE)
    case = replace(case, weights=replace(case.weights, names=job.names))
    # Seeds differ, so that what DataParallel does not broadcast from rank 0 differs too.
    framework.configure(parse_device(_own_device(job.device)), case.seed + rank, job.threads)
    paddle = framework.paddle  # type: ignore[attr-defined]
    paddle.distributed.init_parallel_env()
    bench = Bench(
        framework=framework, case=case, weights=Path(job.weights), inputs={}, train_data=Path(job.train_data),
        eval_data=Path(job.eval_data), epochs=1, folder=Path(job.folder),
    )  # fmt: skip
    settings = case.distributed
    model = bench.model(training=settings.training) if rank == 0 else _untouched(bench, settings.training)
    network = paddle.DataParallel(model, find_unused_parameters=settings.find_unused_parameters)
    start = digests(model)
    steps = train(bench, model, network, share(load_record(Path(job.batch)).arrays, rank, processes))
    if rank == 0:
        save_tensors(Path(job.folder) / STATE, state(bench, model))
    return {**asdict(steps), "start": start, "end": digests(model)}


def _own_device(device: str) -> str:
    selected = os.environ.get("FLAGS_selected_gpus", "0").split(",")[0]  # noqa: SIM112  (the launcher's name)
    return f"gpu:{selected}" if device.startswith("gpu") else device


def _untouched(bench: Bench, training: bool) -> Any:
    """Return the model with initial values of its own."""
    model = bench.framework.build(bench.builder("model"), bench.case.model_args)
    bench.framework.set_training(model, training)
    return model


def share(batch: Mapping[str, Array], rank: int, processes: int) -> dict[str, Array]:
    """Return the samples of the global batch that are this process's: equal shares, in order."""
    return {
        name: array[rank * len(array) // processes : (rank + 1) * len(array) // processes]
        for name, array in batch.items()
    }


def main(argv: Sequence[str]) -> int:
    """Do the job in ``argv[0]``; what goes wrong stands in this process's report."""
    end_with_parent()
    job = WorkerJob(**json.loads(Path(argv[0]).read_text()))
    rank, processes = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
    try:
        report = run(job, rank, processes)
    except TipchainError as error:
        report = {"error": str(error)}
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the case's own code may raise anything)
        traceback.print_exc()
        report = {"error": blame(error)}
    atomic_write(report_path(Path(job.folder), rank), json.dumps(report))
    return 1 if "error" in report else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
