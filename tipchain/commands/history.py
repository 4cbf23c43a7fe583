"""``tipchain history add|list|show|diff``: nights and runs, and the changes between them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import add_action, add_json, add_options, count, run_action, show
from tipchain.core.files import project_above
from tipchain.core.language import say
from tipchain.errors import ExitCode, UsageError, suggestion

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tipchain.history.store import HistoryPlace

NAME_HELP = "a name that `list` shows, a part of one, latest, or latest~1 for the one before of its kind"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "tipchain history ACTION --help says more about one of them. "
        "docs/how-to/history.md explains what is kept, and where."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    add = add_action(actions, "add", "add nights and reports", _add)
    add.add_argument(
        "paths", nargs="+", type=Path, metavar="NIGHT|REPORT", help="a night's folder, a report.json, a run's folder"
    )
    listing = add_action(actions, "list", "list nights and runs, the latest first", _list)
    listing.add_argument("--name", metavar="TITLE", help="only of this manifest, or report's title")
    listing.add_argument(
        "--limit", type=count("nights or runs"), default=20, metavar="N", help="how many at most (default 20)"
    )
    show = add_action(actions, "show", "show a night or a run, or an item of it", _show)
    show.add_argument("night", metavar="NAME", help=NAME_HELP)
    show.add_argument("item", nargs="?", metavar="ITEM", help="its commands, figures, and verdicts other than PASS")
    changed = add_action(actions, "diff", "say what changed since the last comparable run", _diff)
    changed.add_argument("night", nargs="?", default="latest", metavar="NAME", help=f"{NAME_HELP} (default: latest)")
    changed.add_argument("--against", metavar="NAME", help="compare with this one instead of the last comparable")
    changed.add_argument("--all", action="store_true", help="show every line (default: the first five of each kind)")
    changed.add_argument("--name", metavar="TITLE", help="the latest of this manifest, or report's title")
    for action in (add, listing, show, changed):
        add_options(action, "database")
        action.add_argument(
            "--root", type=Path, metavar="DIR", help="the project's folder (default: the nearest above)"
        )
        if action is not add:
            add_json(action, "the same")


run = run_action


def _place(args: argparse.Namespace) -> HistoryPlace:
    from tipchain.history.store import place_of

    return place_of(args.root.absolute() if args.root else project_above(Path.cwd()), args.database)


@contextmanager
def _reading(args: argparse.Namespace) -> Iterator[tuple[Session, Path]]:
    from tipchain.history.store import History

    place = _place(args)
    if place.file is not None and not place.file.exists():
        raise UsageError(f"{place}: there is no history yet\n  hint: tipchain history add NIGHT_OR_REPORT makes one")
    with History(place).reading() as session:
        yield session, place.root


def _add(args: argparse.Namespace) -> int:
    from tipchain.history.ingest import read_source
    from tipchain.history.store import History

    history = History(_place(args))
    for source in [read_source(path) for path in args.paths]:
        new = history.add(source.entry, source.items())
        print(say(f"{source.entry.name}: {f'{new} new items' if new else 'nothing new'}"))
    return ExitCode.PASSED


def _list(args: argparse.Namespace) -> int:
    from tipchain.history.entries import list_entries
    from tipchain.history.render import entry_json, list_text

    with _reading(args) as (session, _):
        found = list_entries(session, title=args.name, limit=args.limit)
    show(args.json, lambda: [entry_json(one) for one in found], lambda: list_text(found))
    return ExitCode.PASSED


def _show(args: argparse.Namespace) -> int:
    from tipchain.core.json_text import as_json
    from tipchain.errors import Outcome
    from tipchain.history.entries import find_entry, items_of
    from tipchain.history.render import entry_json, item_json, item_text, show_text

    with _reading(args) as (session, _):
        entry = find_entry(session, args.night)
        items = items_of(session, entry)
        if args.item and args.item not in items:
            raise UsageError(f"{args.item}: is no item of {entry.name}{suggestion(args.item, items)}")
        chosen = [items[args.item]] if args.item else list(items.values())
        verdicts = [one for one in chosen[0].verdicts if one.outcome is not Outcome.PASS] if args.item else []
        told = {"verdicts": as_json(verdicts)} if args.item else {}
        show(
            args.json,
            lambda: {**entry_json(entry), "items": [item_json(one) for one in chosen], **told},
            lambda: item_text(chosen[0], verdicts) if args.item else show_text(entry, chosen),
        )
    return ExitCode.PASSED


def _diff(args: argparse.Namespace) -> int:
    """Tell the changes since the last comparable run; the exit code is 1 if a night's shares are not those of one plan."""
    from tipchain.history.changes import changes, last_comparable
    from tipchain.history.entries import find_entry
    from tipchain.history.render import changes_json, changes_text, entry_json, first_text

    with _reading(args) as (session, root):
        entry = find_entry(session, args.night, title=args.name)
        before = find_entry(session, args.against) if args.against else last_comparable(session, entry)
        place = Path(entry.root) if Path(entry.root).is_dir() and entry.root else root
        found = changes(session, before, entry, root=place) if before else None
    show(
        args.json,
        lambda: changes_json(found) if found else {"before": None, "after": entry_json(entry)},
        lambda: changes_text(found, shortened=not args.all) if found else first_text(entry),
    )
    return ExitCode.FAILED if entry.wrong else ExitCode.PASSED
