"""Data of the user's own, given with ``--data-path``: checked for the layout that the case's data set has."""

from __future__ import annotations

from pathlib import Path

from tipchain.errors import DataError
from tipchain.modes import DIGITS, MINI_UCF
from tipchain.prepare.image_folder import check_image_folder
from tipchain.raw_frames import LAYOUT, Video, class_names, read_split, split_file


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
