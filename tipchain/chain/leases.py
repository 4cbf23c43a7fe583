"""Leases of GPUs: two running commands never share one, neither of one run nor of one user's runs on a machine.

A lease is a lock on a file in a folder of the user's below the system's temporary folder; the system gives it
back however its holder ends. Where that folder cannot be had (another user took its name), leases hold within
the run only.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def lease_folder() -> Path:
    """Return the folder of this user's leases."""
    return Path(tempfile.gettempdir()) / f"tipchain-gpus-{os.getuid()}"


class Leases:
    """The leases of one run.

    Attributes:
        trouble: why leases do not hold between runs; "" if they do.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or lease_folder()
        self.trouble = ""
        self._made = False
        self._held: dict[str, tuple[str, int | None]] = {}

    def take(self, gpus: Sequence[str], holder: str) -> str:
        """Take all of ``gpus`` for ``holder``, or none; return "" or what has to be waited for."""
        for gpu in gpus:
            if gpu in self._held:
                return f"GPU {gpu}, held by {self.holder(gpu)}"
        taken: list[str] = []
        for gpu in gpus:
            try:
                self._held[gpu] = (holder, self._lock(gpu))
            except BlockingIOError:
                self.give_back(taken)
                return f"GPU {gpu}, held by {self.holder(gpu)}"
            taken.append(gpu)
        return ""

    def give_back(self, gpus: Sequence[str]) -> None:
        """Give back leases that were taken."""
        for gpu in gpus:
            _, handle = self._held.pop(gpu)
            if handle is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)  # a child that another thread just forked has it open, too
                os.close(handle)

    def _lock(self, gpu: str) -> int | None:
        """Lock the file of a GPU, without waiting.

        Raises:
            BlockingIOError: another process has it.
        """
        self._make_folder()
        if self.trouble:
            return None
        try:
            handle = os.open(self._file(gpu), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            self.trouble = f"{self.folder}: {error.strerror}"
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise
        with suppress(OSError):  # a full disk: the lock holds, only its holder has no name
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle

    def _make_folder(self) -> None:
        if self._made:
            return
        self._made = True
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.folder.lstat()
        except OSError as error:
            self.trouble = f"{self.folder}: {error.strerror}"
            return
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            self.trouble = f"{self.folder} is not a folder of this user's"

    def _file(self, gpu: str) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9-]', '-', gpu)}.lock"

    def holder(self, gpu: str) -> str:
        """Return who has a lease: the holder in this run that took it, or ``process 123``."""
        if gpu in self._held:
            return self._held[gpu][0]
        text = ""
        with suppress(OSError):
            text = self._file(gpu).read_text(errors="replace")
        return f"process {text}" if text.isdigit() else "another process"
