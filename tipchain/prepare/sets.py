"""The data sets that are made here: scanned digits, and videos of moving ones."""

from __future__ import annotations

import hashlib
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tipchain.errors import DataError, UsageError
from tipchain.json_text import JsonObject
from tipchain.modes import DATA_SETS, DIGITS, MINI_UCF

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image as PillowImage


# The shipped images: scikit-learn's handwritten digits, real scans of 8x8 pixels.
#
# Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI repository; ``load_digits``.


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


def choose_images(kind: str, labels: Sequence[int]) -> tuple[Image, ...]:
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


# Videos whose class is a motion: scanned digits that move over a still background, in UCF-101's raw-frames layout.
#
# Of every class there is one video that starts from the same picture (the same scan, colour, background, place, speed and
# length), so nothing but the motion tells the classes apart. A digit that leaves the picture comes in again on the other
# side, and motions start anywhere: in any one frame, the digit is as likely in one place as in another, whatever the
# class. As in UCF-101, the videos of a group (``g01``) come from one scan, and a split never divides a group: groups 1 to 7
# are for validation, the others for training.


SIDE = 64
"""Pixels of a frame's side."""
DIGIT = 24
"""Pixels of a digit's side."""
GROUPS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "lite": {"val": (1, 2, 3), "train": (8, 9)},
    "whole": {"val": range(1, 8), "train": range(8, 26)},
}
CLIPS: Mapping[str, Mapping[str, int]] = {"lite": {"val": 1, "train": 2}, "whole": {"val": 4, "train": 4}}
"""Videos of each class and group."""
QUALITY = 90
"""Pillow's JPEG quality."""

Place = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoStart:
    """What the videos of one group and clip number have in common, whatever moves.

    Attributes:
        scan: number of the digit in ``load_digits``.
        frames: how many there are.
        place: x and y of the digit's left upper corner in the first frame, pixels.
        turns: share of the way once across the picture, or once around, that the video shows.
        radius: of the way around, pixels.
        angle: where on the way around the digit starts, radians.
        colour: of the digit, RGB in 0..255.
    """

    scan: int
    frames: int
    place: Place
    turns: float
    radius: float
    angle: float
    colour: tuple[int, ...]


def _straight(right: int, down: int) -> Callable[[VideoStart, float], Place]:
    def offset(start: VideoStart, part: float) -> Place:
        return right * part * start.turns * SIDE, down * part * start.turns * SIDE

    return offset


def _around(sense: int) -> Callable[[VideoStart, float], Place]:
    def offset(start: VideoStart, part: float) -> Place:
        angle = start.angle + sense * 2 * math.pi * part * start.turns
        return (
            start.radius * (math.cos(angle) - math.cos(start.angle)),
            start.radius * (math.sin(angle) - math.sin(start.angle)),
        )

    return offset


MOTIONS: Mapping[str, Callable[[VideoStart, float], Place]] = {
    "Clockwise": _around(1),  # y points downwards
    "CounterClockwise": _around(-1),
    "Down": _straight(0, 1),
    "Left": _straight(-1, 0),
    "Right": _straight(1, 0),
    "Up": _straight(0, -1),
}
"""Offset of the digit, in pixels, after a part (0 to 1) of the video; the order gives the labels."""


def start_of(group: int, clip: int, scans: int) -> VideoStart:
    """Return how the videos ``g<group>_c<clip>`` start, drawn from a hash: it depends on no library's generator.

    Args:
        group: from 1; every group has a scan of its own.
        clip: from 1.
        scans: number of scans there are.
    """
    draw = _draws(f"{group}:{clip}")
    return VideoStart(
        scan=_order(scans)[group - 1],
        frames=16 + int(9 * next(draw)),
        place=(SIDE * next(draw), SIDE * next(draw)),
        turns=0.8 + 0.4 * next(draw),
        radius=12 + 8 * next(draw),
        angle=2 * math.pi * next(draw),
        colour=tuple(160 + int(96 * next(draw)) for _ in range(3)),
    )


@lru_cache(maxsize=1)
def _order(scans: int) -> tuple[int, ...]:
    return tuple(sorted(range(scans), key=lambda number: hashlib.sha256(f"{SEED}:scan:{number}".encode()).digest()))


def _draws(name: str) -> Iterator[float]:
    """Yield numbers in [0, 1)."""
    data = hashlib.shake_256(f"{SEED}:{name}".encode()).digest(4 * 16)
    for at in range(0, len(data), 4):
        yield int.from_bytes(data[at : at + 4], "big") / 2**32


def background(group: int, clip: int) -> NDArray[np.uint8]:
    """Return the still background of the videos ``g<group>_c<clip>``: dark clouds, ``[SIDE, SIDE, 3]``."""
    import numpy as np

    data = hashlib.shake_256(f"{SEED}:{group}:{clip}:background".encode()).digest(8 * 8 * 3)
    clouds = _pillow().fromarray(np.frombuffer(data, np.uint8).reshape(8, 8, 3))
    return np.asarray(clouds.resize((SIDE, SIDE), _pillow().Resampling.BICUBIC)) // 3


def draw_frame(picture: NDArray[np.uint8], digit: NDArray[np.float32], start: VideoStart, place: Place) -> PillowImage:
    """Return ``picture`` with the digit at ``place``, as a Pillow image.

    Args:
        picture: the background, ``[SIDE, SIDE, 3]``.
        digit: how much it covers, 0 to 1, ``[DIGIT, DIGIT]``.
        start: gives the colour.
        place: x and y of its left upper corner, pixels, taken modulo `SIDE`.
    """
    import numpy as np

    cover = np.zeros((SIDE, SIDE, 1), np.float32)
    cover[:DIGIT, :DIGIT, 0] = digit
    cover = np.roll(cover, (round(place[1]), round(place[0])), axis=(0, 1))
    pixels = picture * (1 - cover) + np.array(start.colour, np.float32) * cover
    drawn: PillowImage = _pillow().fromarray(np.rint(pixels).astype(np.uint8))
    return drawn


def render(motion: str, group: int, clip: int, scans: NDArray[np.float64]) -> Iterator[PillowImage]:
    """Yield the frames of a video as Pillow images of `SIDE` x `SIDE` pixels.

    Args:
        motion: a name in `MOTIONS`.
        group: from 1.
        clip: from 1.
        scans: the digits, ``[n, 8, 8]``, 0 to 16.
    """
    import numpy as np

    start = start_of(group, clip, len(scans))
    small = _pillow().fromarray(np.rint(scans[start.scan] * (255 / 16)).astype(np.uint8))
    large = small.resize((DIGIT, DIGIT), _pillow().Resampling.BICUBIC)
    digit = np.asarray(large, dtype=np.float32) / np.float32(255)
    picture = background(group, clip)
    for number in range(start.frames):
        right, down = MOTIONS[motion](start, number / start.frames)
        yield draw_frame(picture, digit, start, (start.place[0] + right, start.place[1] + down))


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("writing images needs Pillow", found=error, hint="pip install pillow") from error
    return Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One video of the data: ``rawframes/<name>``."""

    split: str
    motion: str
    group: int
    clip: int

    @property
    def name(self) -> str:
        """``Left/v_Left_g01_c01``."""
        return f"{self.motion}/v_{self.motion}_g{self.group:02d}_c{self.clip:02d}"


def choose_clips(kind: str) -> tuple[Clip, ...]:
    """Return the videos of the ``"lite"`` or ``"whole"`` data, those for training first.

    The lite videos are some of the whole data's own splits, so that what a mode trains on is never among what it
    evaluates on, also where it trains on one and evaluates on the other.
    """
    return tuple(
        Clip(split=split, motion=motion, group=group, clip=clip)
        for split in ("train", "val")
        for motion in MOTIONS
        for group in GROUPS[kind][split]
        for clip in range(1, CLIPS[kind][split] + 1)
    )


def split_name(folder: str, split: str) -> str:
    """Return the name of a split's file in the data folder called ``folder``."""
    return f"{folder}_{split}_split_1_rawframes.txt"


def file_names(kind: str, folder: str, scans: int) -> frozenset[str]:
    """Return the names of all files of the data, below their folder, which is called ``folder``."""
    frames = {
        f"rawframes/{clip.name}/img_{number:05d}.jpg"
        for clip in choose_clips(kind)
        for number in range(1, start_of(clip.group, clip.clip, scans).frames + 1)
    }
    return frozenset(frames | {split_name(folder, split) for split in ("train", "val")})


def make_files(kind: str, folder: str, scans: NDArray[np.float64]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of all files of the data: every frame, then the split files."""
    labels = {motion: label for label, motion in enumerate(MOTIONS)}
    lists: dict[str, list[str]] = {"train": [], "val": []}
    for clip in choose_clips(kind):
        count = 0
        for count, image in enumerate(render(clip.motion, clip.group, clip.clip, scans), 1):
            buffer = io.BytesIO()
            image.save(buffer, format="JPEG", quality=QUALITY)
            yield f"rawframes/{clip.name}/img_{count:05d}.jpg", buffer.getvalue()
        lists[clip.split].append(f"{clip.name} {count} {labels[clip.motion]}\n")
    for split, lines in lists.items():
        yield split_name(folder, split), "".join(lines).encode()


SOURCE = "scikit-learn load_digits"
PARAMS: Mapping[str, str] = {
    DIGITS: "test_tipc/configs/alexnet/train_infer_python.txt",
    MINI_UCF: "test_tipc/configs/mvf/train_infer_python.txt",
}
"""A parameter file that uses the data set, by its name."""
KINDS = ("lite", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRecipe:
    """How the folder of one kind of a data set is made.

    Attributes:
        facts: what the folder's manifest says about it.
        names: the files that it holds, besides the manifest.
        make: yields name and content of each of them, always the same.
        said: what there is in it, for messages.
        packed: whether an archive is kept beside the folder.
    """

    facts: JsonObject
    names: frozenset[str]
    make: Callable[[], Iterator[tuple[str, bytes]]]
    said: str
    packed: bool = False


def recipe_of(data_set: str, kind: str) -> DataRecipe:
    """Return how the ``"lite"`` or ``"whole"`` data of a data set are made.

    Raises:
        UsageError: no such kind, or a data set that is not made here.
        DataError: scikit-learn is missing.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown data {kind!r}, expected one of: {', '.join(KINDS)}")
    if data_set not in PARAMS:
        raise UsageError(f"the data set {data_set!r} is not made here, only {', '.join(PARAMS)}")
    folder = DATA_SETS[data_set][kind]
    return (_digits if data_set == DIGITS else _motions)(kind, folder)


def way_out(folder: str) -> str:
    """Return the command that makes the data folder called ``folder``."""
    data_set, kind = next(
        ((name, kind) for name in PARAMS for kind, known in DATA_SETS[name].items() if known == folder),
        (DIGITS, "lite"),
    )
    return f"bash prepare.sh {PARAMS[data_set]} {kind}_train_{kind}_infer --data-only"


def _digits(kind: str, folder: str) -> DataRecipe:
    scans, labels = load_scans()
    images = choose_images(kind, labels)
    listing = f"{folder}.txt"

    def make() -> Iterator[tuple[str, bytes]]:
        for image in images:
            yield image.path, encode_png(scans[image.number])
        yield listing, "".join(f"{image.path} {image.label}\n" for image in images).encode()

    facts = {
        "source": SOURCE,
        "kind": kind,
        "seed": SEED,
        "image": "8x8 grayscale PNG, 0..16 scaled to 0..255",
        "train": sum(image.path.startswith("train/") for image in images),
        "val": sum(image.path.startswith("val/") for image in images),
    }
    names = frozenset({image.path for image in images} | {listing})
    return DataRecipe(facts=facts, names=names, make=make, said=f"{len(images)} images")


def _motions(kind: str, folder: str) -> DataRecipe:
    scans, _ = load_scans()
    clips = choose_clips(kind)
    facts = {
        "source": SOURCE,
        "kind": kind,
        "seed": SEED,
        "frame": f"{SIDE}x{SIDE} RGB JPEG of quality {QUALITY}",
        "classes": list(MOTIONS),
        "train": sum(clip.split == "train" for clip in clips),
        "val": sum(clip.split == "val" for clip in clips),
    }
    return DataRecipe(
        facts=facts,
        names=file_names(kind, folder, len(scans)),
        make=lambda: make_files(kind, folder, scans),
        said=f"{len(clips)} videos",
        packed=True,
    )
