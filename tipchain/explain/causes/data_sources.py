"""Samples of a data source, and whether two samples are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import islice

import numpy as np

from tipchain.errors import UsageError
from tipchain.explain.causes.code import LARGEST, Leaves, differs, leaves
from tipchain.explain.causes.statements import CodeRun, Edit
from tipchain.framework_types import Array, Dataset, Loader
from tipchain.frameworks.live_models import LiveSide

DATA = "data"
MOST = 512
"""Samples that are compared at most."""
BUDGET = 64 << 20
"""Bytes of one side's samples that are kept at most."""
LEAST = 8
"""Samples that are kept all the same."""
AGAIN = 8
"""Samples that are read once more, to see whether they are random."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One sample.

    Attributes:
        fields: its arrays by name: a key of a mapping, or the place in a tuple.
        names: its strings: names of files.
        number: its place in the source.
    """

    fields: Mapping[str, Array]
    names: tuple[str, ...] = ()
    number: int = 0


@dataclass(slots=True)
class DataSource:
    """One side's data.

    Args:
        given: an iterable of samples or batches, a data set (``__len__`` and ``__getitem__``), a loader, or a callable
            without arguments that returns one of these.
        tensors: the frameworks whose tensors it may hold.
        side: what messages call it.
        seed: of random numbers.

    Attributes:
        samples: those that were read, in order.
        total: samples in it, None where it does not say.
        whole: whether all were read.
        batch: samples of its batches, None of single samples.
    """

    given: Loader
    tensors: Sequence[LiveSide]
    side: str
    seed: int = 0
    opened: Loader = field(init=False, default=None)
    samples: list[Sample] = field(init=False, default_factory=list)
    total: int | None = field(init=False, default=None)
    whole: bool = field(init=False, default=True)
    batch: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.opened = self._open()

    def _open(self) -> Loader:
        found = self.given
        if callable(found) and not _is_source(found):
            found = found()
        if not _is_source(found):
            raise UsageError(
                f"data: the {self.side}'s is a {type(found).__name__}\n"
                "  expected: an iterable of samples or batches, a data set, a loader, or a callable that returns one"
            )
        return found

    @property
    def is_dataset(self) -> bool:
        """Whether samples are read by their numbers."""
        indexed = hasattr(self.opened, "__getitem__") and hasattr(self.opened, "__len__")
        return indexed and not isinstance(self.opened, Mapping | str | bytes)

    @property
    def dataset(self) -> Dataset | None:
        """The data set of a loader, or the source itself; None where there is none."""
        if self.is_dataset:
            found: Dataset = self.opened
            return found
        inner = getattr(self.opened, "dataset", None)
        return inner if hasattr(inner, "__getitem__") and hasattr(inner, "__len__") else None

    def batch_size(self) -> int | None:
        """Return the size of a loader's batches, None where it does not say or gives single samples."""
        sampler = getattr(self.opened, "batch_sampler", None)
        found = getattr(self.opened, "batch_size", None) or getattr(sampler, "batch_size", None)
        return int(found) if found and hasattr(self.opened, "dataset") else None

    def read(self, most: int | None = None, numbers: Sequence[int] | None = None) -> None:
        """Read the first samples, as many as memory allows, or those of the given numbers of a data set.

        Raises:
            UsageError: a sample holds nothing that is an array, a tensor or a number.
            Exception: whatever the source raises.
        """
        self.samples, self.whole, self.batch = [], numbers is None, self.batch_size()
        limit = most or MOST
        for size, one in self._elements(numbers):
            if len(self.samples) >= limit:
                self.whole = False
                break
            self.samples.append(one)
            if len(self.samples) == 1 and most is None:
                bytes_each = sum(array.nbytes for array in one.fields.values())
                limit = min(MOST, max(LEAST, BUDGET // max(bytes_each, 1)))
            if size is not None and self.batch_size() is None:
                self.batch = max(size, self.batch or 0)
        size, inner = self.batch_size(), self.dataset
        self.total = len(self.samples) if self.whole else None
        if not self.whole and self.is_dataset:
            self.total = None if isinstance(self.opened, PLAIN) else len(self.opened)
        elif not self.whole and size is not None and inner is not None and hasattr(self.opened, "__len__"):
            self.total = min(len(self.opened) * size, len(inner))

    def set_seed(self, more: int = 0) -> None:
        """Start all random numbers from the seed, or one ``more`` than it."""
        for one in self.tensors:
            one.seed(self.seed + more)

    def is_random(self) -> bool:
        """Tell whether it gives something else when it is read once more, after another seed."""
        self.set_seed(1)
        if isinstance(self.opened, Iterator):
            if not callable(self.given) or _is_source(self.given):
                return False  # it can be read once only
            self.opened = self._open()
        again = (one for _, one in islice(self._elements(None), AGAIN))
        return any(not same_sample(*both) for both in zip(self.samples, again, strict=False))

    def trace(self, at: int, edit: Edit | None = None) -> tuple[CodeRun, Leaves] | None:
        """Make a sample once more and record the code that makes it, or edit that; None where that cannot be.

        A loader whose data set gives something else is read itself.
        """
        self.set_seed()
        wanted = self.samples[at]
        for inner in (self.dataset, None):
            if isinstance(inner, PLAIN) or (inner is None and isinstance(self.given, (Iterator, *PLAIN))):
                continue
            program = CodeRun(self.tensors, edit)
            sample = program.run(partial(self._once_more, wanted.number, inner, program))
            if sample is not None and (edit is not None or same_sample(sample, wanted)):
                return program, sample.fields
        return None

    def shown(self, at: int) -> str:
        """Return the name of a sample in messages."""
        sample = self.samples[at]
        return f"{sample.number}{f' ({sample.names[0]})' if sample.names else ''}"

    def _once_more(self, number: int, dataset: Dataset | None, program: CodeRun) -> Sample | None:
        if dataset is not None:
            return self._sample(dataset[number], number)
        again = DataSource(self.given, self.tensors, self.side, self.seed)
        opened = len(program.steps)
        for _, sample in again._elements(None):
            if sample.number == number:
                return sample
            del program.steps[opened:]  # what led to other samples
        return None

    def _elements(self, numbers: Sequence[int] | None) -> Iterator[tuple[int | None, Sample]]:
        """Yield samples with the size of the batch they came in, None of single ones."""
        if self.is_dataset and not isinstance(self.opened, PLAIN):
            for number in range(len(self.opened)) if numbers is None else numbers:
                yield None, self._sample(self.opened[number], number)
            return
        loader = hasattr(self.opened, "dataset") and hasattr(self.opened, "batch_sampler")
        batched = self.batch_size() is not None if loader else None  # its first element tells
        count = 0
        plain = hasattr(self.opened, "__iter__")
        for element in self.opened if plain else map(self.opened.__getitem__, range(len(self.opened))):
            whole = self._sample(element, count)
            if batched is None:
                batched = _is_batch(list(whole.fields.values()))
            if not batched:
                yield None, whole
                count += 1
                continue
            size = len(next(iter(whole.fields.values())))
            for row in range(size):
                # One sample of a batch.
                fields = {
                    name: np.asarray(array[row]) if array.ndim and len(array) == size else array
                    for name, array in whole.fields.items()
                }
                each = len(whole.names) // size
                names = whole.names[row::size] if each and len(whole.names) == each * size else ()
                yield size, Sample(fields=fields, names=names, number=count)
                count += 1

    def _sample(self, element: object, number: int) -> Sample:
        fields: dict[str, Array] = {}
        names: list[str] = []
        for name, one in leaves(element, self.tensors, rows=(list,)):
            if isinstance(one, str):
                names.append(one)
            elif one.dtype.kind in "US":
                names.extend(map(str, one.reshape(-1)))
            elif one.dtype.kind in "biufc":
                fields[name] = one
            else:
                raise UsageError(
                    f"data: {name or 'a sample'} of the {self.side}'s is a {type(one[()]).__name__}\n  expected: an array of numbers"
                )
        if not fields:
            raise UsageError(
                f"data: sample {number} of the {self.side}'s is a {type(element).__name__} without arrays\n"
                "  expected: an array or tensor, or a tuple or mapping of such"
            )
        return Sample(fields=fields, names=tuple(names), number=number)


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return -3 or -1, the axis that has 1, 3 or 4 channels; None where there is none."""
    return next((axis for axis in (-3, -1) if len(shape) >= 3 and shape[axis] in (1, 3, 4)), None)


def _is_source(value: object) -> bool:
    if isinstance(value, type):
        return False
    return hasattr(value, "__iter__") or (hasattr(value, "__getitem__") and hasattr(value, "__len__"))


PLAIN = (list, tuple, np.ndarray)
"""Types that are indexed, and whose elements may be batches."""


def _is_batch(arrays: Sequence[Array]) -> bool:
    """Guess whether an iterable's arrays are a batch: by its first one's axes and labels."""
    first = arrays[0]
    if first.ndim >= 4:
        return True
    same = len(arrays) > 1 and all(one.ndim and one.shape[0] == first.shape[0] for one in arrays[1:])
    if first.ndim == 3:
        return same and channel_axis(first.shape) is None
    return same and first.ndim >= 1


@dataclass(frozen=True, slots=True)
class Transformed:
    """A data set of transformed raw samples; each is handed over as a copy."""

    transform: Callable[[object], object]
    raws: Sequence[object]

    def __len__(self) -> int:
        return len(self.raws)

    def __getitem__(self, number: int) -> object:
        return call_with_raw(self.transform, self.raws[number])


def call_with_raw(transform: Callable[[object], object], raw: object) -> object:
    """Return a transform's result of a copied raw sample, or of Pillow's image where needed."""
    try:
        return transform(raw.copy() if hasattr(raw, "copy") else raw)
    except Exception:
        if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or raw.ndim not in (2, 3) or not find_spec("PIL"):
            raise
    from PIL import Image

    return transform(Image.fromarray(raw))


# Whether two samples are the same, and which sample of one side is which of the other.


def same_fields(ours: Sample, theirs: Sample, names: Mapping[str, str]) -> bool:
    """Tell whether two samples are the same; ``names`` are the second's fields by the first's."""
    return not any(differs(ours.fields.get(name), theirs.fields.get(other)) for name, other in names.items())


def same_sample(ours: Sample, theirs: Sample) -> bool:
    """Tell whether two samples of one source are the same."""
    return set(ours.fields) == set(theirs.fields) and same_fields(ours, theirs, {name: name for name in ours.fields})


def places_of(ours: Sequence[Sample], theirs: Sequence[Sample], fields: Mapping[str, str]) -> list[int | None]:
    """Return of each of the port's samples which of the reference's it is, None of one that it has not.

    Where samples repeat, the one in the same place is taken, else the first not yet taken.
    """
    keys = np.array([_key(one, fields) for one in ours])
    taken: set[int] = set()
    found: list[int | None] = []
    for number, sample in enumerate(theirs):
        key = _key(sample, {other: other for other in fields.values()})
        near = np.flatnonzero((np.abs(keys - key) <= LARGEST * (1 + np.abs(key))).all(axis=1))
        order = sorted(map(int, near), key=lambda one: (one != number, one in taken, one))
        place = next((one for one in order if same_fields(ours[one], sample, fields)), None)
        if place is not None:
            taken.add(place)
        found.append(place)
    return found


def _key(sample: Sample, fields: Mapping[str, str]) -> list[float]:
    """Return a few numbers that equal samples have in common."""
    key: list[float] = []
    for name in fields:
        values = sample.fields.get(name, np.zeros(1)).reshape(-1)
        values = values.real.astype(np.float64) if values.size else np.zeros(1)
        values = np.nan_to_num(values, nan=0.5, posinf=1.5, neginf=-1.5)
        key += [float(values.mean()), float(values.std())]
    return key
