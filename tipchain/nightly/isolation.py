"""What an item has for itself: temporary files, ports, devices, environment.

An item inherits the environment, without what tipchain tells the commands of a run that the night itself may be part
of, and its own variables on top. ``HOME`` and caches of byte code stay as they are: Python replaces such a file whole,
and a cache of its own would let every item compile its frameworks anew.

``TMPDIR`` is a folder in the attempt's own, under a short name: sockets in it may have 107 characters (unix(7)). Leases
of GPUs that a chain takes stand below it, too, so they hold within the item; between items the night's leases hold.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tipchain import language
from tipchain.chain import gpus as machine_gpus
from tipchain.chain.execute import LOG_COLUMNS
from tipchain.chain.gpus import VARIABLE as LEASED
from tipchain.chain.gpus import Leases, lease_folder
from tipchain.nightly.items import Item
from tipchain.nightly.machine import VISIBLE
from tipchain.runs import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE

TMP = "tmp"
LONGEST_TMP = 60
"""Longest path of a folder of temporary files that leaves room for the names of sockets."""
FIRST_PORT, PORTS, BLOCKS = 20000, 32, 380
"""Ports below those that systems give to outgoing connections (32768 by default), in blocks, one for each item."""
DROPPED = (RUN_VARIABLE, MODE_VARIABLE, DATA_VARIABLE, VISIBLE)


def environment(
    item: Item, path: str, *, tmp: Path, port: int, gpus: Sequence[str] = (), inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment of an item's process.

    Args:
        item: the item.
        path: where programs are looked for, of the project's folder on this machine.
        tmp: its folder of temporary files.
        port: the first of `PORTS` ports.
        gpus: what it may use, as CUDA names them; none hides all.
        inherited: what it has besides; this process's.
    """
    kept = {name: value for name, value in inherited.items() if name not in DROPPED}
    # paddle.distributed.launch takes an empty setting for one device without a name: only what is there is hidden.
    seen = {VISIBLE: ",".join(gpus)} if gpus or any(machine_gpus.DEVICES.glob("nvidia[0-9]*")) else {}
    own = {
        "TMPDIR": str(tmp),
        "MASTER_PORT": str(port),
        "PADDLE_PORT": str(port + 1),
        "PORT_RANGE": f"{port + 2}:{port + PORTS - 1}",  # paddle.distributed.launch takes its ports from there
        "COLUMNS": LOG_COLUMNS,
        language.VARIABLE: "en",  # a night's records are the same whoever reads them
        "PATH": path,
    }
    # A chain's file counts its GPUs from 0: among those of the item.
    return {**kept, **own, **item.env, **seen, LEASED: ",".join(gpus)}


def make_tmp(folder: Path) -> Path:
    """Make an attempt's folder of temporary files; return the name under which it is used, a short one.

    Raises:
        OSError: it cannot be made.
    """
    path = folder / TMP
    path.mkdir()
    if len(str(path)) <= LONGEST_TMP:
        return path
    link = _link(folder)
    with suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(path)
    return link


def remove_tmp(folder: Path) -> None:
    """Remove an attempt's temporary files, and the short name they had; what cannot be removed stays."""
    with suppress(OSError):
        _link(folder).unlink()
    path = folder / TMP
    try:
        path.rmdir()
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _link(folder: Path) -> Path:
    digest = hashlib.sha256(f"{os.getuid()} {folder}".encode()).hexdigest()[:10]
    return Path(tempfile.gettempdir()) / f"tc-{digest}"


class Ports:
    """Blocks of ports, held by leases as GPUs are: no two items of one user's nights on a machine have the same."""

    def __init__(self, folder: Path | None = None) -> None:
        self._leases = Leases((folder or lease_folder()) / "ports")
        self._next = os.getpid() % BLOCKS
        self._held: dict[int, str] = {}

    def take(self, holder: str) -> int:
        """Return the first port of a block that is free.

        Raises:
            OSError: all are taken.
        """
        for _ in range(BLOCKS):
            number, self._next = self._next, (self._next + 1) % BLOCKS
            first, name = FIRST_PORT + number * PORTS, f"ports-{number}"
            if self._leases.take((name,), holder):
                continue
            if _is_free(first):
                self._held[first] = name
                return first
            self._leases.give_back((name,))
        raise OSError(98, "all ports are taken", f"{FIRST_PORT} to {FIRST_PORT + BLOCKS * PORTS - 1}")

    def give_back(self, first: int) -> None:
        """Give a block back."""
        self._leases.give_back((self._held.pop(first),))


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True
