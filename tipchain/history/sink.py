"""What a coordinator calls when a night has ended: results reach the database, or wait on the disk."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tipchain.errors import HistoryError, RecordError
from tipchain.history import outbox
from tipchain.history.handed import missed_nights, note_handed
from tipchain.history.ingest import Source, read_source
from tipchain.history.places import FOLDER, Place, make_folder, place_of
from tipchain.history.store import History


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
        for told in hand_on_missed(
            folder.parent, but=folder, root=Path(source.entry.root), database=self.database
        ):
            print(told, file=sys.stderr)
        self.kept = keep_source(source, root=Path(source.entry.root), database=self.database)
        if self.kept.message:
            print(self.kept.message, file=sys.stderr)


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


def keep_source(source: Source, *, root: Path, database: str | None = None) -> Kept:
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


def hand_on_missed(
    nights: Path, *, root: Path, database: str | None = None, but: Path | None = None
) -> list[str]:
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


def _has(place: Place, root: Path, key: str) -> bool:
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
    count = len(outbox.waiting(place))
    if not count:
        return Kept(sent=True)
    try:
        return _send(_open(place, root))
    except (HistoryError, OSError) as error:
        return Kept(sent=False, message=f"history: {error}\n  {count} wait in {place.outbox}", waiting=count)


def _open(place: Place, root: Path) -> History:
    if place.file is not None and place.file.parent == root / FOLDER:
        make_folder(root)
    return History(place)


def _send(history: History) -> Kept:
    """Send what waits."""
    place, sent = history.place, outbox.send(history)
    lines = [f"history: {one.name}, which waited, is in {place} now" for one in sent.added]
    lines += [f"history: {sent.waiting} in {place.outbox} still wait: {sent.problem}"] if sent.waiting else []
    return Kept(sent=not sent.waiting, new=sum(one.new for one in sent.added), message="\n".join(lines),
                waiting=sent.waiting)  # fmt: skip


def _note(source: Source, place: Place) -> None:
    if source.night is not None and source.entry.finished:
        note_handed(source.night, str(place))


def _wait(source: Source, place: Place, error: Exception) -> Kept:
    """Put a night or a report into the outbox, or say why that fails, too."""
    reason = str(error) if isinstance(error, HistoryError) else f"{place}: {error}"
    file, end = None, ""
    try:
        file = outbox.keep(place, source)
        _note(source, place)
        end = f"  kept in {file}, sent at the next call"
    except OSError as trouble:
        where = source.night or source.entry.name
        end = (
            f"  nor could the results be kept in {place.outbox}: {trouble.strerror or trouble}\n"
            f"  hint: they are in {where}; tipchain history add sends them later"
        )
    message = f"history: {reason}\n{end}"
    return Kept(sent=False, message=message, waiting=len(outbox.waiting(place)), kept=file)
