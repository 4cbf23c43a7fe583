"""Step 9 of the guide, training data: values without augmentation, the loader's order, what augmentation draws."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tipchain.errors import UsageError
from tipchain.parity.frameworks.base import Array, Framework
from tipchain.parity.pixel_statistics import describe_image
from tipchain.parity.stages.bench import Bench, Recording, split

LAZY_DRAWS = 400
"""Where an augmentation makes its images only when asked, this many are looked at."""
Draw = Callable[[int], tuple[Any, Mapping[str, Any]]]


def record(bench: Bench) -> Recording:
    """What the training split holds, and how loaders and augmentation deal with it.

    ``length``, ``dataloader_i`` and ``label_i`` are samples in order, without images where two reads of one sample
    differ (of a data set with a ``set_epoch`` also ``epoch_e/...`` for every later epoch); ``order_e`` and ``sizes_e`` are the sample numbers of epoch e and the sizes of its batches, ``repeat``
    is epoch 0 again after the same seed; ``draw/NAME`` ``[draws, n]`` is what the augmentation drew, and
    ``pixels/NAME`` ``[draws]`` a statistic of the images that came of it.
    """
    framework, seed = bench.framework, bench.case.seed
    framework.seed(seed)
    dataset = bench.dataset("train")
    arrays, details = _read_samples(bench, dataset)
    loader, augmentation = bench.optional_builder("loader"), bench.optional_builder("augmentation")
    if loader is not None:
        arrays |= _read_orders(bench, dataset, loader)
    framework.seed(seed)
    if augmentation is not None:
        arrays |= _read_draws(bench, len(dataset), augmentation(bench.train_data, seed))
    elif details["random"]:
        arrays |= _read_draws(bench, len(dataset), lambda number: (dataset[number][0], {}))
    framework.seed(seed)
    settings = bench.case.training_data
    details |= {
        "loader": loader is not None, "augmentation": augmentation is not None, "alpha": settings.alpha,
        "drop_last": settings.drop_last, "shuffle": settings.shuffle, "batch_size": _batch_size(bench),
        "images": len(_spread(len(dataset), settings.images)),
    }  # fmt: skip
    return Recording(arrays=arrays, details=details)


def _batch_size(bench: Bench) -> int:
    return bench.case.training_data.batch_size or bench.case.train.batch_size


def _spread(length: int, wanted: int) -> list[int]:
    """Return at most ``wanted`` sample numbers below ``length``, evenly spread."""
    return sorted({number * length // min(wanted, length) for number in range(min(wanted, length))})


def _read_samples(bench: Bench, dataset: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    settings, wanted = bench.case.training_data, _spread(len(dataset), bench.case.training_data.samples)
    batches = split(wanted, _batch_size(bench))
    arrays: dict[str, Array] = {"length": np.array([len(dataset)], dtype=np.int64)}
    files: list[str] = []
    digests = []
    # A data set that takes other samples in every epoch, or other parts of them, hears of the epoch.
    epochs = settings.epochs if hasattr(dataset, "set_epoch") else 1
    for epoch in range(epochs):
        if epochs > 1:
            dataset.set_epoch(epoch)
        begin = f"epoch_{epoch}/" if epoch else ""
        for number, (image, label, names) in enumerate(bench.framework.batches(dataset, batches)):
            arrays[f"{begin}dataloader_{number}"] = bench.framework.array(image)
            arrays[f"{begin}label_{number}"] = bench.framework.array(label)
            files.extend(names)
            digests.append(_digest(arrays[f"{begin}dataloader_{number}"]))
    if epochs > 1:
        dataset.set_epoch(0)
    again = [
        _digest(bench.framework.array(image)) for image, _, _ in bench.framework.batches(dataset, batches)
    ]
    random = again != digests[: len(again)]
    if random:
        arrays = {key: array for key, array in arrays.items() if "dataloader_" not in key}
    return arrays, {"files": files, "compared": len(wanted), "length": len(dataset), "random": random}


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _read_orders(bench: Bench, dataset: Any, loader: Callable[..., Any]) -> dict[str, Array]:
    """Return the order of every epoch as the side's own loader gives it; no image but the first is read."""
    seed, numbered = bench.case.seed, number_samples(dataset)
    arrays: dict[str, Array] = {}
    bench.framework.seed(seed)
    for epoch in range(bench.case.training_data.epochs):
        batches = list(_numbers(bench, loader(numbered, _batch_size(bench), seed, epoch)))
        arrays[f"order_{epoch}"] = np.array([number for batch in batches for number in batch], dtype=np.int64)
        arrays[f"sizes_{epoch}"] = np.array([len(batch) for batch in batches], dtype=np.int64)
    bench.framework.seed(seed)
    again = [
        number for batch in _numbers(bench, loader(numbered, _batch_size(bench), seed, 0)) for number in batch
    ]
    return {**arrays, "repeat": np.array(again, dtype=np.int64)}


def number_samples(dataset: Any) -> Any:
    """Return a data set like ``dataset`` whose every sample is its first, with its own number for a file name.

    It is of a subclass of its type, so that loaders find all that they may ask of it.
    """
    first = dataset[0]

    def read_item(_: Any, index: int) -> tuple[Any, ...]:
        return (*first[:2], str(int(index)))

    kind = type(dataset)
    numbered = copy.copy(dataset)
    # torch asks for __getitems__ first, where a data set has one.
    numbered.__class__ = type(kind.__name__, (kind,), {"__getitem__": read_item, "__getitems__": None})
    return numbered


def _numbers(bench: Bench, loader: Iterable[Any]) -> Iterator[list[int]]:
    for batch in loader:
        if not isinstance(batch, tuple | list) or len(batch) != 3:
            raise _wrong(bench, "loader", "a batch", batch, "(image, label, files)")
        yield [int(name) for name in batch[2]]


def _read_draws(bench: Bench, length: int, draw: Draw) -> dict[str, Array]:
    settings = bench.case.training_data
    images = _spread(length, settings.images)
    drawn: list[dict[str, Array]] = []
    looks: list[dict[str, float]] = []
    for number in range(settings.draws):
        found: Any = draw(images[number % len(images)])
        if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Mapping):
            raise _wrong(bench, "augmentation", "a draw", found, "(image, {name: what was drawn})")
        image, parameters = found
        drawn.append({str(name): _as_numbers(bench, name, value) for name, value in parameters.items()})
        if drawn[-1].keys() != drawn[0].keys():
            raise _wrong(
                bench, "augmentation", f"draw {number}", list(drawn[-1]), f"the names {list(drawn[0])}"
            )
        if callable(image):
            image = image() if number < LAZY_DRAWS else None
        if image is not None:
            looks.append(describe_image(_as_image(bench.framework, image)))
    arrays = {f"draw/{name}": _stack(bench, name, [one[name] for one in drawn]) for name in drawn[0]}
    common = [name for name in looks[0] if all(name in one for one in looks)] if looks else []
    return arrays | {f"pixels/{name}": np.array([one[name] for one in looks]) for name in common}


def _as_numbers(bench: Bench, name: object, value: object) -> Array:
    try:
        found = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise _wrong(
            bench, "augmentation", f"{name!r}", value, "a number or a sequence of numbers"
        ) from error
    return found


def _stack(bench: Bench, name: str, values: list[Array]) -> Array:
    lengths = sorted({value.size for value in values})
    if len(lengths) > 1:
        raise _wrong(bench, "augmentation", f"{name!r}", f"{lengths} numbers", "equally many in every draw")
    return np.stack(values)


def _as_image(framework: Framework, image: Any) -> Array:
    return framework.array(image) if framework.is_tensor(image) else np.asarray(image)


def _wrong(bench: Bench, builder: str, what: str, found: object, expected: str) -> UsageError:
    side = bench.framework.name
    shown = found if isinstance(found, str | list) else type(found).__name__
    return UsageError(f"sides.{side}.{builder}: {what} is wrong\n  found: {shown}\n  expected: {expected}")
