"""Put a bundle in another's place, in one step where the system can."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from pathlib import Path

_HERE = -100
"""``AT_FDCWD``: paths are as they stand."""
_EXCHANGE = 2
"""``RENAME_EXCHANGE``, of Linux's ``renameat2``: both names change owners at once."""


def replace_folder(place: Path, new: Path) -> None:
    """Put the folder ``new`` where the folder ``place`` is, on the same disk; the old one is removed.

    Whoever opens ``place`` meanwhile finds either of them. Where the file system cannot exchange two folders, there is
    none for a moment; if the second step fails, the first is taken back.

    Raises:
        OSError: it cannot be done; the old folder is then where it was.
    """
    if _exchange(place, new):
        shutil.rmtree(new, ignore_errors=True)
        return
    aside = place.with_name(f".{place.name}.{secrets.token_hex(4)}.old")
    os.replace(place, aside)  # noqa: PTH105
    try:
        os.replace(new, place)  # noqa: PTH105
    except OSError:
        os.replace(aside, place)  # noqa: PTH105
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, and tell whether that was done."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # no glibc that has it
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)
