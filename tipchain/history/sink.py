"""What ended nights hand on: it reaches the database, or waits on the disk and is sent at the next call."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tipchain.errors import HistoryError, RecordError
from tipchain.history.facts import EntryFacts, ItemFacts, facts_json, parse_entry, parse_item
from tipchain.history.ingest import IngestSource, read_source
from tipchain.history.places import FOLDER, HistoryPlace, make_folder, place_of
from tipchain.history.store import Added, History
from tipchain.language import say
from tipchain.nightly.nights import holder, nights_below
from tipchain.nightly.records import FINISHED
from tipchain.runs import atomic_write, replacing

# Which finished nights were handed on to a history: a file in a night's folder says so.
#
# A coordinator that is killed after it wrote ``finished.json`` and before the history had the night leaves one without that
# file. The next call that looks at the manifest's nights finds it, and hands it on.

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


# What could not be written to the database waits in files, and is sent at the next call.
#
# ::
#
#     .tipchain/outbox/<database>/<began>-<key>.jsonl.gz      one night or report each, whole
#
# A file stands for itself: the night's folder or the report may be gone by the time it is sent. It is removed once all
# of it is in the database; being killed before that only means that it is sent again, which adds nothing twice.

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


def keep(place: HistoryPlace, source: IngestSource) -> Path:
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


def waiting(place: HistoryPlace) -> list[Path]:
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
            return _send_files(history, files)
    except (Timeout, OSError):
        return Sent(waiting=len(waiting(place)), problem="another process is sending them")


def _send_files(history: History, files: list[Path]) -> Sent:
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


# What a coordinator calls when a night has ended: results reach the database, or wait on the disk.


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Where results are now.

    Attributes:
        sent: whether the database has them.
        new: items that it did not have before.
        message: one or more lines for the user; "" if there is nothing to be said.
        waiting: nights and reports in the outbox.
        kept: the outbox's file of these results; None if they were sent, or could not be kept there either.
    """

    sent: bool
    new: int = 0
    message: str = ""
    waiting: int = 0
    kept: Path | None = None


class HistorySink:
    """Adds each night that it is given to the history, and says on standard error what there is to be said.

    Args:
        database: a URL or a file; None for what TIPCHAIN_DATABASE says, or else the night's project's own.

    Attributes:
        kept: where the results of the last night are; None before the first.
    """

    def __init__(self, database: str | None = None) -> None:
        self.database = database
        self.kept: Kept | None = None

    def __call__(self, folder: Path) -> None:
        """Add the night in ``folder``, or put it into the outbox; before it those that a kill kept from being added."""
        source = read_source(folder)
        for told in hand_on_missed(folder.parent, but=folder, root=Path(source.entry.root), database=self.database):
            print(say(told), file=sys.stderr)
        self.kept = keep_source(source, root=Path(source.entry.root), database=self.database)
        if self.kept.message:
            print(say(self.kept.message), file=sys.stderr)


def keep_results(path: Path, *, root: Path, database: str | None = None) -> Kept:
    """Add a night's folder, or a report, to the history, and what waited from before.

    Trouble with the history is never raised: results that the database does not take go to the outbox, and are sent
    at the next call. May be called several times for a night, as with one that goes on.

    Args:
        path: a night's folder, a report, or a run's folder.
        root: the project's folder.
        database: a URL or a file; None for what TIPCHAIN_DATABASE says, or else the project's own.

    Raises:
        UsageError: the database's URL cannot be understood.
        RecordError: there is neither a night nor a report.
    """
    return keep_source(read_source(path), root=root, database=database)


def keep_source(source: IngestSource, *, root: Path, database: str | None = None) -> Kept:
    """As `keep_results`, of what has been read already."""
    place = place_of(root, database)
    try:
        history = _open(place, root)
        added = history.add(source.entry, source.items())
    except (HistoryError, OSError) as error:
        return _wait(source, place, error)
    _note(source, place)
    waited = _send(history)
    return Kept(sent=True, new=added.new, message=waited.message, waiting=waited.waiting)


def hand_on_missed(nights: Path, *, root: Path, database: str | None = None, but: Path | None = None) -> list[str]:
    """Hand on the finished nights of a manifest that no history was given; return what is to be told, a text each.

    That costs next to nothing where there is none: it looks at the latest nights, back to the last that was handed on.

    Args:
        nights: the folder of the manifest's nights.
        root: the project's folder.
        database: a URL or a file; None for what TIPCHAIN_DATABASE says, or else the project's own.
        but: a night that is handed on otherwise.

    Raises:
        UsageError: the database's URL cannot be understood.
    """
    folders = missed_nights(nights, but)
    if not folders:
        return []
    place = place_of(root, database)
    told = []
    for folder in folders:
        try:
            source = read_source(folder)
        except RecordError as error:
            told.append(f"history: a finished night cannot be handed on: {error}")
            continue
        if _has(place, root, source.entry.key):
            note_handed(folder, str(place))
            continue
        kept = keep_source(source, root=root, database=database)
        told.append(kept.message or f"history: {folder.name}, which had finished before, is in {place} now")
    return told


def _has(place: HistoryPlace, root: Path, key: str) -> bool:
    """Tell whether the history has a night to its end; False where it cannot be asked."""
    try:
        return _open(place, root).has(key)
    except (HistoryError, OSError):
        return False


def send_waiting(*, root: Path, database: str | None = None) -> Kept:
    """Send what waits for the database; trouble with it is told, not raised.

    Raises:
        UsageError: the database's URL cannot be understood.
    """
    place = place_of(root, database)
    count = len(waiting(place))
    if not count:
        return Kept(sent=True)
    try:
        return _send(_open(place, root))
    except (HistoryError, OSError) as error:
        return Kept(sent=False, message=f"history: {error}\n  {count} wait in {place.outbox}", waiting=count)


def _open(place: HistoryPlace, root: Path) -> History:
    if place.file is not None and place.file.parent == root / FOLDER:
        make_folder(root)
    return History(place)


def _send(history: History) -> Kept:
    """Send what waits."""
    place, sent = history.place, send(history)
    lines = [f"history: {one.name}, which waited, is in {place} now" for one in sent.added]
    lines += [f"history: {sent.waiting} in {place.outbox} still wait: {sent.problem}"] if sent.waiting else []
    return Kept(
        sent=not sent.waiting, new=sum(one.new for one in sent.added), message="\n".join(lines), waiting=sent.waiting
    )


def _note(source: IngestSource, place: HistoryPlace) -> None:
    if source.night is not None and source.entry.finished:
        note_handed(source.night, str(place))


def _wait(source: IngestSource, place: HistoryPlace, error: Exception) -> Kept:
    """Put a night or a report into the outbox, or say why that fails, too."""
    reason = str(error) if isinstance(error, HistoryError) else f"{place}: {error}"
    file, end = None, ""
    try:
        file = keep(place, source)
        _note(source, place)
        end = f"  kept in {file}, sent at the next call"
    except OSError as trouble:
        where = source.night or source.entry.name
        end = (
            f"  nor could the results be kept in {place.outbox}: {trouble.strerror or trouble}\n"
            f"  hint: they are in {where}; tipchain history add sends them later"
        )
    message = f"history: {reason}\n{end}"
    return Kept(sent=False, message=message, waiting=len(waiting(place)), kept=file)
