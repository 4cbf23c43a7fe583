"""What killed processes leave outside of nights and runs: dead names of temporary folders, and unfinished bundles."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tipchain.bundle.manifest import KIND, MANIFEST
from tipchain.errors import UsageError

LINK = re.compile(r"tc-[0-9a-f]{10}")
"""Short names of items' temporary folders (`tipchain.nightly.isolation`)."""
UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}(?P<old>\.old)?")
"""Folders beside a bundle's place: the work of `tipchain.bundle.making`, and what `tipchain.bundle.placing` puts aside."""
WORK = frozenset({"bundle", "prepared", "recorded", "truth"})


def dead_links() -> Iterator[Path]:
    """Yield this user's short names of temporary folders that are gone."""
    with suppress(OSError):
        for one in sorted(Path(tempfile.gettempdir()).iterdir()):
            if LINK.fullmatch(one.name) and is_dead(one):
                yield one


def is_dead(link: Path) -> bool:
    """Tell whether a file is a link of this user that leads nowhere."""
    try:
        return link.is_symlink() and link.lstat().st_uid == os.getuid() and not link.exists()
    except OSError:
        return False


def is_unfinished(folder: Path) -> bool:
    """Tell whether a folder is what making or moving a bundle works in: by its name, and by all that is in it."""
    found = UNFINISHED.fullmatch(folder.name)
    if found is None or folder.is_symlink():
        return False
    if found["old"]:
        with suppress(OSError):
            return KIND.encode() in (folder / MANIFEST).read_bytes()
        return False
    with suppress(OSError):
        names = {one.name for one in folder.iterdir()}
        return "bundle" in names and all(name in WORK or UNFINISHED.fullmatch(name) for name in names)
    return False


def needed(folder: Path) -> str:
    """Return why an unfinished bundle must stay; "" if nothing needs it."""
    if is_held(folder):
        return "a bundle is being made or moved in there"
    found = UNFINISHED.fullmatch(folder.name)
    place = folder.with_name(found["name"]) if found else folder
    aside = [one for one in folder.parent.glob(f".{place.name}.*.old") if is_unfinished(one)]
    if aside and not place.exists():
        return f"a move was killed half-way: {aside[0].name} is what belongs to {place.name}"
    return ""


def is_held(folder: Path) -> bool:
    """Tell whether a living process works in a folder, or that cannot be told."""
    try:
        with holding(folder):
            return False
    except (UsageError, OSError):
        return True


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold a folder that bundles are made in while the block runs, as making one does.

    Raises:
        UsageError: another process holds it.
        OSError: it is gone, or the disk knows no locks.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(f"{folder}: another process works in it") from None
    except BaseException:
        os.close(handle)
        raise
    try:
        yield
    finally:
        os.close(handle)
