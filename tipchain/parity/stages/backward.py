"""Step 8 of the guide, backward: some iterations on equal inputs, in eval mode, train mode or both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from tipchain.parity.compare import PIECE
from tipchain.parity.envelope import ULPS
from tipchain.parity.frameworks.base import Array, scalar
from tipchain.parity.settings.backward import DOUBLE, TRAIN
from tipchain.parity.stages.batch_log import BatchLog
from tipchain.parity.stages.bench import Bench, Recording

NOISE_RUNS = 4
"""Runs that show how much rounding can move a first gradient: two perturbations and their mirror images."""


def record(bench: Bench) -> Recording:
    """Losses and learning rates over n iterations, first gradients, last parameters and buffers, in each mode.

    The keys of the first mode are plain, those of the second begin with its name.
    """
    modes = bench.case.backward.modes
    arrays: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    log = BatchLog(kept=bench.case.backward.iterations)
    for number, mode in enumerate(modes):
        prefix = f"{mode}/" if number else ""
        more_arrays, more_tensors = _iterate(bench, mode, log if number == 0 else None)
        arrays |= {prefix + key: value for key, value in more_arrays.items()}
        tensors |= {prefix + key: value for key, value in more_tensors.items()}
    details = {"modes": list(modes), "dtype": bench.case.backward.dtype, **(log.facts() if log.first else {})}
    return Recording(arrays=arrays, tensors=tensors, details=details)


def _iterate(bench: Bench, mode: str, log: BatchLog | None) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return losses and rates, then gradients, parameters and buffers, of one mode."""
    settings, framework, names = bench.case.backward, bench.framework, bench.case.weights.names
    model, criterion = bench.model(training=mode == TRAIN), bench.builder("loss")()
    if settings.dtype == DOUBLE:
        model, criterion = framework.widened(model), framework.widened(criterion)
    if mode == TRAIN:
        framework.watch_variances(model)
    trainer = bench.trainer(model, settings.learning_rate)
    losses: dict[str, Array] = {}
    rates: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    with _surroundings(bench):
        for number, (images, label) in enumerate(_inputs(bench, log)):
            rates[f"lr_{number}"] = np.array([trainer.learning_rate()])
            loss = criterion(model(*images), label)
            loss.backward()
            if number == 0:
                tensors |= {f"gradient/{name}": value for name, value in framework.gradients(model, names)}
            trainer.step()
            trainer.step_schedule()
            losses[f"loss_{number}"] = scalar(framework.array(loss))
    tensors |= {f"parameter/{name}": value for name, value in framework.parameters(model, names)}
    tensors |= {f"buffer/{name}": value for name, value in framework.buffers(model, names)}
    if framework.name == "torch":
        tensors |= _update_rms(bench, model, tensors)
    if framework.name == "torch" and not bench.truth:
        tensors |= _gradient_noise(bench, model, criterion, tensors)
    return {**losses, **rates}, tensors


def _update_rms(bench: Bench, model: Any, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the root mean square of each parameter's update, which updates are measured by; the weights are loaded anew."""
    bench.restore(model)
    found = {}
    for name, before in bench.framework.parameters(model, bench.case.weights.names, shared=True):
        pieces = _differences(tensors[f"parameter/{name}"], before)
        squares = sum(float(np.dot(piece, piece)) for piece in pieces)
        found[f"update_rms/{name}"] = np.array(np.sqrt(squares / max(before.size, 1)))
    return found


def _gradient_noise(
    bench: Bench, model: Any, criterion: Any, tensors: Mapping[str, Array]
) -> dict[str, Array]:
    """Return by how much each first gradient moves at most where the weights start a little apart.

    A value within rounding of a ReLU's kink lets a gradient jump by a share of it that no precision makes smaller.
    """
    from tipchain.parity.frameworks.torch_perturbation import perturb

    framework, names = bench.framework, bench.case.weights.names
    noise: dict[str, Array] = {}
    images, label = next(_inputs(bench, None))
    for number in range(NOISE_RUNS):
        bench.restore(model)
        perturb(model, ULPS, number)
        model.zero_grad()
        with _surroundings(bench):
            criterion(model(*images), label).backward()
        for name, value in framework.gradients(model, names, shared=True):
            pieces = _differences(value, tensors[f"gradient/{name}"])
            moved = np.max([np.abs(piece).max() for piece in pieces], initial=0)
            key = f"gradient_noise/{name}"
            noise[key] = np.array(max(float(noise.get(key, 0.0)), float(moved)))
    return noise


@contextmanager
def _surroundings(bench: Bench) -> Iterator[None]:
    """Switch dropout off, and make float64 the default where the stage asks for it."""
    wide = bench.case.backward.dtype == DOUBLE
    with bench.framework.randomness(None), bench.framework.double_precision() if wide else nullcontext():
        yield


def _inputs(bench: Bench, log: BatchLog | None) -> Iterator[tuple[list[Any], Any]]:
    """Yield the inputs and the label of each iteration in the stage's precision; ``log`` hears of the samples."""
    for images, label in _batches(bench, log):
        if bench.case.backward.dtype == DOUBLE:
            yield [bench.framework.widened(image) for image in images], bench.framework.widened(label)
        else:
            yield images, label


def _batches(bench: Bench, log: BatchLog | None) -> Iterator[tuple[list[Any], Any]]:
    settings = bench.case.backward
    if settings.inputs == "fake":
        for _ in range(settings.iterations):
            yield bench.fake_inputs(), bench.fake_label()
        return
    dataset, size = bench.dataset("train"), bench.case.train.batch_size
    starts = range(0, settings.iterations * size, size)
    wanted = [[(start + number) % len(dataset) for number in range(size)] for start in starts]
    for image, label, files in bench.framework.batches(dataset, wanted):
        if log is not None:
            log.add(files, bench.framework.array(label))
        yield [image], label


def _differences(left: Array, right: Array) -> Iterator[Array]:
    """Yield ``left - right``, flat, in pieces that fit into a core's cache."""
    left, right = left.reshape(-1), right.reshape(-1)
    for start in range(0, left.size, PIECE):
        yield np.subtract(left[start : start + PIECE], right[start : start + PIECE])
