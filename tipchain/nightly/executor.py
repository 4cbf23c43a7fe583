"""What runs items: this machine's processes, or a cluster's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tipchain.nightly.items import FOLDER, LOG, PYTHON, REPORT, Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An item about to run.

    Attributes:
        item: the item.
        attempt: from 1.
        folder: the attempt's folder on the coordinator's machine, absolute; `Work.make_folder` makes it, once.
        root: the project's folder there.
    """

    item: Item
    attempt: int
    folder: Path
    root: Path

    @property
    def report(self) -> Path:
        """Where its JSON report goes."""
        return self.folder / "report.json"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / "output.log"

    @property
    def wants_report(self) -> bool:
        """Whether its call names a JSON report, which must then be there when it has ended."""
        return any(REPORT in word for word in self.item.argv)

    def make_folder(self) -> None:
        """Make the attempt's folder, when there is room for the item and not before.

        Raises:
            FileExistsError: an attempt of that number was made before: nothing of it is taken for this one's.
            OSError: the disk is full or the folder above cannot be written.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir()

    def argv(self, folder: Path | None = None, python: str = "") -> tuple[str, ...]:
        """Return the words of the call, for an attempt's ``folder`` and ``python`` on the machine that runs it."""
        folder = folder or self.folder
        paths = {
            REPORT: str(folder / self.report.name),
            LOG: str(folder / self.log.name),
            FOLDER: str(folder),
            PYTHON: python or sys.executable,
        }
        return tuple(_filled(word, paths) for word in self.item.argv)


def _filled(word: str, paths: Mapping[str, str]) -> str:
    for name, path in paths.items():
        word = word.replace(name, path)
    return word


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an item's process ended. The report and the log are in the attempt's folder by then.

    Attributes:
        id: the item's id.
        attempt: which.
        exit_code: None where a signal ended it or it did not start.
        signal: number of the signal that ended it, 0 for none.
        seconds: by a monotonic clock, without waiting.
        started: ISO 8601 with offset.
        peak_memory_mb: MiB, 0 where it is not known.
        timed_out: whether it was ended for its time, with its whole process group.
        interrupted: whether it was ended because the night was.
        lost: the machine it ran on is gone, so that it may be run again; "" or what is known.
        failure: why it could not be started; "" otherwise.
        machine: the host's name.
        artifacts: SHA-256 of what the item left (`tipchain.nightly.left`), where that is not on this machine; None: it is.
    """

    id: str
    attempt: int
    exit_code: int | None = None
    signal: int = 0
    seconds: float = 0.0
    started: str = ""
    peak_memory_mb: float = 0.0
    timed_out: bool = False
    interrupted: bool = False
    lost: str = ""
    failure: str = ""
    machine: str = ""
    artifacts: Mapping[str, str] | None = None


class Executor(Protocol):
    """Runs work, several at once. All methods are called from one thread, `stop` by a signal's handler in it, too."""

    @property
    def name(self) -> str:
        """What records call it."""

    @property
    def slots(self) -> int:
        """How many items of one CPU can run at once."""

    @property
    def trouble(self) -> str:
        """Why nothing can run any more; "" while something can."""

    def impossible(self, item: Item) -> str:
        """Return why an item can never run here, as one that needs a GPU where there is none; "" if it can."""

    def start(self, work: Work) -> str:
        """Start an item if there is room for it now; return "" or what has to be waited for.

        What is started has its folder made (`Work.make_folder`); an OSError of that is raised.
        """

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Return what has ended, each once; wait up to ``timeout_s`` for the first."""

    def running(self) -> Mapping[str, tuple[float, str]]:
        """Return seconds so far and the last line of output of each item that runs, by id."""

    def stop(self) -> None:
        """Ask everything that runs to end, with all its processes; `wait` still returns how."""

    def close(self) -> None:
        """Give everything back."""
