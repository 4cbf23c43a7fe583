"""What a night leaves on the disk, written so that a kill at any time leaves either the old or the new.

::

    NIGHTS/<night>/                   <night>: 20261121-221722-0a3f1, sorts as nights began
      night.json                      the plan, whole; who, where, commit, environment; written once, before anything runs
      lock                            held (flock) by the coordinator, until its process ends
      items/<slug>/                   <slug>: the item's id with what file names do not like replaced, and a hash
        attempt-<n>/                  made before the item starts; a folder of its own: output.log, report.json, tmp/
        ended.json                    the `ItemRecord` of the attempt that counts; an item has ended if and only if it is there
      finished.json                   how many ended how; written last

``ended.json`` names the night's token and the attempt: one that does not belong is never taken for this run's.
The three documents carry a checksum of all that they say. One whose checksum is wrong was damaged, and what it says of an
item counts as an ERROR, whatever it was before.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tipchain.foreign_text import clean
from tipchain.json_text import parse_as, read_json
from tipchain.outcome import Outcome
from tipchain.runs import atomic_write

FORMAT = 2
"""What is written. Documents of format 1 are read too: they need have no checksum."""
CHECKSUM = "sha256"
NIGHT, ENDED, FINISHED, LOCK, ITEMS = "night.json", "ended.json", "finished.json", "lock", "items"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRecord:
    """How an item ended in a night.

    Attributes:
        id: the item's id.
        token: the night's, drawn when it began.
        attempt: which attempt this was, from 1; 0 if nothing was run.
        outcome: PASS, FAIL, ERROR or SKIP.
        reason: one line that can be shown and stored anywhere; "" for a PASS. What a terminal, XML or a database would
            choke on is taken out, whoever wrote it.
        exit_code: None where a signal ended it or nothing ran.
        signal: the signal that ended it, 0 for none.
        started: ISO 8601 with offset, by the machine's clock; for people only.
        seconds: by a monotonic clock.
        peak_memory_mb: MiB; 0 where it is not known.
        machine: the host's name.
        executor: ``local`` or ``ray``.
        log: the log's path below the night's folder; "" without one.
        report: the JSON report's, likewise.
        artifacts: SHA-256 of what the report says was left, by path below the attempt's folder or the root, without the
            name of the chain's run in it, so that it is the same in every night.
    """

    id: str
    token: str
    attempt: int
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    signal: int = 0
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    machine: str = ""
    executor: str = ""
    log: str = ""
    report: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take what cannot be shown out of the reason: it often is the last line of an item's output."""
        if not self.reason.isprintable():
            object.__setattr__(self, "reason", _shown(self.reason))


class DamagedRecord(ItemRecord):
    """Stands for a record that is there and cannot be read: an ERROR, until the item has run again."""

    __slots__ = ()


def _shown(text: str) -> str:
    """Return a text on one line without escape sequences, control characters and halves of characters."""
    line = clean(" ".join(text.split()))
    return " ".join("".join(letter for letter in line if letter.isprintable()).split())


def slug_of(item_id: str) -> str:
    """Return a name for an item's folder: readable, at most 120 characters, never the same for two ids."""
    digest = hashlib.sha256(item_id.encode(errors="surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", item_id).strip("-.")[:100]
    return f"{readable}-{digest}"


def item_folder(night: Path, item_id: str) -> Path:
    """Return the folder of an item in a night's folder."""
    return night / ITEMS / slug_of(item_id)


def write_record(night: Path, record: ItemRecord) -> None:
    """Write an item's record, whole or not at all. A link or folder that an item made in its place is moved aside.

    Raises:
        OSError: the disk is full or the folder cannot be written to.
    """
    document = {**asdict(record), "outcome": record.outcome.name}
    path = item_folder(night, record.id) / ENDED
    if path.is_symlink() or path.is_dir():
        path.rename(path.with_name(f"not-{secrets.token_hex(4)}-{ENDED}"))
    write_document(path, document)


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write one of a night's documents, with its format and checksum, whole or not at all.

    Raises:
        OSError: the disk is full or the folder cannot be written to.
    """
    whole = {"format": FORMAT, **document}
    atomic_write(path, json.dumps({**whole, CHECKSUM: _checksum(whole)}, sort_keys=True) + "\n")


def read_document(path: Path) -> dict[str, Any]:
    """Return one of a night's documents, as it was written.

    Raises:
        OSError: it cannot be read.
        ValueError: it was damaged, or is none.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") not in (1, FORMAT):
        raise ValueError(f"is not of format {FORMAT}")
    checksum = document.pop(CHECKSUM, None)
    needed = document.pop("format") == FORMAT
    if (needed or checksum is not None) and checksum != _checksum({"format": FORMAT, **document}):
        raise ValueError("its checksum is wrong")
    return document


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_record(night: Path, item_id: str, token: str) -> ItemRecord | None:
    """Return an item's record; None if it has not ended in this night, a `DamagedRecord` if nobody can tell how it did.

    What belongs to another item or night is no record of this one's.
    """
    path = item_folder(night, item_id) / ENDED
    try:
        record = _record(read_document(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return DamagedRecord(
            id=item_id,
            token=token,
            attempt=0,
            outcome=Outcome.ERROR,
            reason=f"how it ended cannot be told: its record {path.relative_to(night)} is damaged: {why}",
        )
    return record if record.id == item_id and record.token == token else None


def _record(document: Mapping[str, Any]) -> ItemRecord:
    """Return the record of a document.

    Raises:
        ValueError: it is none.
    """
    record = parse_as(ItemRecord, document)
    if record.attempt < 0 or record.seconds < 0 or record.peak_memory_mb < 0:
        raise ValueError("a number in it is less than 0")
    for name, path in (("log", PurePosixPath(record.log)), ("report", PurePosixPath(record.report))):
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{name} is not below the night's folder")
    return record
