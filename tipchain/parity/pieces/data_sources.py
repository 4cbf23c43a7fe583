"""Samples of a data source, whatever it is: an array, a list, a generator, a data set or a loader of torch or Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tipchain.errors import UsageError
from tipchain.parity.pieces.data_arrays import channel_axis

Array = npt.NDArray[Any]
MOST = 512
"""Samples that are compared at most."""
BUDGET = 64 << 20
"""Bytes of one side's samples that are kept at most."""
LEAST = 8
"""Samples that are kept all the same."""


class Tensors(Protocol):
    """What tells a framework's tensors and makes arrays of them."""

    def is_tensor(self, value: Any) -> bool:
        """Tell whether ``value`` is a tensor."""

    def array(self, tensor: Any) -> Array:
        """Return its values."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """What was read of a source.

    Attributes:
        samples: in order.
        total: samples in the source, None where it does not say.
        whole: whether these are all of them.
        batch: samples of its batches, None of a source of single samples.
    """

    samples: list[Sample]
    total: int | None
    whole: bool
    batch: int | None = None


@dataclass(slots=True)
class Source:
    """One side's data.

    Args:
        given: an iterable of samples or batches, a data set (``__len__`` and ``__getitem__``), a loader, or a callable
            without arguments that returns one of these.
        tensors: the frameworks whose tensors it may hold.
        side: what messages call it.
        batched: whether an iterable gives batches; None: its first element tells.

    Raises:
        UsageError: it is none of these.
    """

    given: Any
    tensors: Sequence[Tensors]
    side: str
    batched: bool | None = None
    opened: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.opened = self._open()

    def _open(self) -> Any:
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
    def dataset(self) -> Any:
        """The data set of a loader, or the source itself; None where there is none."""
        if self.is_dataset:
            return self.opened
        inner = getattr(self.opened, "dataset", None)
        return inner if hasattr(inner, "__getitem__") and hasattr(inner, "__len__") else None

    def length(self) -> int | None:
        """Return the number of samples, or None where the source does not say."""
        if self.is_dataset:
            return len(self.opened) if not _is_batches(self.opened) else None
        size, inner = self.batch_size(), self.dataset
        if size is None or inner is None or not hasattr(self.opened, "__len__"):
            return None
        return min(len(self.opened) * size, len(inner))

    def batch_size(self) -> int | None:
        """Return the size of a loader's batches, None where it does not say or gives single samples."""
        sampler = getattr(self.opened, "batch_sampler", None)
        found = getattr(self.opened, "batch_size", None) or getattr(sampler, "batch_size", None)
        return int(found) if found and hasattr(self.opened, "dataset") else None

    def read(self, most: int | None = None, numbers: Sequence[int] | None = None) -> Samples:
        """Return the first samples, as many as memory allows, or those of the given numbers of a data set.

        Raises:
            UsageError: a sample holds nothing that is an array, a tensor or a number.
            Exception: whatever the source raises.
        """
        samples: list[Sample] = []
        limit, whole, sizes = most or MOST, True, []
        for size, one in self._elements(numbers):
            if len(samples) >= limit:
                whole = False
                break
            samples.append(one)
            sizes.append(size)
            if len(samples) == 1 and most is None:
                bytes_each = sum(array.nbytes for array in one.fields.values())
                limit = min(MOST, max(LEAST, BUDGET // max(bytes_each, 1)))
        batched = max((size for size in sizes if size is not None), default=None)
        total = self.length()
        return Samples(
            samples=samples, total=len(samples) if whole and numbers is None else total, whole=whole and numbers is None,
            batch=self.batch_size() or batched,
        )  # fmt: skip

    def again(self, most: int) -> list[Sample] | None:
        """Return the first samples read once more; None of what can be read once only."""
        if isinstance(self.opened, Iterator):
            if not callable(self.given) or _is_source(self.given):
                return None
            self.opened = self._open()
        return self.read(most).samples

    def _elements(self, numbers: Sequence[int] | None) -> Iterator[tuple[int | None, Sample]]:
        """Yield samples with the size of the batch they came in, None of single ones."""
        if self.is_dataset and not _is_batches(self.opened):
            for number in range(len(self.opened)) if numbers is None else numbers:
                yield None, self._sample(self.opened[number], number)
            return
        loader = hasattr(self.opened, "dataset") and hasattr(self.opened, "batch_sampler")
        batched = self.batch_size() is not None if loader else self.batched
        count = 0
        for element in self.opened if hasattr(self.opened, "__iter__") else _indexed(self.opened):
            whole = self._sample(element, count)
            if batched is None:
                batched = _is_batch(list(whole.fields.values()))
            if not batched:
                yield None, whole
                count += 1
                continue
            size = len(next(iter(whole.fields.values())))
            for row in range(size):
                yield size, _row(whole, row, size, count)
                count += 1

    def _sample(self, element: Any, number: int) -> Sample:
        fields: dict[str, Array] = {}
        names: list[str] = []
        self._take(element, "", fields, names)
        if not fields:
            raise UsageError(
                f"data: sample {number} of the {self.side}'s is a {type(element).__name__} without arrays\n"
                "  expected: an array or tensor, or a tuple or mapping of such"
            )
        return Sample(fields=fields, names=tuple(names), number=number)

    def _take(self, value: Any, name: str, fields: dict[str, Array], names: list[str]) -> None:
        """Collect the arrays of one element."""
        if value is None:
            return
        if isinstance(value, str | bytes):
            names.append(value if isinstance(value, str) else value.decode(errors="replace"))
            return
        if isinstance(value, Mapping):
            for key, one in value.items():
                self._take(one, f"{name}.{key}".lstrip("."), fields, names)
            return
        if isinstance(value, tuple) or (isinstance(value, list) and not _is_numbers(value)):
            for key, one in enumerate(value):
                self._take(one, f"{name}.{key}".lstrip("."), fields, names)
            return
        tensor = next((one for one in self.tensors if one.is_tensor(value)), None)
        array = np.array(value) if tensor is None else tensor.array(value)
        if array.dtype.kind in "US":
            names.extend(map(str, array.reshape(-1)))
        elif array.dtype.kind not in "biufc":
            raise UsageError(
                f"data: {name or 'a sample'} of the {self.side}'s is a {type(value).__name__}\n  expected: an array of numbers"
            )
        else:
            fields[name] = array


def _is_source(value: Any) -> bool:
    if isinstance(value, type):
        return False
    return hasattr(value, "__iter__") or (hasattr(value, "__getitem__") and hasattr(value, "__len__"))


def _is_batches(source: Any) -> bool:
    """Tell whether something indexed is a plain sequence or array, whose elements may be batches."""
    return isinstance(source, list | tuple | np.ndarray)


def _indexed(source: Any) -> Iterable[Any]:
    return (source[number] for number in range(len(source)))


def _is_numbers(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(one, int | float | bool | np.number) for one in value)


def _is_batch(arrays: Sequence[Array]) -> bool:
    """Guess whether what an iterable gives is a batch: by the axes of its first array, and as many labels."""
    first = arrays[0]
    if first.ndim >= 4:
        return True
    same = len(arrays) > 1 and all(one.ndim and one.shape[0] == first.shape[0] for one in arrays[1:])
    if first.ndim == 3:
        return same and channel_axis(first.shape) is None
    return same and first.ndim >= 1


def _row(whole: Sample, row: int, size: int, number: int) -> Sample:
    """Return one sample of a batch."""
    fields = {
        name: array[row] if array.ndim and len(array) == size else array for name, array in whole.fields.items()
    }  # fmt: skip
    each = len(whole.names) // size
    names = whole.names[row::size] if each and len(whole.names) == each * size else ()
    return Sample(fields=fields, names=names, number=number)


def transformed(
    transform: Callable[[Any], Any], raws: Sequence[Any], tensors: Sequence[Tensors], side: str
) -> Source:
    """Return a source of what a transform makes of raw samples; each is handed over as a copy.

    A transform that does not take arrays is given Pillow's images, where they are installed.
    """
    return Source([call_with_raw(transform, raw) for raw in raws], tensors, side, batched=False)


def call_with_raw(transform: Callable[[Any], Any], raw: Any) -> Any:
    """Return what a transform makes of a copy of a raw sample, or of Pillow's image where it takes no array."""
    try:
        return transform(raw.copy() if hasattr(raw, "copy") else raw)
    except Exception:
        image = _as_image(raw)
        if image is None:
            raise
        return transform(image)


def _as_image(raw: Any) -> Any:
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or raw.ndim not in (2, 3):
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    return Image.fromarray(raw)
