"""Step 8 of the guide, backward: some iterations on equal inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tipchain.parity.frameworks.base import Array, scalar
from tipchain.parity.stages.bench import Bench, Recording


def record(bench: Bench) -> Recording:
    """Losses and learning rates over n iterations, first gradients, last parameters and buffers."""
    settings, framework, names = bench.case.backward, bench.framework, bench.case.weights.names
    model = bench.model(training=settings.training)
    if settings.training and hasattr(framework, "watch_variances"):
        framework.watch_variances(model)
    criterion, trainer = bench.builder("loss")(), bench.trainer(model, settings.learning_rate)
    before = dict(framework.parameters(model, names))
    arrays: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    batches = _backward_batches(bench, settings.iterations)
    for number, (images, label) in enumerate(batches):
        arrays[f"lr_{number}"] = np.array([trainer.learning_rate()])
        loss = criterion(model(*images), label)
        loss.backward()
        if number == 0:
            tensors |= {f"gradient/{name}": value for name, value in framework.gradients(model, names)}
        trainer.step()
        trainer.step_schedule()
        arrays[f"loss_{number}"] = scalar(framework.array(loss))
    for name, value in framework.parameters(model, names):
        tensors[f"parameter/{name}"] = value
        tensors[f"update_rms/{name}"] = np.array(_rms(value, before.pop(name)))
    tensors |= {f"buffer/{name}": value for name, value in framework.buffers(model, names)}
    ordered = sorted(arrays, key=lambda key: (key.startswith("lr_"), int(key.rsplit("_", 1)[1])))
    return Recording(arrays={key: arrays[key] for key in ordered}, tensors=tensors)


def _backward_batches(bench: Bench, iterations: int) -> Iterator[tuple[list[Any], Any]]:
    if bench.case.backward.inputs == "fake":
        for _ in range(iterations):
            yield bench.fake_inputs(), bench.fake_label()
        return
    dataset = bench.dataset("train")
    size = bench.case.train.batch_size
    wanted = [
        [(start + n) % len(dataset) for n in range(size)] for start in range(0, iterations * size, size)
    ]
    for image, label, _ in bench.framework.batches(dataset, wanted):
        yield [image], label


def _rms(after: Array, before: Array) -> float:
    difference = np.subtract(after, before).ravel()
    return float(np.sqrt(np.dot(difference, difference) / max(difference.size, 1)))
