"""An attempt's folder on its way from a node to the coordinator's machine, in pieces."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tipchain.nightly.cluster.messages import AttemptPiece
from tipchain.nightly.isolation import TMP

PIECE = 4 << 20
"""Bytes in a piece, at most."""
UNREAD = "not-sent.txt"
"""Names what of an attempt's folder could not be read, and why."""


def pieces(folder: Path) -> Iterator[AttemptPiece]:
    """Yield what stands in a folder: files and folders, and links that lead to somewhere in it.

    Temporary files are left out, and what is no file: sockets, pipes, devices. What cannot be read is named in a file of
    its own, `UNREAD`: an item is not at fault for it.
    """
    unread: list[OSError] = []
    sent: dict[tuple[int, int], str] = {}
    for place, folders, files in os.walk(folder, onerror=unread.append):
        below = PurePosixPath(Path(place).relative_to(folder).as_posix())
        if Path(place) == folder and TMP in folders:
            folders.remove(TMP)
        for name in sorted((*folders, *files)):
            yield from _pieces_of(folder, Path(place) / name, (below / name).as_posix(), unread, sent)
    if unread and not os.path.lexists(folder / UNREAD):
        lines = (f"{os.path.relpath(one.filename or folder, folder)}: {one.strerror}\n" for one in unread)
        yield AttemptPiece(name=UNREAD, data="".join(lines).encode(errors="surrogateescape"))


def _pieces_of(
    folder: Path, path: Path, name: str, unread: list[OSError], sent: dict[tuple[int, int], str]
) -> Iterator[AttemptPiece]:
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            first = sent.setdefault((found.st_dev, found.st_ino), name)
            if first != name:
                yield AttemptPiece(name=name, same_as=first)
                return
        yield from _read(folder, path, name, found.st_mode)
    except OSError as error:
        unread.append(error)
        for key in [key for key, first in sent.items() if first == name]:
            del sent[key]


def _read(folder: Path, path: Path, name: str, kind: int) -> Iterator[AttemptPiece]:
    if stat.S_ISLNK(kind):
        link = path.readlink()
        if not link.is_absolute() and _leads_into(folder, path):
            yield AttemptPiece(name=name, link=str(link))
    elif stat.S_ISDIR(kind):
        yield AttemptPiece(name=f"{name}/")
    elif stat.S_ISREG(kind):
        with path.open("rb") as file:
            data, first = file.read(PIECE), True
            while data or first:
                yield AttemptPiece(name=name, data=data, first=first)
                data, first = file.read(PIECE), False


def _leads_into(folder: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # in a circle
        return False


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a file in an attempt's folder.

    Raises:
        ValueError: its name leads out of the folder.
    """
    below = PurePosixPath(name)
    path = folder / below
    if below.is_absolute() or ".." in below.parts or not path.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name}: leads out of the attempt's folder")
    return path


def put(folder: Path, piece: AttemptPiece) -> None:
    """Write a piece into an attempt's folder.

    Raises:
        OSError: it cannot be written.
        ValueError: its name leads out of the folder.
    """
    path = _inside(folder, piece.name)
    if piece.same_as:
        os.link(_inside(folder, piece.same_as), path, follow_symlinks=False)
    elif piece.link:
        path.symlink_to(piece.link)
        if not _leads_into(folder, path):
            path.unlink()
            raise ValueError(f"{piece.name} -> {piece.link}: leads out of the attempt's folder")
    elif piece.name.endswith("/"):
        path.mkdir()
    elif piece.first:
        with path.open("xb") as file:
            file.write(piece.data)
    elif path.is_symlink():
        raise ValueError(f"{piece.name}: goes on in a link")
    else:
        with path.open("ab") as file:
            file.write(piece.data)
