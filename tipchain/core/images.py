"""Image files, and videos as folders of frames in the raw-frames layout of UCF-101 and its relatives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.errors import DataError

if TYPE_CHECKING:
    from PIL import Image


SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read_image(path: str | Path) -> Image.Image:
    """Return the image in ``path`` as RGB.

    Raises:
        DataError: it is missing, damaged or no image.
    """
    from PIL import Image

    try:
        with Image.open(path) as file:
            return file.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow raises all of them
        raise DataError("cannot be read as an image", file=path, found=error) from error


def find_images(path: Path) -> list[Path]:
    """Return ``path`` itself if it is a file, else the images below it, sorted.

    Raises:
        DataError: there is no such file or folder, or the folder holds no image.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError("no such file or folder", file=path, expected="an image, or a folder with images")
    images = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
    if not images:
        raise DataError("has no image", file=path, expected=f"files ending in {', '.join(SUFFIXES)}")
    return images


# Videos as folders of frames, in the raw-frames layout that UCF-101 and its relatives are kept in.
#
# A data folder has ``rawframes/<video>/img_00001.jpg`` and so on, ``<video>`` being ``<Class>/v_<Class>_g01_c01`` or
# ``v_<Class>_g01_c01``; and, in itself or in ``annotations/``, one file ``*train_split_1_rawframes.txt`` and one
# ``*val_split_1_rawframes.txt`` with a line ``<video> <number of frames> <label>`` for each video. The number after ``g``
# tells which videos come from one recording: a split never divides such a group.


FRAMES = "rawframes"
SPLITS = ("train", "val")
LAYOUT = (
    f"{FRAMES}/<Class>/v_<Class>_g01_c01/img_00001.jpg, and *train_split_1_rawframes.txt, *val_split_1_rawframes.txt"
)
_LINE = re.compile(r"(?P<name>\S+)\s+(?P<frames>[1-9]\d*)\s+(?P<label>\d+)")
_NAME = re.compile(r"(?:v_)?(?P<name>.+?)_g\d+_c\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """One video.

    Attributes:
        folder: of its frames.
        frames: how many there are.
        label: number of its class.
    """

    folder: Path
    frames: int
    label: int

    def frame(self, number: int) -> Path:
        """Return the file of frame ``number``, from 1."""
        return self.folder / f"img_{number:05d}.jpg"

    @property
    def class_name(self) -> str:
        """The folder of the class, else the class in the video's name, else that name."""
        if self.folder.parent.name != FRAMES:
            return self.folder.parent.name
        match = _NAME.fullmatch(self.folder.name)
        return match["name"] if match else self.folder.name


def split_file(folder: Path, split: str) -> Path:
    """Return the split file of ``"train"`` or ``"val"``.

    Raises:
        DataError: there is none, or several.
    """
    pattern = f"*{split}_split_1_rawframes.txt"
    files = sorted([*folder.glob(pattern), *folder.glob(f"annotations/{pattern}")])
    if len(files) == 1:
        return files[0]
    if not folder.is_dir():
        raise DataError("there is no such data folder", file=folder, expected=LAYOUT)
    raise DataError(
        f"has {'several split files' if files else 'no split file'}",
        file=folder,
        expected=f"one {pattern}",
        found=", ".join(path.name for path in files) or None,
        hint="bash prepare.sh PARAMS MODE makes the shipped data",
    )


def read_split(folder: Path, split: str) -> tuple[Video, ...]:
    """Return the videos of a split in its file's order, without looking at frames.

    Raises:
        DataError: the split file is missing, cannot be read or has a line of another form.
    """
    path = split_file(folder, split)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("cannot be read", file=path, found=error) from error
    videos = []
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line.strip())
        if match:
            videos.append(
                Video(folder=folder / FRAMES / match["name"], frames=int(match["frames"]), label=int(match["label"]))
            )
        elif line.strip():
            raise DataError("is no video", file=path, line=number, found=line, expected="VIDEO NUMBER_OF_FRAMES LABEL")
    if not videos:
        raise DataError("names no video", file=path, expected="VIDEO NUMBER_OF_FRAMES LABEL in each line")
    return tuple(videos)


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the classes' names by label; a label without a video is its number.

    Raises:
        DataError: a split file cannot be used, or a label stands for two classes.
    """
    names: dict[int, str] = {}
    for split in SPLITS:
        for video in read_split(folder, split):
            name = names.setdefault(video.label, video.class_name)
            if name != video.class_name:
                raise DataError(
                    f"label {video.label} stands for two classes",
                    file=split_file(folder, split),
                    found=f"{name} and {video.class_name}",
                )
    return tuple(names.get(label, str(label)) for label in range(max(names) + 1))
