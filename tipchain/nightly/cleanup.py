"""Old nights, of which the latest few stay, and their deletion, of which a kill leaves no half."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from tipchain.errors import UsageError
from tipchain.nightly.nights import FINISHED, NIGHT, hold, holder

TRASH = ".trash"
"""Folder beside nights that something is moved to before it is deleted."""
UNWRITTEN_S = 3600.0
"""Age from which a night's folder without a plan is a killed coordinator's leftover."""
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")


def old_nights(places: Iterable[Path], keep: int, now: float) -> list[Path]:
    """Return the folders to delete below folders of nights: leftovers of killed processes, and all but each manifest's latest nights.

    A night that is being run stays, and so does one that may be resumed: none that finished is later.

    Args:
        places: folders of nights, of one manifest or of all.
        keep: how many finished nights of each manifest stay.
        now: seconds since 1970.
    """
    found = sorted({one for place in places for one in _below(place.resolve(), now)})
    finished: dict[Path, list[Path]] = {}
    for one in found:
        if (one / FINISHED).is_file():
            finished.setdefault(one.parent, []).append(one)
    return [
        one
        for one in found
        if is_rest(one)
        or (len(latest := finished.get(one.parent, ())) >= keep and one < latest[-keep] and not holder(one))
    ]


def is_rest(folder: Path) -> bool:
    """Tell whether a killed process left a folder, so that it is nobody's night."""
    return folder.parent.name == TRASH or not (folder / NIGHT).is_file()


def _below(folder: Path, now: float, depth: int = 2) -> Iterator[Path]:
    """Yield a night, or those in a folder: of one manifest, or of all."""
    if folder.parent.name == TRASH or (folder / NIGHT).is_file():
        yield folder
    elif _NAME.fullmatch(folder.name):
        if now - folder.stat().st_mtime > UNWRITTEN_S and not holder(folder):
            yield folder
    elif depth or folder.name == TRASH:
        with suppress(OSError):
            for one in sorted(folder.iterdir()):
                if one.is_dir() and not one.is_symlink() and (one.name == TRASH or not one.name.startswith(".")):
                    yield from _below(one, now, depth - 1)


def delete(folder: Path) -> str:
    """Delete a night; return "" or why it is still there, in whole or as a rest that the next call removes.

    It is held while it is moved out of sight, so no process goes on with it; a kill after that leaves nothing that
    looks like a night.
    """
    try:
        moved = folder
        if not is_rest(folder):
            lock = hold(folder)
            try:
                _refuse_mounts(folder)
                moved = folder.parent / TRASH / f"{folder.name}-{secrets.token_hex(3)}"
                moved.parent.mkdir(exist_ok=True)
                os.rename(folder, moved)  # noqa: PTH104
            finally:
                os.close(lock)
        _refuse_mounts(moved)
        shutil.rmtree(moved)
        if moved.parent.name == TRASH:
            with suppress(OSError):  # something else is in it
                moved.parent.rmdir()
    except FileNotFoundError:  # another process deleted it
        return ""
    except UsageError as error:
        return str(error).splitlines()[0]
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    return ""


def _refuse_mounts(folder: Path) -> None:
    """Raise an error if something is mounted in a folder: its contents are somebody's, on another disk or this one."""
    whole = folder.resolve()
    points = (Path(one.mountpoint) for one in psutil.disk_partitions(all=True))
    shown = ", ".join(sorted(os.path.relpath(one, whole) for one in points if one.is_relative_to(whole)))
    if shown:
        raise UsageError(f"{folder}: is left whole, for other file systems are mounted in it: {shown}")
