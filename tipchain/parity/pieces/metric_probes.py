"""Outputs and labels on which two metrics are called: the models' own, and such as tell ways of counting apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.metric_probe import make_probe
from tipchain.parity.pieces.metric_values import Batch

Array = npt.NDArray[Any]
CLASSES = 10
"""Of a classifier of which nothing is known."""
SIZES = ((7, 7, 4), (16, 5), (9, 2, 2))
"""Samples of the batches of random probes: the last is smaller."""
SQUARE = 64
"""Up to so many classes a batch of as many samples is tried too."""
CLASSIFIER, DENSE, BINARY, NUMBERS = "classes", "dense classes", "yes or no", "numbers"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """Outputs and labels, batch by batch.

    Attributes:
        name: what messages call it.
        batches: at least one.
        given: these are the models' own.
    """

    name: str
    batches: Sequence[Batch]
    given: bool = False


def given_probe(outputs: Any, labels: Any) -> Probe:
    """Return the models' own outputs; a single array is cut into two uneven batches."""
    whole = Probe(name="the models' outputs", batches=[(outputs, labels)], given=True)
    if not isinstance(outputs, np.ndarray) or not isinstance(labels, np.ndarray):
        return whole
    size = len(outputs) if outputs.ndim else 0
    if size < 3 or not labels.ndim or len(labels) != size:
        return whole
    cut = size - max(1, size // 3)
    return Probe(
        name=whole.name, batches=[(outputs[:cut], labels[:cut]), (outputs[cut:], labels[cut:])], given=True
    )


def kinds_of(outputs: Any, labels: Any) -> tuple[str, ...]:
    """Return what such outputs may be, the likeliest first; nothing where they are none of what is known."""
    if outputs is None or labels is None:
        return (CLASSIFIER, BINARY, NUMBERS)
    if not isinstance(outputs, np.ndarray) or not isinstance(labels, np.ndarray) or outputs.dtype.kind != "f":
        return ()
    if (
        outputs.ndim == 2
        and outputs.shape[1] > 1
        and labels.shape in ((len(outputs),), (len(outputs), 1))
        and labels.dtype.kind in "iu"
    ):
        return (CLASSIFIER,)
    if outputs.ndim > 2 and labels.dtype.kind in "iu" and labels.shape == (len(outputs), *outputs.shape[2:]):
        return (DENSE,)
    if outputs.size == labels.size:
        return (BINARY,) if labels.dtype.kind in "iub" or np.isin(labels, (0, 1)).all() else (NUMBERS,)
    return ()


def make_probes(kind: str, outputs: Any, labels: Any) -> Iterator[Probe]:
    """Yield synthetic outputs of a kind, alike in shapes and types to those given, if there are any."""
    random = np.random.default_rng(0)
    classes = outputs.shape[1] if outputs is not None and outputs.ndim > 1 else CLASSES
    column = labels is not None and labels.ndim > 1
    if kind == CLASSIFIER:
        made = make_probe(classes)
        yield Probe(
            name="outputs made to tell", batches=[_labelled(*one, column=column) for one in made.batches()]
        )
        for number, sizes in enumerate(SIZES):
            yield Probe(
                name=f"random outputs {number}",
                batches=[_scores(random, size, classes, (), column=column) for size in sizes],
            )
        return
    shape = () if outputs is None else outputs.shape[1:]
    for number, sizes in enumerate(SIZES):
        if kind == DENSE:
            inner = tuple(min(one, 8) for one in shape[1:])
            batches = [_scores(random, size, classes, inner, column=False) for size in sizes]
        else:
            kept = tuple(min(one, 16) for one in shape)
            trail = kept if labels is None or labels.ndim == outputs.ndim else ()
            batches = [_numbers(random, size, kept, trail, labels, binary=kind == BINARY) for size in sizes]
        yield Probe(name=f"random outputs {number}", batches=batches)


def square(outputs: Any, labels: Any) -> Probe | None:
    """Return a batch of as many samples as there are classes, in which axes can be mistaken; None where that is large."""
    classes = outputs.shape[1] if outputs is not None and outputs.ndim > 1 else CLASSES
    if classes > SQUARE or (outputs is not None and outputs.ndim != 2):
        return None
    column = labels is not None and labels.ndim > 1
    return Probe(
        name="as many samples as classes",
        batches=[_scores(np.random.default_rng(1), classes, classes, (), column=column)],
    )


def with_ignored(probe: Probe, label: int) -> Probe | None:
    """Return a probe of which some labels are ``label``, None where a batch would have no other."""
    batches = []
    for outputs, labels in probe.batches:
        changed = labels.copy()
        changed.reshape(-1)[:: max(3, changed.size // 2)] = label
        if (changed == label).all():
            return None
        batches.append((outputs, changed))
    return Probe(name=f"labels of {label}", batches=batches)


def _scores(
    random: np.random.Generator, size: int, classes: int, inner: tuple[int, ...], *, column: bool
) -> Batch:
    """Return logits of which about half are right, and labels of which the first classes are more frequent."""
    share = 1 / (1 + np.arange(classes))
    labels = random.choice(classes, (size, *inner), p=share / share.sum())
    logits = random.standard_normal((size, classes, *inner)).astype(np.float32)
    right = np.moveaxis(np.eye(classes, dtype=np.float32)[labels], -1, 1)
    return _labelled(logits + 1.5 * right, labels, column=column)


def _numbers(
    random: np.random.Generator,
    size: int,
    shape: tuple[int, ...],
    trail: tuple[int, ...],
    labels: Any,
    *,
    binary: bool,
) -> Batch:
    values = random.standard_normal((size, *shape)).astype(np.float32)
    values += 0.25 * np.sign(values)  # none lies so near a threshold that rounding moves it
    if not binary:
        made = values.reshape(size, *trail) + random.standard_normal((size, *trail)).astype(np.float32)
        return values, made.astype(np.float32)
    noise = random.standard_normal((size, *trail))
    true = values.reshape(size, *trail) + noise > 0.4
    return values, true.astype(labels.dtype if labels is not None else np.int64)


def _labelled(outputs: Array, labels: Array, *, column: bool) -> Batch:
    return outputs, (labels[:, None] if column and labels.ndim == 1 else labels)
