"""Which finished nights were handed on to a history: a file in a night's folder says so.

A coordinator that is killed after it wrote ``finished.json`` and before the history had the night leaves one without that
file. The next call that looks at the manifest's nights finds it, and hands it on.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from tipchain.nightly.nights import holder, nights_below
from tipchain.nightly.records import FINISHED
from tipchain.runs import atomic_write

HANDED = "history.json"
"""In a night's folder: a history has the night, or it waits in an outbox. Nothing else rests on it."""
LOOKED_AT = 10
"""How many of the latest nights are looked at; those before one that was handed on are not."""


def note_handed(night: Path, database: str) -> None:
    """Note that a finished night was handed on; where that cannot be written, it is looked at again.

    Args:
        night: its folder.
        database: the database, without its password.
    """
    with suppress(OSError):
        atomic_write(night / HANDED, json.dumps({"database": database}) + "\n")


def missed_nights(nights: Path, but: Path | None = None) -> list[Path]:
    """Return finished nights that were not handed on, the oldest first.

    Args:
        nights: the folder of a manifest's nights.
        but: one that is being handed on now.
    """
    found: list[Path] = []
    for folder in nights_below(nights)[:LOOKED_AT]:
        if but is not None and folder.resolve() == but.resolve():
            continue
        if (folder / HANDED).exists():
            break
        # Held by a coordinator: it is about to do so itself.
        if (folder / FINISHED).is_file() and not holder(folder):
            found.append(folder)
    return found[::-1]
