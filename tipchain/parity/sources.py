"""The user's own source files that this process has imported, known by their content."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tipchain.blame import is_users


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a small file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def imported_sources(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of the user's that is imported, by its path as seen from ``root``."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {
        os.path.relpath(file, root): file_hash(Path(file))
        for file in sorted(filter(None, files))
        if file.endswith(".py") and is_users(file) and Path(file).is_absolute()
    }
