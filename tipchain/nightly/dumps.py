"""What is large of what items leave: weights, tensors, exported models; all but texts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TEXTS = frozenset(
    {".csv", ".html", ".json", ".jsonl", ".lock", ".log", ".md", ".txt", ".xml", ".yaml", ".yml"}
)
"""Ends of the names of files that are kept: logs, reports, settings."""


def drop_dumps(folder: Path) -> None:
    """Delete all files of an attempt but texts; links are deleted, not followed, and what cannot be deleted stays."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place) / name
            if path.is_symlink() or path.suffix not in TEXTS:
                with suppress(OSError):
                    path.unlink()
