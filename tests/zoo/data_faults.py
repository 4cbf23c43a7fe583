"""Faults of data and metrics, planted into the port's half of a pair that is otherwise equal, with their causes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
HALF = 0.5 * np.ones(3)
SHORT, CROP, CLASSES = 40, 32, 5
SHAPES = ((60, 84), (72, 54), (58, 78), (66, 66), (78, 60), (59, 79), (60, 84), (46, 60), (64, 80), (70, 55))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A pair of sources, or of metrics, that differ by one thing.

    Attributes:
        id: its name.
        code: the kind of the first cause.
        says: what its message must say: the name of what is set otherwise, or the line.
        reference: the reference's.
        port: the port's.
        samples: raw images, where both are transforms.
        kind: of the outputs of metrics: ``"classes"``, ``"words"`` or ``"yes or no"``.
    """

    id: str
    code: str = ""
    says: tuple[str, ...] = ()
    reference: Any
    port: Any
    samples: Any = None
    kind: str = ""


def picture(height: int, width: int, seed: int) -> Any:
    """Return an image of bytes with blobs, stripes and a little noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    image = 20 * np.sin(x / 3)[..., None] + random.normal(0, 6, (height, width, 3)) + 120
    for _ in range(25):
        square = (y - random.uniform(0, height)) ** 2 + (x - random.uniform(0, width)) ** 2
        image += np.exp(-square / (2 * random.uniform(2, 15) ** 2))[..., None] * random.normal(0, 80, 3)
    return image.clip(0, 255).astype(np.uint8)


RAWS = [picture(*shape, seed) for seed, shape in enumerate(SHAPES)]
LABELS = [0, 1, 2, 3, 4, 0, 1, 1, 0, 2]


def transform(
    raw: Any,
    *,
    method: Any = Image.Resampling.BILINEAR,
    mean: Any = MEAN,
    std: Any = STD,
    moved: int = 0,
    corner: bool = False,
    scale: float = 255.0,
) -> Any:
    """Return an image as ImageNet's evaluation makes it, float32 ``[3, 32, 32]``."""
    high, wide = raw.shape[:2]
    size = (SHORT, int(SHORT * high / wide)) if wide < high else (int(SHORT * wide / high), SHORT)
    small = np.asarray(Image.fromarray(raw).resize(size, method))
    top, left = (0 if corner else round((length - CROP) / 2) + moved for length in small.shape[:2])
    pixels = small[top : top + CROP, left : left + CROP] / scale
    return ((pixels - mean) / std).transpose(2, 0, 1).astype(np.float32)


class Made:
    """A data set whose samples are made when they are read."""

    def __init__(self, make: Callable[[int], Any], count: int = len(RAWS)) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        if not 0 <= number < self.count:
            raise IndexError
        return self.make(number)


def samples(
    change: Callable[[Any], Any] = lambda image: image, label: Callable[[int], Any] = lambda one: one, **arguments: Any
) -> Made:
    """Return finished images, changed, with their labels."""
    return Made(lambda number: (change(transform(RAWS[number], **arguments)), label(LABELS[number])))


def _data(name: str, said: str, port: Any, reference: Any = None) -> Planted:
    code, *says = said.split("|")
    reference = samples() if reference is None else reference
    return Planted(id=name, code=code, says=tuple(says), reference=reference, port=port)


def _transforms(name: str, said: str, port: Any) -> Planted:
    code, *says = said.split("|")
    return Planted(id=name, code=code, says=tuple(says), reference=transform, port=port, samples=RAWS)


def _bytes(change: Callable[[Any], Any]) -> Made:
    return Made(lambda number: (change(RAWS[number][:32, :32].transpose(2, 0, 1)), LABELS[number]))


def _pad(mode: str, **arguments: Any) -> Made:
    return samples(lambda image: np.pad(image, ((0, 0), (4, 4), (3, 3)), mode=mode, **arguments))


def _batches(items: Sequence[Any], size: int, *, drop: bool = False) -> list[Any]:
    cut = [items[at : at + size] for at in range(0, len(items), size)]
    cut = [one for one in cut if len(one) == size] if drop else cut
    return [(np.stack([image for image, _ in one]), np.array([label for _, label in one])) for one in cut]


def _plain(raw: Any) -> Any:
    """Return the transform without antialiasing, as OpenCV's INTER_LINEAR does it, on floats."""
    import torch

    high, wide = raw.shape[:2]
    size = (int(SHORT * high / wide), SHORT) if wide < high else (SHORT, int(SHORT * wide / high))
    pixels = torch.tensor(raw.transpose(2, 0, 1)[None], dtype=torch.float64)
    small = torch.nn.functional.interpolate(pixels, size, mode="bilinear")[0].round().numpy().transpose(1, 2, 0)
    top, left = (round((length - CROP) / 2) for length in small.shape[:2])
    return ((small[top : top + CROP, left : left + CROP] / 255 - MEAN) / STD).transpose(2, 0, 1)


CLEAN_SAMPLES = list(samples())
ORDER = np.random.default_rng(1).permutation(len(RAWS))
DATA_FAULTS = (
    _data("bgr", "parting|`image[::-1]` (data_faults.py:|of image [", samples(lambda image: image[::-1])),
    _data("bgr-before-normalization", "parting|RAWS[number][..., ::-1]", Made(lambda number: (transform(np.ascontiguousarray(RAWS[number][..., ::-1])), LABELS[number]))),
    _data("channels-last", "parting|`image.transpose(1, 2, 0)`|(32x32x3)", samples(lambda image: image.transpose(1, 2, 0))),
    _data("half-for-imagenet", "argument|`mean` is [0.5, 0.5, 0.5] (3), the reference's [0.485,|`std` is", samples(mean=HALF, std=HALF)),
    _data("not-normalized", "argument|`mean` is 0.0|`std` is 1.0, the reference's [0.229, 0.224, 0.225]", samples(mean=0.0, std=1.0)),
    _data("not-divided-by-255", "argument|`scale` is 1.0, the reference's 255.0", samples(scale=1.0)),
    _data("bytes-not-divided", "parting|the port's `image` (|`(image / 255).astype(np.float32)`", _bytes(lambda image: image), _bytes(lambda image: (image / 255).astype(np.float32))),
    _data("flipped", "parting|`image[..., ::-1]`", samples(lambda image: image[..., ::-1])),
    _data("crop-off-by-one", "argument|`moved` is 1, the reference's 0", samples(moved=1)),
    _data("top-left-crop", "parting|the port's `(RAWS[number][:32, :32] / 255, 0)`|the reference's `(RAWS[number][8:40, 6:38] / 255, 0)`", Made(lambda number: (RAWS[number][:32, :32] / 255, 0)), Made(lambda number: (RAWS[number][8:40, 6:38] / 255, 0))),
    _data("overflow", "parting|`image + np.uint8(60)`|makes 0 at [", _bytes(lambda image: image + np.uint8(60)), _bytes(lambda image: image.astype(np.float32) + 60)),
    _data("cut-to-whole-numbers", "parting|`(change(transform(RAWS[number]", samples(np.trunc)),
    _data("padding-value", "argument|`constant_values` is 1.0, the reference's not given|np.pad(", _pad("constant", constant_values=1.0), _pad("constant")),
    _data("padding-mode", "argument|`mode` is 'reflect', the reference's 'constant'|np.pad(", _pad("reflect"), _pad("constant")),
    _data("bgr-and-half", "parting|((pixels - mean) / std)", samples(lambda image: image[::-1], mean=HALF, std=HALF)),
    _data("label-plus-one", "parting|`one + 1`|makes 1 of one 0", samples(label=lambda one: one + 1)),
    _data("classes-exchanged", "parting|`(1, 0, 2, 3, 4)[one]`", samples(label=lambda one: (1, 0, 2, 3, 4)[one])),
    _data("labels-out-of-step", "parting|LABELS[number - 1]", Made(lambda number: (CLEAN_SAMPLES[number][0], LABELS[number - 1]))),
    _data("reversed", "parting|order: sample 0 of the port is the reference's 9, expected 0", CLEAN_SAMPLES[::-1]),
    _data("shuffled-once", "parting|order: sample 0 of the port is the reference's 8, expected 0", [CLEAN_SAMPLES[number] for number in ORDER]),
    _data("one-missing", "parting|sample 4 of the port is the reference's 5, expected 4|sample 4 of the reference's 10 missing in the port", CLEAN_SAMPLES[:4] + CLEAN_SAMPLES[5:]),
    _data("one-twice", "parting|sample 5 of the port is the reference's 4, expected 5|the port has sample 4 more than once", CLEAN_SAMPLES[:5] + CLEAN_SAMPLES[4:]),
    _data("filled-up", "parting|sample 10 of the port is the reference's 0, expected none|the port has samples 0, 1 more than once", CLEAN_SAMPLES + CLEAN_SAMPLES[:2]),
    _data("last-batch-dropped", "parting|samples 8, 9 of the reference's 10 missing in the port", _batches(CLEAN_SAMPLES, 4, drop=True), _batches(CLEAN_SAMPLES, 4)),
    _data("bgr-in-another-order", "parting|first 0, 0: 3068 of 3072 values, most at [", list(samples(lambda image: image[::-1]))[::-1]),
    _transforms("bicubic", "argument|`method` is BICUBIC, the reference's BILINEAR|.resize(size, method)", lambda raw: transform(raw, method=Image.Resampling.BICUBIC)),
    _transforms("nearest", "argument|`method` is NEAREST, the reference's BILINEAR", lambda raw: transform(raw, method=Image.Resampling.NEAREST)),
    _transforms("no-antialias", "parting|interpolate(pixels, size, mode='bilinear')|Image.fromarray(raw).resize(size, method)", _plain),
    _transforms("top-left", "argument|`corner` is True, the reference's False", lambda raw: transform(raw, corner=True)),
    _transforms("raw-bgr", "parting|raw[..., ::-1]", lambda raw: transform(np.ascontiguousarray(raw[..., ::-1]))),
)  # fmt: skip


def _floats(raw: Any) -> Any:
    """Return the transform once more, computed otherwise: in float64, with constants for 0..255, and another order."""
    high, wide = raw.shape[:2]
    size = (SHORT, int(SHORT * high / wide)) if wide < high else (int(SHORT * wide / high), SHORT)
    small = np.array(Image.fromarray(raw).resize(size, Image.Resampling.BILINEAR), dtype=np.float64).transpose(2, 0, 1)
    scaled = small * (1 / (255 * STD))[:, None, None] - (MEAN / STD)[:, None, None]
    top, left = (round((length - CROP) / 2) for length in small.shape[1:])
    return scaled[:, top : top + CROP, left : left + CROP]


CLEAN_DATA = (
    _data("again", "", samples()),
    _data("computed-otherwise", "", [(_floats(raw), np.array([one])) for raw, one in zip(RAWS, LABELS, strict=True)]),
    _data("in-batches", "", _batches(CLEAN_SAMPLES, 4)),
    _data("other-batches", "", _batches(CLEAN_SAMPLES, 3), _batches(CLEAN_SAMPLES, 5)),
    _data("mappings", "", [{"image": image, "label": label, "file": f"/b/{label}"} for image, label in CLEAN_SAMPLES]),
    _data("generator", "", lambda: iter(CLEAN_SAMPLES)),
    _data("labels-int32", "", samples(label=np.int32)),
    _transforms("transforms", "", _floats),
)


def top(k: int = 1, factor: float = 1.0, *, error: bool = False) -> Callable[[Any, Any], float]:
    """Return a top-k accuracy."""

    def measure(outputs: Any, labels: Any) -> float:
        ranks = (outputs > outputs[np.arange(len(labels)), labels][:, None]).sum(axis=1)
        share = float((ranks < k).mean())
        return factor * (1 - share if error else share)

    return measure


def class_mean(outputs: Any, labels: Any) -> float:
    """Return the mean of the classes' accuracies."""
    return float(np.mean([(outputs[labels == one].argmax(axis=1) == one).mean() for one in np.unique(labels)]))


def f1(average: str) -> Callable[[Any, Any], float]:
    """Return an F1."""

    def measure(outputs: Any, labels: Any) -> float:
        found, each, counts = outputs.argmax(axis=1), [], []
        for one in np.union1d(found, labels):
            hits = ((found == one) & (labels == one)).sum()
            each.append(2 * hits / ((found == one).sum() + (labels == one).sum()))
            counts.append((labels == one).sum())
        if average == "micro":
            return float((found == labels).mean())
        return float(np.mean(each) if average == "macro" else np.average(each, weights=counts))

    return measure


def above(threshold: float) -> Callable[[Any, Any], float]:
    """Return the accuracy of outputs above a threshold."""
    return lambda outputs, labels: float(((outputs > threshold) == labels.astype(bool)).mean())


def without(label: int) -> Callable[[Any, Any], float]:
    """Return the accuracy of samples of any other label."""
    return lambda outputs, labels: float((outputs[labels != label].argmax(axis=1) == labels[labels != label]).mean())


def plain(outputs: Any, labels: Any) -> float:
    """Return the accuracy, also where labels are no classes."""
    return float((outputs.argmax(axis=1) == labels).mean())


def surprise(*, counts_padding: bool) -> Callable[[Any, Any], float]:
    """Return the mean negative logarithm of the words' chances; classes stand last, and each word has a label."""

    def measure(outputs: Any, labels: Any) -> float:
        logs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
        known = labels != -100
        found = np.take_along_axis(logs, np.where(known, labels, 0)[..., None], -1)[..., 0]
        return float(-found.mean() if counts_padding else -(found * known).sum() / known.sum())

    return measure


def in_chunks(size: int) -> Callable[[Any, Any], float]:
    """Return the mean of the accuracies of batches."""
    return lambda outputs, labels: float(
        np.mean([plain(outputs[at : at + size], labels[at : at + size]) for at in range(0, len(labels), size)])
    )


class Counting:
    """An accuracy that counts, with torchmetrics' protocol."""

    def __init__(self, *, by_batch: bool = False, resets: bool = True, forgets: bool = False) -> None:
        self.by_batch, self.resets, self.forgets, self.seen = by_batch, resets, forgets, []

    def reset(self) -> None:
        if self.resets:
            self.seen = []

    def update(self, outputs: Any, labels: Any) -> None:
        self.seen.append((float((outputs.argmax(1) == labels).sum()), len(labels)))

    def compute(self) -> float:
        if self.by_batch:
            return float(np.mean([hits / count for hits, count in self.seen]))
        return sum(hits for hits, _ in self.seen) / sum(count for _, count in self.seen)


class PaddleCounting(Counting):
    """The same with Paddle's."""

    def compute(self, outputs: Any, labels: Any) -> Any:  # type: ignore[override]
        return outputs.argmax(1) == labels

    def update(self, right: Any) -> None:  # type: ignore[override]
        if self.forgets:
            self.seen = []
        self.seen.append((float(right.sum()), len(right)))

    def accumulate(self) -> float:
        return super().compute()


def _metric(name: str, said: str, reference: Any, port: Any, kind: str = "classes") -> Planted:
    code, *says = said.split("|")
    return Planted(id=name, code=code, says=tuple(says), reference=reference, port=port, kind=kind)


METRIC_FAULTS = (
    _metric("top-5", "argument|`k` is 5, the reference's 1", top(1), top(5)),
    _metric("top-3-for-5", "argument|`k` is 3, the reference's 5", top(5), top(3)),
    _metric("percent", "argument|`factor` is 100, the reference's 1.0", top(1), top(1, 100)),
    _metric("fraction", "argument|`factor` is 1.0, the reference's 100", top(1, 100), top(1)),
    _metric("error-rate", "argument|`error` is True, the reference's False", top(1), top(1, error=True)),
    _metric(
        "classes-for-samples",
        "parting|`return float(np.mean([(outputs[labels == one]|the reference's `ranks = (outputs > outputs[",
        top(1),
        class_mean,
    ),
    _metric("samples-for-classes", "parting|the port's `ranks = (outputs > outputs[", class_mean, top(1)),
    _metric("macro-for-micro", "argument|`average` is 'macro', the reference's 'micro'", f1("micro"), f1("macro")),
    _metric(
        "mean-of-batches",
        "argument|`by_batch` is True, the reference's False",
        Counting(),
        PaddleCounting(by_batch=True),
    ),
    _metric(
        "mean-of-its-own-batches",
        "parting|np.mean([plain(|makes [1, 0.5, 1, 0, 0.333333] (5)|makes 0.578947 of outputs",
        plain,
        in_chunks(4),
    ),
    _metric("not-reset", "argument|`resets` is False, the reference's True", Counting(), PaddleCounting(resets=False)),
    _metric(
        "last-batch-of-what-is-not-reset",
        "parting|the reference's `self.seen.append(",
        Counting(resets=False),
        PaddleCounting(forgets=True),
    ),
    _metric(
        "axis",
        "parting|the port's metric raised|data_faults.py:|ValueError",
        plain,
        lambda outputs, labels: float((outputs.argmax(axis=0) == labels).mean()),
    ),
    _metric("ignored-255", "parting|first labels of 255", without(255), plain),
    _metric(
        "padding-counted",
        "argument|`counts_padding` is True, the reference's False",
        surprise(counts_padding=False),
        surprise(counts_padding=True),
        "words",
    ),
    _metric("class-0-left-out", "parting|the port's `float((outputs[labels != label]", plain, without(0)),
    _metric("smallest", "parting|`plain(-outputs, labels)`", plain, lambda outputs, labels: plain(-outputs, labels)),
    _metric("threshold", "argument|`threshold` is 0.5, the reference's 0.0", above(0.0), above(0.5), "yes or no"),
    _metric(
        "sigmoid-twice",
        "parting|1 / (1 + np.exp(-outputs))",
        above(0.4),
        lambda outputs, labels: above(0.4)(1 / (1 + np.exp(-outputs)), labels),
        "yes or no",
    ),
    _metric(
        "percent-of-what-is-unknown",
        "parting|`100 * float(np.abs(outputs).mean())`",
        lambda outputs, _: float(np.abs(outputs).mean()),
        lambda outputs, _: 100 * float(np.abs(outputs).mean()),
    ),
)
CLEAN_METRICS = (
    _metric("ranks-and-argmax", "", top(1), plain),
    _metric("tensors-and-arrays", "", lambda outputs, labels: (outputs.argmax(dim=1) == labels).float().mean(), plain),
    _metric("objects", "", Counting(), PaddleCounting()),
    _metric("callable-and-object", "", plain, PaddleCounting()),
    _metric("mapping-and-number", "", lambda outputs, labels: {"acc": plain(outputs, labels)}, plain),
    _metric("micro-f1-is-accuracy", "", f1("micro"), plain),
    _metric("left-out-on-both-sides", "", without(255), without(255)),
    _metric(
        "thresholds",
        "",
        above(0.0),
        lambda outputs, labels: above(0.5)(1 / (1 + np.exp(-outputs)), labels),
        "yes or no",
    ),
)


def outputs_of(kind: str) -> tuple[Any, Any]:
    """Return a model's outputs and labels."""
    random = np.random.default_rng(5)
    if kind == "classes":
        return random.standard_normal((12, 10)).astype(np.float32), random.integers(0, 10, 12)
    if kind == "words":
        labels = random.integers(0, 7, (4, 20))
        labels[:, 15:] = -100
        return random.standard_normal((4, 20, 7)).astype(np.float32), labels
    return random.standard_normal(30).astype(np.float32), random.integers(0, 2, 30)
