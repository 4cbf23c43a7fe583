"""Data folders that a mode needs, of the sets made here or of the user's own: made whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import math
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from tipchain.core.files import files_below
from tipchain.core.images import LAYOUT, SPLITS, SUFFIXES, class_names, read_split, split_file
from tipchain.core.json_text import Json, JsonObject
from tipchain.core.progress import Pace, Progress
from tipchain.errors import DataError, UsageError
from tipchain.modes import DATA_SETS, DIGITS, MINI_UCF, data_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image as PillowImage


# The shipped images: scikit-learn's handwritten digits, real scans of 8x8 pixels.
#
# Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI repository; ``load_digits``.


SCANS = "datasets/data/digits.csv.gz"
"""Where they lie in scikit-learn: a line for each, of 64 pixels and the label."""
SEED = 0
WHOLE_VAL = 360
LITE_PER_CLASS = 2


class Image(NamedTuple):
    """One image: its place below the data folder, its label, and its number in ``load_digits``."""

    path: str
    label: int
    number: int


def load_scans() -> tuple[NDArray[np.float64], Sequence[int]]:
    """Return the scans (float64 ``[1797, 8, 8]``, 0 to 16) and their labels, as ``load_digits`` does.

    Their file is read without scikit-learn, whose import takes as long as all else that makes the data.

    Raises:
        DataError: scikit-learn is not installed.
    """
    import numpy as np

    spec = find_spec("sklearn")
    files = [Path(folder, SCANS) for folder in (spec and spec.submodule_search_locations) or ()]
    if not files or not files[0].is_file():
        raise DataError(
            "the digits come with scikit-learn, which is not installed",
            found=f"no {files[0]}" if files else None,
            hint='pip install "tipchain[cases]", or let prepare.sh make the environment',
        )
    rows = np.loadtxt(files[0], delimiter=",")
    return rows[:, :-1].reshape(-1, 8, 8), [int(label) for label in rows[:, -1]]


def choose_images(kind: str, labels: Sequence[int]) -> tuple[Image, ...]:
    """Return the images of the ``"lite"`` or ``"whole"`` data, training images first.

    The lite images are drawn from the whole data's own splits, so that what a mode trains on is never among
    what it evaluates on, also where it trains on one and evaluates on the other.
    """
    images = []
    for split, numbers in split_whole(labels).items():
        by_class = [[number for number in numbers if labels[number] == label] for label in sorted(set(labels))]
        chosen = numbers if kind == "whole" else [number for own in by_class for number in own[:LITE_PER_CLASS]]
        images += [
            Image(path=f"{split}/{labels[number]}/{number:04d}.png", label=labels[number], number=number)
            for number in sorted(chosen, key=lambda number: (labels[number], number))
        ]
    return tuple(images)


def split_whole(labels: Sequence[int]) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers of the training and validation scans, stratified, in a seeded order."""
    by_class: dict[int, list[int]] = defaultdict(list)
    for number in _order(len(labels)):
        by_class[labels[number]].append(number)
    # Divided in proportion to the classes by the largest remainders.
    counts = {label: WHOLE_VAL * len(numbers) // len(labels) for label, numbers in by_class.items()}
    rest = sorted(by_class, key=lambda label: (-(WHOLE_VAL * len(by_class[label]) % len(labels)), label))
    for label in rest[: WHOLE_VAL - sum(counts.values())]:
        counts[label] += 1
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

    pixels = np.rint(scan * (255.0 / 16.0)).astype(np.uint8)
    buffer = io.BytesIO()
    _pillow().fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


@lru_cache(maxsize=4)
def _order(count: int, what: str = "") -> tuple[int, ...]:
    """Return the numbers below ``count`` in an order that a hash gives: it depends on no library's generator."""
    return tuple(sorted(range(count), key=lambda one: hashlib.sha256(f"{SEED}:{what}{one}".encode()).digest()))


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


class VideoStart(NamedTuple):
    """The common start of videos of one group and clip number, whatever moves.

    Attributes:
        scan: number of the digit in ``load_digits``.
        frames: their number.
        place: x and y of the digit's left upper corner in the first frame, pixels.
        turns: share of the way once across the picture, or once around, that the video shows.
        radius: of the way around, pixels.
        angle: of the digit's start on the way around, radians.
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
    """Return how the videos ``g<group>_c<clip>`` start, drawn from a hash: it depends on no library's generator."""
    draw = _draws(f"{group}:{clip}")
    return VideoStart(
        scan=_order(scans, "scan:")[group - 1],
        frames=16 + int(9 * next(draw)),
        place=(SIDE * next(draw), SIDE * next(draw)),
        turns=0.8 + 0.4 * next(draw),
        radius=12 + 8 * next(draw),
        angle=2 * math.pi * next(draw),
        colour=tuple(160 + int(96 * next(draw)) for _ in range(3)),
    )


def _draws(name: str) -> Iterator[float]:
    data = hashlib.shake_256(f"{SEED}:{name}".encode()).digest(4 * 16)
    for at in range(0, len(data), 4):
        yield int.from_bytes(data[at : at + 4], "big") / 2**32


def draw_frame(picture: NDArray[np.uint8], digit: NDArray[np.float32], start: VideoStart, place: Place) -> PillowImage:
    """Return ``picture``, ``[SIDE, SIDE, 3]``, with a digit, how much it covers, at a place modulo `SIDE`."""
    import numpy as np

    cover = np.zeros((SIDE, SIDE, 1), np.float32)
    cover[:DIGIT, :DIGIT, 0] = digit
    cover = np.roll(cover, (round(place[1]), round(place[0])), axis=(0, 1))
    pixels = picture * (1 - cover) + np.array(start.colour, np.float32) * cover
    drawn: PillowImage = _pillow().fromarray(np.rint(pixels).astype(np.uint8))
    return drawn


def render(motion: str, group: int, clip: int, scans: NDArray[np.float64]) -> Iterator[PillowImage]:
    """Yield the frames of a video, one of `MOTIONS`, as Pillow images of `SIDE` x `SIDE` pixels."""
    import numpy as np

    start = start_of(group, clip, len(scans))
    small = _pillow().fromarray(np.rint(scans[start.scan] * (255 / 16)).astype(np.uint8))
    large = small.resize((DIGIT, DIGIT), _pillow().Resampling.BICUBIC)
    digit = np.asarray(large, dtype=np.float32) / np.float32(255)
    data = hashlib.shake_256(f"{SEED}:{group}:{clip}:background".encode()).digest(8 * 8 * 3)
    clouds = _pillow().fromarray(np.frombuffer(data, np.uint8).reshape(8, 8, 3))
    picture = np.asarray(clouds.resize((SIDE, SIDE), _pillow().Resampling.BICUBIC)) // 3
    for number in range(start.frames):
        right, down = MOTIONS[motion](start, number / start.frames)
        yield draw_frame(picture, digit, start, (start.place[0] + right, start.place[1] + down))


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("writing images needs Pillow", found=error, hint="pip install pillow") from error
    return Image


class Clip(NamedTuple):
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


class DataRecipe(NamedTuple):
    """How the folder of one kind of a data set is made.

    Attributes:
        facts: what the folder's manifest says about it.
        names: the files that it holds, besides the manifest.
        make: yields name and content of each of them, always the same.
        said: its contents, for messages.
    """

    facts: JsonObject
    names: frozenset[str]
    make: Callable[[], Iterator[tuple[str, bytes]]]
    said: str


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
    frames = {
        f"rawframes/{clip.name}/img_{number:05d}.jpg"
        for clip in clips
        for number in range(1, start_of(clip.group, clip.clip, len(scans)).frames + 1)
    }
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
        names=frozenset(frames | {split_name(folder, split) for split in ("train", "val")}),
        make=lambda: make_files(kind, folder, scans),
        said=f"{len(clips)} videos",
    )


# A folder is made beside its place and renamed into it, so a folder under its own name is a whole one. Its
# ``manifest.json`` (recipe, size and SHA-256 of every file) tells whether it still is. A damaged folder is made
# again, but only if nothing in it is anybody else's.


MANIFEST = "manifest.json"
Say = Callable[[str], None]


def prepare_data(
    root: Path, kind: str, data_set: str = DIGITS, *, force: bool = False, say: Say = lambda _: None
) -> Path:
    """Return the folder of the ``kind`` data below the project's ``root``, made if missing, damaged or with ``force``.

    Raises:
        UsageError: no such kind.
        DataError: it cannot be made (full disk, read-only folder, scikit-learn missing), or a file in it is
            not ours; nothing half-made stays.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown data {kind!r}, expected one of: {', '.join(KINDS)}")
    folder = root / data_folder(kind, data_set)
    problem = "--force was given" if force else _problem(folder)
    if problem is None:
        say(f"{folder}: ready")
        return folder
    try:
        with _locked(folder):
            if not force:
                problem = _problem(folder)  # another preparation may have made it in the meantime
            if problem is not None:
                if data_set not in PARAMS:
                    raise UsageError(f"the data set {data_set!r} is not made here, only {', '.join(PARAMS)}")
                recipe = (_digits if data_set == DIGITS else _motions)(kind, folder.name)
                existed = folder.exists()
                if existed:
                    _refuse_foreign(folder, recipe.names)
                    say(f"{folder}: {problem}; making it again")
                beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.making-", dir=folder.parent))
                new = beside / "new"
                try:
                    files = {}
                    with Progress() as progress:
                        pace = Pace(progress=progress)
                        for number, (path, content) in enumerate(recipe.make()):
                            pace.tell(f"making {folder.name}", number, len(recipe.names))
                            files[path] = _write(new / path, content)
                    manifest = {"recipe": dict(recipe.facts), "files": files}
                    _write(new / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
                    if existed:
                        folder.rename(beside / "old")
                    new.rename(folder)
                finally:
                    shutil.rmtree(beside, ignore_errors=True)
                say(f"{folder}: made, {recipe.said}")
    except OSError as error:
        raise DataError(
            f"cannot be made: {error.strerror or error}",
            file=folder,
            found=error.filename,
            hint="nothing half-made was left; free some space or choose a folder that can be written, then repeat",
        ) from error
    return folder


def check_data(folder: Path) -> None:
    """Check a made data folder against its manifest: every file there, none changed, none added.

    Raises:
        DataError: the message says what is wrong and how to make it good.
    """
    data_set, kind = next(
        ((name, kind) for name in PARAMS for kind, known in DATA_SETS[name].items() if known == folder.name),
        (DIGITS, "lite"),
    )
    hint = f"bash prepare.sh {PARAMS[data_set]} {kind}_train_{kind}_infer --data-only"
    if not folder.is_dir():
        raise DataError("there is no such data folder", file=folder, hint=hint)
    manifest = _read_manifest(folder)
    if manifest is None:
        raise DataError("is half-made: it has no readable manifest.json", file=folder, hint=hint)
    files = manifest["files"]
    for name, entry in files.items():
        path = folder / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise DataError("is missing", file=path, hint=hint) from None
        except OSError as error:
            raise DataError("cannot be read", file=path, found=error.strerror, hint=hint) from error
        if len(data) != entry["size"]:
            raise DataError(
                "is damaged", file=path, found=f"{len(data)} bytes", expected=f"{entry['size']} bytes", hint=hint
            )
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise DataError("is damaged: its checksum differs from the manifest's", file=path, hint=hint)
    for name in files_below(folder):
        if name not in files and name != MANIFEST:
            raise DataError(
                "is not one of the folder's own files and would be taken for data",
                file=folder / name,
                hint="move it elsewhere; a data set of your own is used with --data-path",
            )


def _problem(folder: Path) -> str | None:
    try:
        check_data(folder)
    except DataError as error:
        return error.message
    return None


def _read_manifest(folder: Path) -> dict[str, Json] | None:
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    files = found.get("files") if isinstance(found, dict) else None
    entries = files.values() if isinstance(files, dict) else [None]
    return found if all(isinstance(one, dict) and {"size", "sha256"} <= set(one) for one in entries) else None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        # Whoever left these is dead: the lock is ours.
        for leftover in folder.parent.glob(f".{folder.name}.making-*"):
            shutil.rmtree(leftover)
        yield


def _refuse_foreign(folder: Path, ours: AbstractSet[str]) -> None:
    manifest = _read_manifest(folder) or {"files": {}}
    ours = ours | set(manifest["files"]) | {MANIFEST}
    foreign = [name for name in files_below(folder) if name not in ours] if folder.is_dir() else [folder.name]
    if foreign or folder.is_symlink():
        raise DataError(
            "must be made again, but holds files that are not ours",
            file=folder,
            found=", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "") or "a link",
            hint="move them or the folder elsewhere; a data set of your own is used with --data-path",
        )


def _write(path: Path, data: bytes) -> dict[str, Json]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


# A data folder of the user's own, in ImageNet's layout: ``train/<class>/<image>`` and ``val/<class>/<image>``.


def check_image_folder(folder: Path) -> tuple[str, ...]:
    """Return the class names of ``folder``, sorted (their order gives the labels).

    Raises:
        DataError: a split is missing, the splits have different classes, or a class has no image.
    """
    layout = "train/<class>/ and val/<class>/ with images"
    if not folder.is_dir():
        raise DataError("there is no such data folder", file=folder, key="--data-path", expected=layout)
    train, val = (_classes(folder / split, layout) for split in SPLITS)
    if train != val:
        only = [
            f"{split} only: {', '.join(sorted(names)[:5])}"
            for split, names in (("train", set(train) - set(val)), ("val", set(val) - set(train)))
            if names
        ]
        raise DataError("train and val have different classes", file=folder, found="; ".join(only))
    for one in (folder / split / name for split in SPLITS for name in train):
        if not any(path.suffix.lower() in SUFFIXES and path.is_file() for path in one.iterdir()):
            raise DataError("has no image", file=one, expected=f"a file ending in {', '.join(SUFFIXES)}")
    return train


def _classes(folder: Path, layout: str) -> tuple[str, ...]:
    entries = sorted(folder.iterdir()) if folder.is_dir() else ()
    classes = tuple(one.name for one in entries if one.is_dir() and not one.name.startswith("."))
    if not classes:
        raise DataError("has no class folders" if folder.is_dir() else "is missing", file=folder, expected=layout)
    return classes


def check_own_data(folder: Path, data_set: str) -> tuple[str, ...]:
    """Return the class names of ``folder``, by label; none for a data set whose layout is the user's own.

    Raises:
        DataError: it is missing, or is not laid out as data of that set are.
    """
    if data_set == DIGITS:
        return check_image_folder(folder)
    if not folder.is_dir():
        raise DataError(
            "there is no such data folder",
            file=folder,
            key="--data-path",
            expected=LAYOUT if data_set == MINI_UCF else "a folder",
        )
    return check_video_folder(folder) if data_set == MINI_UCF else ()


def check_video_folder(folder: Path) -> tuple[str, ...]:
    """Return the class names of a folder in UCF-101's raw-frames layout, by label.

    Of every video the first and the last frame are looked for.

    Raises:
        DataError: a split file is missing or wrong, a video is in both, or one has not the frames it should.
    """
    train, val = (read_split(folder, split) for split in ("train", "val"))
    both = {video.folder for video in train} & {video.folder for video in val}
    if both:
        raise DataError(
            "has videos that are in both splits",
            file=split_file(folder, "val"),
            found=", ".join(sorted(one.name for one in both)[:3]) + (", ..." if len(both) > 3 else ""),
        )
    for video in (*train, *val):
        for number in (1, video.frames):
            if not video.frame(number).is_file():
                there = len(list(video.folder.glob("img_*.jpg"))) if video.folder.is_dir() else "no such folder"
                raise DataError(
                    "is missing",
                    file=video.frame(number),
                    found=there,
                    expected=f"frames 1 to {video.frames}, as the split file says",
                )
    return class_names(folder)
