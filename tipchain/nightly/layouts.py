"""Layouts of full data: what a data folder must hold, looked at in a few folders, not file by file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout.

    Attributes:
        expected: what a folder of this layout holds, for messages.
        missing: returns what a folder lacks, as the path that was looked for; "" if it lacks nothing.
    """

    expected: str
    missing: Callable[[Path], str]


def missing_data(path: Path, layout: str) -> str:
    """Return what is missing of the data in ``path``, with the path that was wanted; "" if they are there.

    Args:
        path: the folder.
        layout: a name in `LAYOUTS`.
    """
    kind = LAYOUTS[layout]
    if not path.is_dir():
        return f"{path} is not there (expected: {kind.expected})"
    try:
        lacking = kind.missing(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return f"{lacking} is not there (expected: {kind.expected})" if lacking else ""


def _holds_folders(path: Path) -> bool:
    return path.is_dir() and any(one.is_dir() for one in islice(path.iterdir(), 1000))


def _class_folders(path: Path) -> str:
    return next(
        (f"{path / split}/<class>/" for split in ("train", "val") if not _holds_folders(path / split)), ""
    )


def _imagenet(path: Path) -> str:
    """ImageNet: class folders, or the list files of the Paddle suites beside the images."""
    if not _class_folders(path):
        return ""
    lists = [path / f"{split}_list.txt" for split in ("train", "val")]
    if any(one.is_file() for one in lists):
        return next((str(one) for one in lists if not one.is_file()), "")
    return _class_folders(path)


def _ucf101(path: Path) -> str:
    """UCF-101: videos or raw frames, and the lists of the first split, beside them or in ``annotations``."""
    kinds = [kind for kind in ("rawframes", "videos") if (path / kind).is_dir()]
    if not kinds:
        return str(path / "rawframes")
    lacking = ""
    for kind in kinds:
        lacking = _ucf101_kind(path, kind)
        if not lacking:
            return ""
    return lacking


def _ucf101_kind(path: Path, kind: str) -> str:
    if not any((path / kind).iterdir()):
        return f"{path / kind}/<Class>/"
    for split in ("train", "val"):
        pattern = f"*{split}_split_1_{kind}.txt"
        if not any(path.glob(pattern)) and not any(path.glob(f"annotations/{pattern}")):
            return str(path / pattern)
    return ""


def _any(path: Path) -> str:
    return "" if any(path.iterdir()) else f"{path}/*"


LAYOUTS: Mapping[str, Layout] = {
    "imagenet": Layout(
        expected="train/<class>/ and val/<class>/, or train_list.txt and val_list.txt", missing=_imagenet
    ),
    "ucf101": Layout(
        expected="rawframes/ or videos/, with *train_split_1_*.txt and *val_split_1_*.txt", missing=_ucf101
    ),
    "classes": Layout(expected="train/<class>/ and val/<class>/", missing=_class_folders),
    "any": Layout(expected="a folder that is not empty", missing=_any),
}
