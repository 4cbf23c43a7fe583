"""Step 9 of the guide, training data: values without augmentation, order, augmentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tipchain.core.json_text import Json, JsonObject
from tipchain.errors import Outcome, UsageError, suggestion
from tipchain.explain.causes.data import some
from tipchain.explain.causes.data_sources import channel_axis
from tipchain.framework_types import Array, Dataset, Nested
from tipchain.numbers.dumps import Record
from tipchain.numbers.two_samples import adjust, compare_distribution, compare_mean, compare_share, compare_spread
from tipchain.numbers.verdicts import Verdict
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, like, split
from tipchain.parity.stages.data import judge_files, read_batches
from tipchain.parity.stages.judging import ALPHA, Dumps, Judged, Rules, details

# A few numbers that tell how an image was augmented, whatever did it.


def describe_image(image: Array) -> dict[str, float]:
    """Return statistics of one image by name.

    ``mean`` and ``std``, ``mean[c]`` for each channel; ``left_minus_right`` and ``top_minus_bottom``, the difference
    of the halves' means, whose sign a flip changes; ``roughness``, the mean absolute difference of neighbours in a
    row, which shrinks as an image is magnified. Not every array has all of them.

    Args:
        image: channels first (``[c, h, w]``, ``[..., c, h, w]``) or last, or any other array of numbers.
    """
    values = np.asarray(image, dtype=np.float32)
    found = {"mean": float(values.mean()), "std": float(values.std())}
    channels = channel_axis(values.shape)
    if channels is not None:
        others = tuple(axis for axis in range(values.ndim) if axis != channels % values.ndim)
        if values.shape[channels] > 1:
            found |= {f"mean[{number}]": float(one) for number, one in enumerate(values.mean(axis=others))}
        high, wide = (-2, -1) if channels == -3 else (-3, -2)
        found["left_minus_right"] = _halves(values, wide)
        found["top_minus_bottom"] = _halves(values, high)
        found["roughness"] = float(np.abs(np.diff(values, axis=wide)).mean()) if values.shape[wide] > 1 else 0.0
    return found


def _halves(values: npt.NDArray[np.float32], axis: int) -> float:
    first, second = np.array_split(values, 2, axis=axis)
    return float(first.mean() - second.mean()) if second.size else 0.0


LAZY_DRAWS = 400
"""Where an augmentation makes its images only when asked, this many are looked at."""
Draw = Callable[[int], tuple[Nested, JsonObject]]


def record(bench: Bench) -> Recording:
    """Record the contents of the training split, and the work of loaders and augmentation on it.

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
        first = dataset[0][:2]
        numbered = like(dataset, lambda index: (*first, str(int(index))))  # its own number for a file name
        framework.seed(seed)
        for epoch in range(bench.case.training_data.epochs):
            batches = list(_numbers(bench, loader(numbered, _batch_size(bench), seed, epoch)))
            arrays[f"order_{epoch}"] = np.array([number for batch in batches for number in batch], dtype=np.int64)
            arrays[f"sizes_{epoch}"] = np.array([len(batch) for batch in batches], dtype=np.int64)
        framework.seed(seed)
        again = [number for batch in _numbers(bench, loader(numbered, _batch_size(bench), seed, 0)) for number in batch]
        arrays["repeat"] = np.array(again, dtype=np.int64)
    framework.seed(seed)
    if augmentation is not None:
        arrays |= _read_draws(bench, len(dataset), augmentation(bench.train_data, seed))
    elif details["random"]:
        arrays |= _read_draws(bench, len(dataset), lambda number: (dataset[number][0], {}))
    framework.seed(seed)
    settings = bench.case.training_data
    details |= {
        "loader": loader is not None,
        "augmentation": augmentation is not None,
        "alpha": settings.alpha,
        "batch_size": _batch_size(bench),
        "images": len(_spread(len(dataset), settings.images)),
    }
    return Recording(arrays=arrays, details=details)


def _batch_size(bench: Bench) -> int:
    return bench.case.training_data.batch_size or bench.case.train.batch_size


def _spread(length: int, wanted: int) -> list[int]:
    return sorted({number * length // min(wanted, length) for number in range(min(wanted, length))})


def _read_samples(bench: Bench, dataset: Dataset) -> tuple[dict[str, Array], dict[str, Json]]:
    settings, wanted = bench.case.training_data, _spread(len(dataset), bench.case.training_data.samples)
    batches = split(wanted, _batch_size(bench))
    arrays: dict[str, Array] = {"length": np.array([len(dataset)], dtype=np.int64)}
    files: list[str] = []
    # A data set that takes other samples in every epoch, or other parts of them, hears of the epoch.
    set_epoch = getattr(dataset, "set_epoch", None)
    for epoch in range(settings.epochs if set_epoch is not None else 1):
        if set_epoch is not None:
            set_epoch(epoch)
        found, names = read_batches(bench, dataset, batches, f"epoch_{epoch}/" if epoch else "")
        arrays |= found
        files += names
    if set_epoch is not None:
        set_epoch(0)
    again = (bench.framework.array(image) for image, _, _ in bench.framework.batches(dataset, batches))
    random = any(one.tobytes() != arrays[f"dataloader_{number}"].tobytes() for number, one in enumerate(again))
    if random:
        arrays = {key: array for key, array in arrays.items() if "dataloader_" not in key}
    return arrays, {"files": files, "compared": len(wanted), "length": len(dataset), "random": random}


def _numbers(bench: Bench, loader: Iterable[Nested]) -> Iterator[list[int]]:
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
        found: Nested = draw(images[number % len(images)])
        if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Mapping):
            raise _wrong(bench, "augmentation", "a draw", found, "(image, {name: what was drawn})")
        image, parameters = found
        drawn.append({})
        for name, value in parameters.items():
            try:
                drawn[-1][str(name)] = np.asarray(value, dtype=np.float64).reshape(-1)
            except (TypeError, ValueError) as error:  # noqa: PERF203  (it ends the loop)
                raise _wrong(bench, "augmentation", f"{name!r}", value, "a number or a sequence of numbers") from error
        if drawn[-1].keys() != drawn[0].keys():
            raise _wrong(bench, "augmentation", f"draw {number}", list(drawn[-1]), f"the names {list(drawn[0])}")
        if callable(image):
            image = image() if number < LAZY_DRAWS else None
        if image is not None:
            looks.append(
                describe_image(bench.framework.array(image) if bench.framework.is_tensor(image) else np.asarray(image))
            )
    arrays = {}
    for name in drawn[0]:
        values = [parameters[name] for parameters in drawn]
        lengths = sorted({value.size for value in values})
        if len(lengths) > 1:
            raise _wrong(bench, "augmentation", f"{name!r}", f"{lengths} numbers", "equally many in every draw")
        arrays[f"draw/{name}"] = np.stack(values)
    common = [name for name in looks[0] if all(name in one for one in looks)] if looks else []
    return arrays | {f"pixels/{name}": np.array([one[name] for one in looks]) for name in common}


def _wrong(bench: Bench, builder: str, what: str, found: object, expected: str) -> UsageError:
    side = bench.framework.name
    shown = found if isinstance(found, str | list) else type(found).__name__
    return UsageError(f"sides.{side}.{builder}: {what} is wrong\n  found: {shown}\n  expected: {expected}")


# Judge the order in which loaders give samples. Generators differ, so properties are compared, not numbers.


IN_ORDER, ANEW, ONCE = ("in order", "shuffled anew in every epoch", "in one and the same shuffled order in every epoch")
CHANCE = 1e-3
"""Two shuffled epochs of so few samples that they agree more often than this tell nothing."""


class _Orders:
    """One side's epochs.

    Attributes:
        epochs: sample numbers of each.
        sizes: batch sizes of each.
        repeat: epoch 0 again after the same seed.
        length: samples in the data set.
    """

    def __init__(self, record: Record) -> None:
        count = sum(f"order_{key[6:]}" in record.arrays for key in record.arrays if key.startswith("sizes_"))
        self.epochs = [np.asarray(record.arrays[f"order_{epoch}"]) for epoch in range(count)]
        self.sizes = [np.asarray(record.arrays[f"sizes_{epoch}"]) for epoch in range(count)]
        self.repeat = np.asarray(record.arrays.get("repeat", np.array([], dtype=np.int64)))
        self.length = int(np.asarray(record.arrays["length"])[0])

    @property
    def manner(self) -> str:
        """How the order comes about."""
        if all(np.array_equal(epoch, np.sort(epoch)) for epoch in self.epochs):
            return IN_ORDER
        return ONCE if len({tuple(epoch.tolist()) for epoch in self.epochs}) < len(self.epochs) else ANEW

    def repeats(self) -> Iterator[str]:
        """Yield which samples each epoch has twice, and which it misses then."""
        for number, epoch in enumerate(self.epochs):
            counts = np.bincount(epoch, minlength=self.length)
            twice, missing = np.flatnonzero(counts > 1), np.flatnonzero(counts == 0)
            if twice.size:
                yield f"epoch {number} has {some(twice.tolist())} more than once and lacks {some(missing.tolist()) if missing.size else 'none'}"


def _judge_batches(expected: _Orders, actual: _Orders) -> tuple[Outcome, str]:
    named = ("reference", expected), ("port", actual)
    sides = [name for name, side in named if not all(sizes.size for sizes in side.sizes)]
    if sides:
        return Outcome.FAIL, f"the loader of the {' and the '.join(sides)} gave no batch"
    for number, (left, right) in enumerate(zip(expected.sizes, actual.sizes, strict=False)):
        if not np.array_equal(left, right):
            reason = f"epoch {number}: expected {_batches(left)}, actual {_batches(right)}"
            rest = expected.length % int(left.max())
            for shorter, longer, words in (
                (left, right, "the port keeps a smaller last batch that the reference leaves out"),
                (right, left, "the port leaves out a smaller last batch that the reference keeps"),
            ):
                if rest and int(longer[-1]) == rest and np.array_equal(shorter, longer[:-1]):
                    reason += f": {words} (drop_last)"
            return Outcome.FAIL, reason
    return Outcome.PASS, f"{_batches(expected.sizes[0])}, in {len(expected.sizes)} epochs"


def _batches(sizes: Array) -> str:
    return f"{sizes.size} batches of {int(sizes.max())}, the last of {int(sizes[-1])}"


def _judge_permutation(expected: _Orders, actual: _Orders) -> tuple[Outcome, str]:
    drawn, wrong = list(expected.repeats()), list(actual.repeats())
    if drawn and wrong:
        left, right = (np.concatenate(side.epochs).astype(np.float64) for side in (expected, actual))
        p = compare_distribution(left, right)[1]
        if p <= CHANCE:
            return Outcome.FAIL, f"both sides draw samples with replacement, but not equally often: p {p:.1g}"
        return Outcome.PASS, "both sides draw samples with replacement, equally often as far as can be seen"
    if wrong:
        return Outcome.FAIL, f"expected every sample at most once in an epoch, actual: {'; '.join(wrong)}"
    if drawn:
        return Outcome.FAIL, f"expected samples drawn with replacement ({drawn[0]}), actual each at most once"
    seen = [sorted({len(epoch) for epoch in one.epochs}) for one in (expected, actual)]
    if seen[0] != seen[1]:
        shown = [" or ".join(map(str, one)) for one in seen]
        return (Outcome.FAIL, f"samples in an epoch: expected {shown[0]} of {expected.length}, actual {shown[1]}")
    return Outcome.PASS, f"each epoch has {seen[0][0]} of {expected.length} samples, none twice"


def _judge_manner(expected: _Orders, actual: _Orders) -> tuple[Outcome, str]:
    manners = expected.manner, actual.manner
    few = math.lgamma(min(map(len, expected.epochs)) + 1) < -math.log(CHANCE)
    if few and manners != (IN_ORDER, IN_ORDER):
        reason = f"{len(expected.epochs[0])} samples are too few to tell whether they are shuffled; 7 would do"
        return Outcome.SKIP, reason
    if manners[0] != manners[1]:
        return Outcome.FAIL, f"expected {manners[0]}, actual {manners[1]}"
    if manners[0] == IN_ORDER:
        for number, (left, right) in enumerate(zip(expected.epochs, actual.epochs, strict=False)):
            if not np.array_equal(left, right):
                size = min(left.size, right.size)
                first = int(np.argmax(np.append(left[:size] != right[:size], [True])))
                shown = [str(one[first]) if first < one.size else "nothing" for one in (left, right)]
                return (Outcome.FAIL, f"epoch {number}, place {first}: expected sample {shown[0]}, actual {shown[1]}")
    return Outcome.PASS, f"both sides give samples {manners[0]}"


# Judge training data: samples by value, orders by their properties, augmentation by distributions.


VALUES = ("length", "dataloader_", "label_", "epoch_")
ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Share of a value by which float32 may have rounded it."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare samples, files, the loaders' orders and the augmentation's draws."""
    named = []
    for name in ("loader", "augmentation"):
        left, right = (_has(record, name) for record in (dumps.reference, dumps.port))
        if left != right:
            side = "reference" if left else "port"
            reason = f"only the {side} names a builder `{name}`: nothing to compare"
            named.append(Verdict(Outcome.ERROR, name, reason))
    random, words = judging.readings(dumps)
    if random[0] != random[1]:
        reason = f"of one and the same sample: expected {words[0]}, actual {words[1]}"
        named.append(Verdict(Outcome.FAIL, "values", reason))
    # Where data sets are random there is nothing to compare but the rest.
    samples = dumps.with_keys(lambda key: key.startswith(VALUES) and not (any(random) and "dataloader_" in key))
    verdicts = [*judge_files(dumps), *named]
    if all("order_0" in record.arrays for record in (dumps.reference, dumps.port)):
        sides = _Orders(dumps.reference), _Orders(dumps.port)
        again = ["the same order" if np.array_equal(one.epochs[0], one.repeat) else "another order" for one in sides]
        repeat = Outcome.PASS, f"epoch 0 again after the same seed: {again[0]} on both sides"
        if again[0] != again[1]:
            repeat = Outcome.FAIL, f"epoch 0 again after the same seed: expected {again[0]}, actual {again[1]}"
        orders = {
            "batches": _judge_batches(*sides),
            "permutation": _judge_permutation(*sides),
            "shuffle": _judge_manner(*sides),
            "repeat": repeat,
        }
        verdicts += [Verdict(outcome, name, reason) for name, (outcome, reason) in orders.items()]
    return judging.judge_arrays(samples, rules) + Judged(
        verdicts=[*verdicts, *_judge_draws(dumps)], notes=_notes(dumps)
    )


def _has(record: Record, builder: str) -> bool:
    """Tell whether a side named the builder ``"loader"`` or ``"augmentation"``; without a JSON its arrays tell."""
    keys = {"loader": "order_", "augmentation": "draw/"}
    return bool(details(record).get(builder, any(key.startswith(keys[builder]) for key in record.arrays)))


def _compare(left: Array, right: Array) -> tuple[list[float], str]:
    """Return the p-values of a random number that both sides drew many times, and in words what they drew."""
    values = np.unique(np.concatenate([left, right]))
    draws = f"{left.size} draws" if left.size == right.size else f"{left.size} and {right.size} draws"
    if values.size == 1:
        return [], f"always {values[0]:.6g}, {draws}"
    if values.size == 2:
        hits = [int((one == values[1]).sum()) for one in (left, right)]
        share, port_share = hits[0] / left.size, hits[1] / right.size
        p = compare_share(hits[0], left.size, hits[1], right.size)
        return [p], (
            f"{values[1]:.6g} in {share:.1%} of the draws expected, {port_share:.1%} found, else {values[0]:.6g} · {draws}"
        )
    parts = [
        f"mean {left.mean():.4g} expected, {right.mean():.4g} found",
        f"std {left.std():.4g} expected, {right.std():.4g} found",
        f"from {left.min():.4g} to {left.max():.4g} expected, {right.min():.4g} to {right.max():.4g} found",
    ]
    tests = [compare_mean(left, right), compare_spread(left, right), compare_distribution(left, right)[1]]
    return tests, f"{'; '.join(parts)} · {draws}"


def _judge_draws(dumps: Dumps) -> list[Verdict]:
    """Judge every random quantity; Holm's correction counts all tests of them."""
    alpha = float(details(dumps.reference).get("alpha", ALPHA))
    left, right = _drawn(dumps.reference), _drawn(dumps.port)
    compared, verdicts = dict[str, tuple[list[float], str]](), []
    for name in {**left, **right}:
        reason, outcome, finite = "", Outcome.FAIL, True
        if name not in right:
            reason = "drawn by the reference alone"
        elif name not in left:
            reason = f"drawn by the port alone{suggestion(name, [other for other in left if other not in right])}"
        elif not left[name].size or not right[name].size:
            reason, outcome = "nothing was compared: no draws", Outcome.ERROR
        elif not (np.isfinite(left[name]).all() and np.isfinite(right[name]).all()):
            reason, finite = "NaN or Inf among the draws", False
        if reason:
            verdicts.append(Verdict(outcome, name, reason, finite=finite))
            continue
        # A constant that one side holds as float32 and the other as a Python number is the same constant.
        both = np.concatenate([left[name], right[name]]).astype(np.float64)
        values, places = np.unique(both, return_inverse=True)
        begins = np.append([True], np.diff(values) > ROUNDING * np.abs(values[1:]))
        merged = values[begins][np.cumsum(begins)[places] - 1]
        pair = merged[: left[name].size], merged[left[name].size :]
        if name.startswith("pixels/"):
            pair = _without_images(*pair, int(details(dumps.reference).get("images", 1)))
        compared[name] = _compare(*pair)
    adjusted = iter(adjust([p for tests, _ in compared.values() for p in tests]))
    for name, (tests, words) in compared.items():
        p = min((next(adjusted) for _ in tests), default=1.0)
        if p <= alpha:
            reason = f"other distributions: {words} · p {max(p, 1e-300):.1g} after correction"
            verdicts.append(Verdict(Outcome.FAIL, name, reason))
        else:
            verdicts.append(Verdict(Outcome.PASS, name, words))
    return verdicts


def _drawn(record: Record) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for key, array in record.arrays.items():
        kind, _, name = key.partition("/")
        values = np.asarray(array)
        if kind == "pixels":
            found[key] = values
        elif kind == "draw" and values.shape[1] == 1:
            found[name] = values[:, 0]
        elif kind == "draw":
            found |= {f"{name}[{column}]": values[:, column] for column in range(values.shape[1])}
    return found


def _without_images(expected: Array, actual: Array, images: int) -> tuple[Array, Array]:
    """Return the statistics with the mean of each image, over both sides, put on one level.

    Images differ more from each other than from their own augmented kin.
    """
    level = float(np.concatenate([expected, actual]).mean())
    results = expected.astype(np.float64), actual.astype(np.float64)
    for number in range(images):
        of_image = [one[number::images] for one in results]
        if sum(one.size for one in of_image):
            mean = float(np.concatenate(of_image).mean())
            for view in of_image:
                np.add(view, level - mean, out=view)
    return results


def _notes(dumps: Dumps) -> list[str]:
    facts: JsonObject = details(dumps.reference)
    notes = []
    if facts.get("compared") != facts.get("length"):
        notes.append(f"{facts.get('compared')} of {facts.get('length')} samples were compared by value")
    if facts.get("random"):
        notes.append(
            "the data sets give other values at every read, so that values were compared as distributions only"
        )
    if not _has(dumps.reference, "loader"):
        notes.append("the sides name no `loader`: order, reshuffling and drop_last were not compared")
    if not _has(dumps.reference, "augmentation"):
        notes.append(
            "the sides name no `augmentation`: "
            + ("random draws show only in the pixels" if facts.get("random") else "nothing random was compared")
        )
    return notes
