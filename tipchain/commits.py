"""The commits between two runs, if the repository has them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

DIRTY = "-dirty"
_HASH = re.compile(r"[0-9a-f]{4,40}")
_DESCRIBED = re.compile(r".*-g([0-9a-f]{4,40})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """What was committed between two runs.

    Attributes:
        span: ``4b72afe..2a83178``; "" where both ran on the same commit, or neither is known.
        count: how many; None where the repository does not have them.
        subjects: the latest first: short hash and first line.
        backwards: whether the later run is on an ancestor of the earlier's commit.
    """

    span: str = ""
    count: int | None = None
    subjects: tuple[str, ...] = ()
    backwards: bool = False


def commits_between(root: Path, before: str, after: str, most: int = 5) -> Commits:
    """Return what was committed between two runs.

    Args:
        root: a folder of the repository.
        before: the earlier run's commit, as ``git describe --always --dirty`` writes it.
        after: the later run's.
        most: how many first lines to return.
    """
    if before == after or not (before or after):
        return Commits()
    span = f"{before or 'unknown'}..{after or 'unknown'}"
    first, last = _hash(before), _hash(after)
    if not first or not last:
        return Commits(span=span)
    if first == last:
        return Commits(span=span, count=0)
    backwards = False
    count = _git(root, "rev-list", "--count", f"{first}..{last}")
    if count == "0" and (other := _git(root, "rev-list", "--count", f"{last}..{first}")):
        count, first, last, backwards = other, last, first, other != "0"
    if not count:
        return Commits(span=span)
    lines = _git(root, "log", f"--max-count={most}", "--format=%h %s", f"{first}..{last}")
    return Commits(span=span, count=int(count), subjects=tuple(lines.splitlines()), backwards=backwards)


def commits_of_file(root: Path, before: str, after: str, file: str, most: int = 3) -> tuple[str, ...]:
    """Return which of the commits between two runs changed a file, the latest first: short hash and first line.

    Args:
        root: a folder of the repository, that ``file`` is relative to.
        before: the earlier run's commit, as ``git describe --always --dirty`` writes it.
        after: the later run's.
        file: the file's path.
        most: how many at most.
    """
    first, last = _hash(before), _hash(after)
    if not first or not last or first == last or not file:
        return ()
    return tuple(
        _git(root, "log", f"--max-count={most}", "--format=%h %s", f"{first}..{last}", "--", file).splitlines()
    )


def _hash(described: str) -> str:
    """Return the hash in what git describe says: of a tag's descendants it has the form ``v1.2-4-g2a83178``."""
    text = described.removesuffix(DIRTY)
    if found := _DESCRIBED.fullmatch(text):
        return found[1]
    # A tag's own name is one that git knows as well as a hash; it must not look like an option.
    return text if _HASH.fullmatch(text) or re.fullmatch(r"\w[\w./-]*", text) else ""


def _git(root: Path, *words: str) -> str:
    """Return what git says; "" where it fails: no git, no repository, no such commit."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
