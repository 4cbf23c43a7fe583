"""``baselines.jsonl``: who moved a stored reference, when, why, and on what evidence. One line a move, never rewritten."""

from __future__ import annotations

import getpass
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tipchain.bundle.manifest import Manifest
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
            move = json.loads(line)
        except ValueError:
            continue
        if isinstance(move, dict) and move.get("item") == item.absolute().name:
            found.append(move)
    return found


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
