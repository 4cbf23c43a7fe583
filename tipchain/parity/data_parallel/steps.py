"""Some training steps on one batch: the same code for one process and for each of several."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tipchain.parity.case_types import LABEL
from tipchain.parity.frameworks.base import Array, scalar
from tipchain.parity.stages.bench import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What some training steps gave, by step: losses before the update, and the rates of the updates."""

    losses: tuple[float, ...]
    rates: tuple[float, ...]


def train(bench: Bench, model: Any, network: Any, batch: Mapping[str, Array]) -> Steps:
    """Train on ``batch`` for as many steps as the case's ``distributed`` says; the schedule moves on with each.

    Args:
        bench: the case's Paddle side.
        model: whose parameters are updated.
        network: what is called: ``model``, or ``paddle.DataParallel`` around it.
        batch: inputs and label by name, this process's share.
    """
    settings, framework = bench.case.distributed, bench.framework
    inputs = [framework.tensor(array) for name, array in batch.items() if name != LABEL]
    label, criterion = framework.tensor(batch[LABEL]), bench.builder("loss")()
    trainer = bench.trainer(model, settings.learning_rate)
    losses, rates = [], []
    for _ in range(settings.iterations):
        rates.append(trainer.learning_rate())
        loss = criterion(network(*inputs), label)
        loss.backward()
        trainer.step()
        trainer.step_schedule()
        losses.append(float(scalar(framework.array(loss))[0]))
    return Steps(losses=tuple(losses), rates=tuple(rates))


def state(bench: Bench, model: Any) -> dict[str, Array]:
    """Return the model's tensors in torch's names and layout, as ``parameter/NAME`` and ``buffer/NAME``."""
    framework, names = bench.framework, bench.case.weights.names
    parameters = {f"parameter/{name}": array for name, array in framework.parameters(model, names)}
    return parameters | {f"buffer/{name}": array for name, array in framework.buffers(model, names)}


def update_rms(before: Mapping[str, Array], after: Mapping[str, Array]) -> dict[str, Array]:
    """Return the root mean square of every parameter's update, as ``update_rms/NAME``."""
    result = {}
    for key, array in after.items():
        group, _, name = key.partition("/")
        if group == "parameter":
            change = np.subtract(array, before[key]).ravel()
            result[f"update_rms/{name}"] = np.array(np.sqrt(np.dot(change, change) / max(change.size, 1)))
    return result


def digests(model: Any) -> dict[str, str]:
    """Return a checksum of the bytes of every parameter and persistent buffer, by Paddle's name."""
    return {
        name: f"{zlib.crc32(np.ascontiguousarray(tensor.numpy()).data):08x}"
        for name, tensor in model.state_dict().items()
    }
