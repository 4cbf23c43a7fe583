"""Data of the user's own: a folder of images by class."""

from __future__ import annotations

from pathlib import Path

from tipchain.errors import DataError
from tipchain.modes import DIGITS, MINI_UCF
from tipchain.raw_frames import LAYOUT, Video, class_names, read_split, split_file

# A data folder of the user's own, in ImageNet's layout: ``train/<class>/<image>`` and ``val/<class>/<image>``.

SPLITS = ("train", "val")
IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


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
        only = [f"{split} only: {', '.join(sorted(names)[:5])}" for split, names in
                (("train", set(train) - set(val)), ("val", set(val) - set(train))) if names]  # fmt: skip
        raise DataError("train and val have different classes", file=folder, found="; ".join(only))
    for split in SPLITS:
        for name in train:
            _check_class(folder / split / name)
    return train


def _classes(folder: Path, layout: str) -> tuple[str, ...]:
    if not folder.is_dir():
        raise DataError("is missing", file=folder, expected=layout)
    classes = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")))
    if not classes:
        raise DataError("has no class folders", file=folder, expected=layout)
    return classes


def _check_class(folder: Path) -> None:
    if not any(path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() for path in folder.iterdir()):
        raise DataError("has no image", file=folder, expected=f"a file ending in {', '.join(IMAGE_SUFFIXES)}")


# Data of the user's own, given with ``--data-path``: checked for the layout that the case's data set has.


def check_own_data(folder: Path, data_set: str) -> tuple[str, ...]:
    """Return the class names of ``folder``, by label; none for a data set whose layout is the user's own.

    Args:
        folder: the data folder.
        data_set: a name in ``tipchain.modes.DATA_SETS``: images in class folders, videos as raw frames, or anything.

    Raises:
        DataError: it is missing, or is not laid out as data of that set are.
    """
    if data_set == DIGITS:
        return check_image_folder(folder)
    if not folder.is_dir():
        raise DataError("there is no such data folder", file=folder, key="--data-path",
                        expected=LAYOUT if data_set == MINI_UCF else "a folder")  # fmt: skip
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
            "has videos that are in both splits", file=split_file(folder, "val"),
            found=", ".join(sorted(one.name for one in both)[:3]) + (", ..." if len(both) > 3 else ""),
        )  # fmt: skip
    for video in (*train, *val):
        _check_video(video)
    return class_names(folder)


def _check_video(video: Video) -> None:
    for number in (1, video.frames):
        if not video.frame(number).is_file():
            there = len(list(video.folder.glob("img_*.jpg"))) if video.folder.is_dir() else "no such folder"
            raise DataError(
                "is missing", file=video.frame(number), found=there,
                expected=f"frames 1 to {video.frames}, as the split file says",
            )  # fmt: skip
