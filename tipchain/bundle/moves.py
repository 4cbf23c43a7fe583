"""``baselines.jsonl``: who moved a stored reference, when, why, and on what evidence. One line a move, never rewritten."""

from __future__ import annotations

import getpass
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tipchain.bundle.manifest import Manifest
from tipchain.json_text import parse_json
from tipchain.runs import append

FILE_NAME = "baselines.jsonl"


def log_of(item: Path) -> Path:
    """Return the log beside a stored reference."""
    return item.absolute().parent / FILE_NAME


def write_move(item: Path, move: Mapping[str, Any]) -> None:
    """Append a move of ``item``.

    Raises:
        OSError: it cannot be written.
    """
    append(log_of(item), json.dumps({"item": item.absolute().name, **move}, allow_nan=False))


def moves_of(item: Path) -> list[dict[str, Any]]:
    """Return the moves of ``item``, the oldest first; a line that was not written whole is no move."""
    try:
        lines = log_of(item).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            move = parse_json(line)
        except ValueError:
            continue
        if isinstance(move, dict) and move.get("item") == item.absolute().name:
            found.append(move)
    return found


def untold(item: Path, manifest: Manifest) -> str:
    """Say how a bundle came to its place if not by its last move; "" where no move is told, or that one left it."""
    done = [move for move in moves_of(item) if not move.get("undone")]
    undone = [move for move in moves_of(item) if move.get("undone")]
    taken_back = {(move.get("when"), _content(move, "new")) for move in undone}
    done = [move for move in done if (move.get("when"), _content(move, "new")) not in taken_back]
    if not done or _content(done[-1], "new") == manifest.content:
        return ""
    return (
        f"{log_of(item)} tells of another one: it was put there without rebaseline, or a move was cut short\n"
        f"  found: content {manifest.content[:12]}…\n  expected: {_content(done[-1], 'new')[:12]}…, "
        f"moved {done[-1].get('when')}\n  hint: tipchain rebaseline {item} --force --why … records it as it is"
    )


def _content(move: Mapping[str, Any], side: str) -> str:
    found = move.get(side)
    return str(found.get("content", "")) if isinstance(found, Mapping) else ""


def identity(manifest: Manifest) -> dict[str, Any]:
    """Return what a move says about a bundle."""
    return {
        "content": manifest.content,
        "case": manifest.case.sha256,
        "sources": dict(manifest.case.sources),
        "versions": dict(manifest.versions),
        "tipchain": manifest.tipchain,
        "commit": manifest.commit,
        "created": manifest.created,
    }


def who(folder: Path) -> str:
    """Return the user as git knows them, else as the machine does."""
    found = [_git(folder, key) for key in ("user.name", "user.email")]
    if found[0]:
        return f"{found[0]} <{found[1]}>" if found[1] else found[0]
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user, no name in the environment
        return "unknown"


def _git(folder: Path, key: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "config", "--get", key],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
