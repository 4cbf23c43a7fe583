"""What runs on a node of a cluster, and what coordinator, Ray's driver and nodes say to each other."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tipchain.chain.execute import search_path
from tipchain.chain.process import Stop
from tipchain.nightly import executor
from tipchain.nightly.executor import TMP, Ended, Work, run_attempt
from tipchain.nightly.items import Needs
from tipchain.nightly.judge import files_left, read_report

# What the coordinator, Ray's driver and the nodes say to each other, an attempt's folder in pieces included.


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
        return needs.gpus <= self.gpus and all(
            amount <= others.get(name, 0.0) for name, amount in needs.resources.items()
        )


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
    """From the driver: why nothing can run, or nothing more, until somebody mends that."""

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
FromDriver: TypeAlias = Nodes | ClusterTrouble | Begun | OutputLine | Ended


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
    """Return the path of a file in an attempt's folder."""
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


# What runs on a node of a cluster: one item, as a task of Ray that yields what the coordinator is to know.
#
# Ray's own settings are kept from the item: it gets the variables that its node had before, GPUs that Ray gave it, and
# ports and temporary files of its own, as on the coordinator's machine.


SAY_S = 1.0
"""How often the last line of output is sent, at most."""
PREFIX, LOCK = "tipchain-item-", "lock"


def run_item(job: NodeJob, gpus: Sequence[str], address: str) -> Iterator[FromNode]:
    """Run an item; yield that it begins, its last lines of output, what it left, and last how it ended.

    Where no item can run, only why is yielded.

    Args:
        job: the item.
        gpus: those that Ray gave it.
        address: this node's.
    """
    if not job.settings.shipped and not job.work.folder.is_dir():
        yield (
            f"the night's folder is not to be seen on {socket.gethostname()}, a node of the Ray cluster; "
            "with --ship the project is sent there"
        )
        return
    yield Begun(id=job.work.item.id, machine=socket.gethostname(), address=address)
    with _own_folder() as own:
        work = _work_here(job, own)
        run = _Run(job, work, own, gpus)
        try:
            run.start()
            yield from run.lines()
        finally:  # an interrupt by Ray, above all
            run.stop.ask()
            run.join()
        if run.ended is None:
            raise RuntimeError(f"{work.item.id} was not run to its end")
        if work.folder != job.work.folder:
            yield from pieces(work.folder)
        # Only what passed is told by its files: gigabytes are not read for the rest.
        artifacts = files_left(read_report(work)[0], work) if run.ended.exit_code == 0 else {}
        yield replace(run.ended, artifacts=artifacts)


def _work_here(job: NodeJob, own: Path) -> Work:
    """Return an item's work with the paths of this node, its folder made."""
    if not job.settings.shipped:
        return job.work
    root = Path.cwd()  # Ray unpacks what was sent, and starts its tasks there
    moved = mover(job.settings.root, root)
    item = job.work.item
    item = replace(item, argv=tuple(map(moved, item.argv)), env={name: moved(text) for name, text in item.env.items()})
    work = replace(job.work, item=item, folder=own / "attempt", root=root)
    work.make_folder()
    return work


def mover(there: Path, here: Path) -> Callable[[str], str]:
    """Return what names paths of a folder below another in a text: ``--data=/there/a:/there`` and the like.

    A path that only has the folder's in it, as ``/mnt/there`` or ``/there2``, stays.
    """
    begins = r"""(?:(?<![^\s=:;,'"`(\[{<>|&@])|(?<=://)|(?<=^-[A-Za-z])|(?<=\s-[A-Za-z]))"""
    ends = r"""(?![^\s/:;,'"`)\]}<>|&])"""
    pattern = re.compile(begins + re.escape(str(there)) + ends)
    return lambda text: pattern.sub(lambda _: str(here), text)


class _Run(threading.Thread):
    """An item's process, waited for in a thread, so that Ray's interrupt finds the main one at rest."""

    def __init__(self, job: NodeJob, work: Work, own: Path, gpus: Sequence[str]) -> None:
        super().__init__(name=work.item.id, daemon=True)
        self.job, self.work, self.own, self.gpus = job, work, own, gpus
        self.line = ""
        self.stop: Stop = Stop()
        self.ended: Ended | None = None

    def run(self) -> None:
        tmp = self.own / executor.TMP
        ports = executor.Ports()
        try:
            tmp.mkdir()
            port = ports.take(self.work.item.id)
        except OSError as error:
            host, work = socket.gethostname(), self.work
            self.ended = Ended(id=work.item.id, attempt=work.attempt, failure=f"{host}: {error}", machine=host)
            return
        try:
            self.ended = run_attempt(self.work, lambda: self._environment(tmp, port), watch=self._watch, stop=self.stop)
        finally:
            ports.give_back(port)

    def _watch(self, line: str) -> None:
        self.line = line

    def _environment(self, tmp: Path, port: int) -> dict[str, str]:
        work, settings = self.work, self.job.settings
        # Node's variables without what Ray has put there, and with some as the coordinator has them.
        inherited = {
            name: value
            for name, value in os.environ.items()
            # Some versions of Ray hide accelerators that were not asked for, of all kinds that there are.
            if not name.startswith("RAY_") and (value or "_VISIBLE_" not in name)
        }
        paths = [one for one in inherited.pop("PYTHONPATH", "").split(os.pathsep) if one and Path(one) != work.root]
        if paths:
            inherited["PYTHONPATH"] = os.pathsep.join(paths)
        for name, value in settings.environment.items():
            inherited.pop(name, None)
            if value is not None:
                inherited[name] = value
        path = search_path(work.root, projects=settings.own_python, given=inherited.get("PATH"))
        return executor.environment(work.item, path=path, tmp=tmp, port=port, gpus=self.gpus, inherited=inherited)

    def lines(self) -> Iterator[OutputLine]:
        """Yield the last line of output as it changes, until the process has ended."""
        last = ""
        while self.is_alive():
            self.join(SAY_S)
            if self.line != last:
                last = self.line
                yield OutputLine(id=self.work.item.id, text=last)


@contextmanager
def _own_folder() -> Iterator[Path]:
    """Make a folder on this node for the time of an item; sweep those of tasks that were killed."""
    above = Path(tempfile.gettempdir())
    for folder in above.glob(f"{PREFIX}*"):
        with suppress(OSError), (folder / LOCK).open("rb") as lock:
            if folder.lstat().st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
    try:
        fresh = folder / "fresh"
        with fresh.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh.rename(folder / LOCK)  # held before it has the name that others look for
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
