"""Which samples a side was fed, for the facts beside a dump: both sides must have seen equal batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tipchain.parity.frameworks.base import Array


class BatchLog:
    """Files and labels, batch by batch: a digest of all, the first of them in full.

    Args:
        kept: how many batches are kept in full.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.first: list[dict[str, Any]] = []
        self._digest = hashlib.sha256()

    def add(self, files: Sequence[str], label: Array) -> None:
        """Note one batch."""
        # Labels that are no plain numbers (soft ones, masks) are known by their bytes.
        plain = label.ndim == 1
        labels = label.tolist() if plain else hashlib.sha256(label.tobytes()).hexdigest()
        self._digest.update(json.dumps([list(files), labels]).encode())
        if len(self.first) < self.kept:
            self.first.append({"files": list(files), "labels": labels})

    def facts(self) -> dict[str, Any]:
        """Return what goes into the JSON beside the dump."""
        return {"batches": self._digest.hexdigest(), "first_batches": self.first}
