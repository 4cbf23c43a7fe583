"""What could not be written to the database waits in files, and is sent at the next call.

::

    .tipchain/outbox/<database>/<began>-<key>.jsonl.gz      one night or report each, whole

A file stands for itself: the night's folder or the report may be gone by the time it is sent. It is removed once all
of it is in the database; being killed before that only means that it is sent again, which adds nothing twice.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tipchain.errors import HistoryError, RecordError
from tipchain.history.facts import EntryFacts, ItemFacts, facts_json, parse_entry, parse_item
from tipchain.history.ingest import Source
from tipchain.history.places import Place, make_folder
from tipchain.history.store import Added, History
from tipchain.runs import replacing

FORMAT = 1
SUFFIX = ".jsonl.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What sending came to.

    Attributes:
        added: what is in the database now, and was waiting.
        waiting: how many files still wait.
        problem: why; "" if none does.
    """

    added: tuple[Added, ...] = ()
    waiting: int = 0
    problem: str = ""
    unreadable: tuple[Path, ...] = field(default_factory=tuple)


def keep(place: Place, source: Source) -> Path:
    """Write a night or a report into the outbox, whole or not at all, and return the file.

    Raises:
        OSError: it cannot be written.
    """
    make_folder(place.outbox.parents[2])
    entry = source.entry
    digest = hashlib.sha256(entry.key.encode()).hexdigest()[:12]
    path = place.outbox / f"{max(int(entry.began), 0):012d}-{digest}{SUFFIX}"
    with replacing(path) as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        head = {"format": FORMAT, "entry": facts_json(entry)}
        packed.write(json.dumps(head).encode() + b"\n")
        for item in source.items():
            packed.write(json.dumps(facts_json(item)).encode() + b"\n")
        packed.write(b"end\n")
    return path


def waiting(place: Place) -> list[Path]:
    """Return the files that wait for a database, the oldest night first."""
    return sorted(place.outbox.glob(f"[!.]*{SUFFIX}"))


def send(history: History) -> Sent:
    """Add all that waits for this database; stop at the first that it does not take.

    What another process is sending is left to that. A file that cannot be read stays, and is named.
    """
    from filelock import FileLock, Timeout

    place = history.place
    files = waiting(place)
    if not files:
        return Sent()
    try:
        with FileLock(place.outbox / ".lock", timeout=0):
            return _send(history, files)
    except (Timeout, OSError):
        return Sent(waiting=len(waiting(place)), problem="another process is sending them")


def _send(history: History, files: list[Path]) -> Sent:
    added: list[Added] = []
    unreadable: list[Path] = []
    for number, path in enumerate(files):
        try:
            entry = read_entry(path)
            added.append(history.add(entry, read_items(path)))
        except RecordError:
            unreadable.append(path)
            continue
        except HistoryError as error:
            left = len(files) - number + len(unreadable)
            return Sent(added=tuple(added), waiting=left, problem=str(error), unreadable=tuple(unreadable))
        with suppress(FileNotFoundError):
            path.unlink()
    problem = f"{unreadable[0]}: cannot be read" if unreadable else ""
    return Sent(added=tuple(added), waiting=len(unreadable), problem=problem, unreadable=tuple(unreadable))


def read_entry(path: Path) -> EntryFacts:
    """Return the entry of a file that waits.

    Raises:
        RecordError: it cannot be read, or not to its end.
    """
    lines = list(_lines(path, last=1))
    try:
        head = json.loads(lines[0])
        entry = parse_entry(head["entry"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RecordError(f"is not from an outbox: {type(error).__name__} {error}", file=path) from error
    if head["format"] != FORMAT:
        raise RecordError("has another format", file=path, found=repr(head["format"]), expected=FORMAT)
    return entry


def read_items(path: Path) -> Iterator[ItemFacts]:
    """Yield the items of a file that waits.

    Raises:
        RecordError: it cannot be read, or not to its end.
    """
    for number, line in enumerate(_lines(path)):
        if number == 0:
            continue
        try:
            yield parse_item(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"is not from an outbox: {type(error).__name__} {error}", file=path, line=number + 1
            ) from error


def _lines(path: Path, last: int | None = None) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if line == "end\n" or number == last:
                    return
                yield line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise RecordError(f"cannot be read: {error}", file=path, expected="a file of the outbox") from error
    raise RecordError("does not go to its end", file=path, expected="a file of the outbox")
