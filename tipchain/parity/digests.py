"""What the data and the sources of a case are known by."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tipchain.blame import is_users
from tipchain.errors import DataError
from tipchain.modes import DIGITS, MINI_UCF, NONE
from tipchain.raw_frames import SPLITS, read_split, split_file

# What the data of a case are known by: a digest of the files that its data set reads.


WHERE = (
    "`data: {set: none}` if the data sets need no folder, else --data-path DIR; "
    "the shipped data come from  tipchain prepare PARAMS MODE"
)
HASHED_BYTES = 64 << 20
"""Data sets up to this size are known by their content."""


def data_digest(folder: Path, data_set: str = DIGITS) -> str:
    """Return a SHA-256 of the files of a data set, by name and content.

    Of more than `HASHED_BYTES` only names and sizes count: reading ImageNet would take minutes. Of more than that in
    videos, only the split files and the first videos count: naming all frames of UCF-101 would.

    Args:
        folder: the data folder.
        data_set: its layout: class folders, raw frames with split files, anything, or no folder.

    Raises:
        DataError: there is no such folder, it has no data, or a file cannot be read.
    """
    if data_set == NONE:
        return hashlib.sha256(NONE.encode()).hexdigest()  # the data sets' code makes them
    if data_set == MINI_UCF:
        return _digest_videos(folder)
    named = [folder / "train", folder / "val"] if data_set == DIGITS else [folder]
    files = [path for one in named for path in sorted(one.rglob("*")) if path.is_file()]
    if not files:
        raise DataError(
            "has no images" if data_set == DIGITS else "has no files", file=folder,
            expected="train/<class>/ and val/<class>/ with images" if data_set == DIGITS else "data",
            hint=WHERE,
        )  # fmt: skip
    sizes = [path.stat().st_size for path in files]
    small = sum(sizes) <= HASHED_BYTES
    digest = hashlib.sha256()
    for path, size in zip(files, sizes, strict=True):
        digest.update(f"{path.relative_to(folder).as_posix()} {size}\n".encode())
        if small:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _digest_videos(folder: Path) -> str:
    digest, left = hashlib.sha256(), HASHED_BYTES
    for path in chain((split_file(folder, split) for split in SPLITS), _frames(folder)):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError("cannot be read", file=path, found=error.strerror) from error
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(hashlib.sha256(content).digest())
        left -= len(content)
        if left < 0:
            break
    return digest.hexdigest()


def _frames(folder: Path) -> Iterator[Path]:
    for split in SPLITS:
        for video in read_split(folder, split):
            yield from (video.frame(number) for number in range(1, video.frames + 1))


# The user's own source files that this process has imported, known by their content.


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a small file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def imported_sources(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of the user's that is imported, by its path as seen from ``root``."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {
        os.path.relpath(file, root): file_hash(Path(file))
        for file in sorted(filter(None, files))
        if file.endswith(".py") and is_users(file) and Path(file).is_absolute()
    }
