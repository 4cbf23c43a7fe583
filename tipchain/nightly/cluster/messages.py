"""What the coordinator, Ray's driver and the nodes say to each other, an attempt's folder in pieces included."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tipchain.nightly.executor import TMP, Ended, Work
from tipchain.nightly.items import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """How the driver reaches the cluster.

    Attributes:
        address: ``HOST:PORT`` of its head.
        root: the project's folder on the coordinator's machine.
        shipped: whether the root is sent to the nodes, who send back what items leave; else all see it under one path.
        left_out: what below the root is not sent, as patterns of a ``.gitignore``.
        environment: variables that items have as the coordinator has them; None: not set.
        own_python: whether the project's own environment has the programs that items call, `python` above all.
    """

    address: str
    root: Path
    shipped: bool = False
    left_out: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    own_python: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """What a node is told of an item.

    Attributes:
        work: what runs, with the coordinator's paths.
        settings: of the driver.
    """

    work: Work
    settings: ClusterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """What a living node of the cluster has in all.

    Attributes:
        cpus: Ray's CPUs.
        gpus: Ray's GPUs.
        memory_mb: MiB that Ray gives to tasks.
        resources: all others.
    """

    cpus: float
    gpus: float
    memory_mb: float
    resources: tuple[tuple[str, float], ...] = ()

    def takes(self, start: SubmitItem) -> bool:
        """Return whether an item that asks for so much can run here once nothing else does."""
        return start.cpus <= self.cpus and start.memory_mb <= self.memory_mb and self.fits(start.work.item.needs)

    def fits(self, needs: Needs) -> bool:
        """Return whether an item can run here once nothing else does; of CPUs and memory it takes what there are."""
        others = dict(self.resources)
        return needs.gpus <= self.gpus and all(amount <= others.get(name, 0.0) for name, amount in needs.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitItem:
    """To the driver: submit an item.

    Attributes:
        work: the item's attempt.
        cpus: how many CPUs of Ray it takes.
        memory_mb: MiB of Ray's memory that it takes.
    """

    work: Work
    cpus: int
    memory_mb: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """To the driver: end items.

    Attributes:
        ids: which.
        firmly: at once, without time to end well.
    """

    ids: tuple[str, ...]
    firmly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """From the driver: which nodes the cluster has now; the first means that it is there."""

    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRefused:
    """From the driver: the cluster cannot be used."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An item's process is about to start on a node.

    Attributes:
        id: the item's.
        machine: the host's name.
        address: the node's.
    """

    id: str
    machine: str
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLine:
    """The last line of an item's output."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTrouble:
    """From the driver: why nothing more can run, until somebody mends that."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPiece:
    """From a node: part of what an attempt left.

    Attributes:
        name: the file's path below the attempt's folder, with slashes; of a folder it ends in one.
        data: bytes that follow what came before.
        first: whether the file begins here.
        link: what it leads to, of a symbolic link.
        same_as: the name of the file, sent before, that it is another name of: a hard link.
    """

    name: str
    data: bytes = b""
    first: bool = True
    link: str = ""
    same_as: str = ""


ToDriver: TypeAlias = SubmitItem | Cancel
FromNode: TypeAlias = str | Begun | OutputLine | AttemptPiece | Ended
"""A text says why the node can run no item at all: one without tipchain has no other type to say it in."""
FromDriver: TypeAlias = Nodes | ClusterRefused | ClusterTrouble | Begun | OutputLine | Ended


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
