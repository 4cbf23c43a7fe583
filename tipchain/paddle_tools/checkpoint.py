"""Checkpoints of a training, and loading them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from tipchain.core.blame import serving
from tipchain.core.files import atomic_write, replacing_path
from tipchain.errors import DataError, WeightsError
from tipchain.framework_types import Dataset, Model, Nested, Optimizer, Stateful
from tipchain.frameworks.base import check_batch
from tipchain.frameworks.paddle_ import load_batches
from tipchain.paddle_tools.program import ProgramError
from tipchain.parity.align import link
from tipchain.weights.files import read_paddle_file


def train_batches(
    dataset: Dataset, *, batch_size: int, seed: int, epoch: int, skip: int, num_workers: int
) -> tuple[Iterable[Nested], int]:
    """Return the batches of this rank's share of one epoch after the first ``skip``, and the number of all.

    The order depends on ``seed`` and ``epoch`` alone, so a resumed run sees what the first would have seen. A data set
    that takes other samples in every epoch has a ``set_epoch``, as torch's samplers do.
    """
    from paddle.io import DistributedBatchSampler

    class Rest(DistributedBatchSampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[int]]:
            return islice(super().__iter__(), skip, None)

    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    sampler = Rest(dataset, batch_size=batch_size, shuffle=True)
    sampler.set_epoch(mix_seed(seed, epoch))
    return load_batches(dataset, sampler, num_workers=num_workers), len(sampler)


def mix_seed(*parts: int) -> int:
    """Return a 32-bit seed that differs with every one of ``parts``."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def reading(batches: Iterable[Nested], dataset: object) -> Iterator[tuple[Nested, Nested, Nested]]:
    """Yield the ``batches`` of ``dataset``; a sample that cannot be read stops the program.

    Raises:
        ProgramError: says what the data set said.
        UsersError: the samples have other parts than image, label and file name.
    """
    with serving(stage="reading the data"):
        numbers = iter(batches)
        while True:
            try:
                batch = next(numbers)
            except StopIteration:
                return
            except DataError as error:
                raise ProgramError(str(error)) from error
            yield check_batch(batch, dataset)


# Checkpoints: ``latest.{pdparams,pdopt,json}`` and ``best_model.pdparams``, each whole or not at all.
#
# ``latest.json`` is written last: without it a checkpoint is not complete.

LATEST, BEST = "latest", "best_model.pdparams"
SCALER = "GradScaler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a training run stands.

    Attributes:
        case: id of the case.
        epoch: epochs that are finished.
        iteration: steps done in the epoch after those.
        step: steps done in all.
        best: best value so far of the first metric; None before the first evaluation.
        metric: metric values of the last evaluation.
        seed: seed of the run; with ``step`` it gives the state of every random generator.
        learning_rate: the initial one, before it is scaled.
        devices: number of processes.
    """

    case: str
    epoch: int
    iteration: int
    step: int
    best: float | None
    metric: Mapping[str, float]
    seed: int
    batch_size: int
    learning_rate: float
    amp_level: str
    devices: int
    lr_scaling: str


def save_latest(folder: Path, model: Model, optimizer: Optimizer, scaler: Stateful | None, position: Position) -> None:
    """Replace the latest checkpoint in ``folder``.

    Raises:
        ProgramError: the disk is full or the folder cannot be written; the checkpoint before stays whole.
    """
    import paddle

    state = dict(optimizer.state_dict())
    if scaler is not None:
        state[SCALER] = scaler.state_dict()
    facts = folder / f"{LATEST}.json"
    try:
        with (
            replacing_path(folder / f"{LATEST}.pdparams") as weights,
            replacing_path(folder / f"{LATEST}.pdopt") as moments,
        ):
            paddle.save(model.state_dict(), str(weights))
            paddle.save(state, str(moments))
            facts.unlink(missing_ok=True)
        atomic_write(facts, json.dumps(asdict(position), indent=1) + "\n")
    except OSError as error:
        raise ProgramError(f"{folder}: the checkpoint cannot be saved: {error.strerror or error}") from error


def keep_as_best(folder: Path) -> None:
    """Make the latest weights the best ones; both names share one file, which is never written again.

    Raises:
        ProgramError: the disk is full or the folder cannot be written.
    """
    try:
        link(folder / f"{LATEST}.pdparams", folder / BEST)  # replaced files are renamed over: as good as a copy
    except OSError as error:
        raise ProgramError(f"{folder / BEST}: cannot be saved: {error.strerror or error}") from error


def load_position(prefix: Path) -> Position:
    """Return where the checkpoint ``prefix``.json stands.

    Raises:
        WeightsError: it is missing, or is no checkpoint's file.
    """
    path = member(prefix, "json")
    expected = "the prefix of a checkpoint, such as output/latest"
    try:
        return Position(**json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise WeightsError("no complete checkpoint", file=path, expected=expected) from error
    except (OSError, ValueError, TypeError) as error:
        raise WeightsError("cannot be read", file=path, found=repr(error), expected=expected) from error


def member(prefix: Path, suffix: str) -> Path:
    """Return the file of the checkpoint ``prefix`` that ends in ``suffix``."""
    return prefix.with_name(f"{prefix.name}.{suffix}")


def load_moments(prefix: Path, model: Model, optimizer: Optimizer, scaler: Stateful | None) -> None:
    """Load the optimizer's moments, its schedule and the loss scaler from the checkpoint ``prefix``.

    Raises:
        WeightsError: unreadable, or it does not fit the model.
    """
    path = member(prefix, "pdopt")
    state = read_paddle_file(path)
    scale = state.pop(SCALER, None)
    missing = [
        name
        for name, parameter in model.named_parameters()
        if parameter.trainable and not any(key.startswith(f"{parameter.name}_") for key in state)
    ]
    if missing and any(isinstance(value, np.ndarray) for value in state.values()):
        raise WeightsError("does not fit the model", file=path, found=f"nothing for {', '.join(missing)}")
    optimizer.set_state_dict(_tensors(state))
    if scaler is not None and scale is not None:
        scaler.load_state_dict(scale)


def _tensors(state: Mapping[str, object]) -> dict[str, object]:
    import paddle

    return {
        key: _tensors(value)
        if isinstance(value, dict) and key != "LR_Scheduler"
        else paddle.to_tensor(value)
        if isinstance(value, np.ndarray)
        else value
        for key, value in state.items()
    }
