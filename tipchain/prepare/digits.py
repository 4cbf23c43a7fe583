"""The shipped images: scikit-learn's handwritten digits, real scans of 8x8 pixels.

Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI repository; ``load_digits``.
"""

from __future__ import annotations

import hashlib
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipchain.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEED = 0
WHOLE_VAL = 360
LITE_PER_CLASS = 2
SPLITS = ("train", "val")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image: its place below the data folder, its label, and its number in ``load_digits``."""

    path: str
    label: int
    number: int


def load_scans() -> tuple[NDArray[np.float64], Sequence[int]]:
    """Return the scans (float64 ``[1797, 8, 8]``, 0 to 16) and their labels.

    Raises:
        DataError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn, which cannot be imported",
            found=error,
            hint='pip install "tipchain[cases]", or let prepare.sh make the environment',
        ) from error
    digits: Any = load_digits()
    return digits.images, [int(label) for label in digits.target]


def choose(kind: str, labels: Sequence[int]) -> tuple[Image, ...]:
    """Return the images of the ``"lite"`` or ``"whole"`` data, training images first.

    The lite images are drawn from the whole data's own splits, so that what a mode trains on is never among
    what it evaluates on, also where it trains on one and evaluates on the other.
    """
    images = []
    for split, numbers in split_whole(labels).items():
        chosen = numbers if kind == "whole" else _first_per_class(numbers, labels)
        images += [
            Image(path=f"{split}/{labels[number]}/{number:04d}.png", label=labels[number], number=number)
            for number in sorted(chosen, key=lambda number: (labels[number], number))
        ]
    return tuple(images)


def split_whole(labels: Sequence[int]) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers of the training and validation scans, stratified, in a seeded order.

    The order is that of a hash, so that it depends on no library's random generator.
    """
    by_class: dict[int, list[int]] = defaultdict(list)
    for number in sorted(range(len(labels)), key=_rank):
        by_class[labels[number]].append(number)
    counts = _shares({label: len(numbers) for label, numbers in by_class.items()}, WHOLE_VAL)
    val = [number for label, numbers in by_class.items() for number in numbers[: counts[label]]]
    train = [number for label, numbers in by_class.items() for number in numbers[counts[label] :]]
    return {"train": tuple(train), "val": tuple(val)}


def encode_png(scan: NDArray[np.float64]) -> bytes:
    """Return one 8x8 scan (0 to 16) as an 8-bit grayscale PNG (0 to 255) of the scan's own size.

    The models' own transforms enlarge it, so nothing is interpolated twice.

    Raises:
        DataError: Pillow is not installed.
    """
    import numpy as np

    try:
        from PIL import Image as Pillow
    except ImportError as error:
        raise DataError("writing images needs Pillow", found=error, hint="pip install pillow") from error
    pixels = np.rint(scan * (255.0 / 16.0)).astype(np.uint8)
    buffer = io.BytesIO()
    Pillow.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def _rank(number: int) -> bytes:
    return hashlib.sha256(f"{SEED}:{number}".encode()).digest()


def _first_per_class(numbers: Sequence[int], labels: Sequence[int]) -> list[int]:
    taken: dict[int, int] = defaultdict(int)
    chosen = []
    for number in numbers:
        if taken[labels[number]] < LITE_PER_CLASS:
            taken[labels[number]] += 1
            chosen.append(number)
    return chosen


def _shares(counts: Mapping[int, int], total: int) -> dict[int, int]:
    """Divide ``total`` in proportion to ``counts`` by the largest remainders."""
    whole = sum(counts.values())
    shares = {label: total * count // whole for label, count in counts.items()}
    rest = sorted(counts, key=lambda label: (-(total * counts[label] % whole), label))
    for label in rest[: total - sum(shares.values())]:
        shares[label] += 1
    return shares
