"""What runs on a node of a cluster: one item, as a task of Ray that yields what the coordinator is to know.

Ray's own settings are kept from the item: it gets the variables that its node had before, GPUs that Ray gave it, and
ports and temporary files of its own, as on the coordinator's machine.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tipchain.chain.execute import search_path
from tipchain.chain.process import Stop
from tipchain.nightly import executor
from tipchain.nightly.cluster.messages import Begun, FromNode, NodeJob, OutputLine, pieces
from tipchain.nightly.executor import Ended, Work, run_attempt
from tipchain.nightly.judge import read_files_left

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
    problem = _misfit(job)
    if problem:
        yield problem
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
        artifacts = read_files_left(work) if run.ended.exit_code == 0 else {}
        yield replace(run.ended, artifacts=artifacts)


def _misfit(job: NodeJob) -> str:
    """Return why this node can run no item of the night, "" if it can."""
    if job.settings.shipped or job.work.folder.is_dir():
        return ""
    return (
        f"the night's folder is not to be seen on {socket.gethostname()}, a node of the Ray cluster; "
        "with --ship the project is sent there"
    )


def _not_run(work: Work, failure: str) -> Ended:
    return Ended(id=work.item.id, attempt=work.attempt, failure=failure, machine=socket.gethostname())


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
            self.ended = _not_run(self.work, f"{socket.gethostname()}: {error}")
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
    _sweep(above)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
    try:
        fresh = folder / "fresh"
        with fresh.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh.rename(folder / LOCK)  # held before it has the name that others look for
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(above: Path) -> None:
    for folder in above.glob(f"{PREFIX}*"):
        with suppress(OSError), (folder / LOCK).open("rb") as lock:
            if folder.lstat().st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
