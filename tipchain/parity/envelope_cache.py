"""The perturbed runs behind an envelope, kept so that a second alignment need not repeat them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tipchain.modes import DATA_FOLDER
from tipchain.parity.frameworks.base import Array
from tipchain.runs import atomic_write

if TYPE_CHECKING:
    from tipchain.parity.stages.bench import Bench

FORMAT = 1
"""Number of the cached files' format."""
ENVELOPES = DATA_FOLDER / "envelopes"
KEPT = 8
"""Files that one case keeps: modes, seeds and machines take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeCache:
    """A file with the losses of the perturbed runs and of the unperturbed one.

    It serves only where its key is the one wanted and the unperturbed losses are those of now, bit by bit: torch repeats
    itself on a CPU, so whatever changed since (weights, data, the model's source, versions, threads) shows there.

    Attributes:
        folder: of all files of the case.
        key: SHA-256 of what the runs depend on, as far as it can be told.
    """

    folder: Path
    key: str

    @classmethod
    def of(cls, bench: Bench) -> EnvelopeCache:
        """Return the cache of a bench's training."""
        case = bench.case
        facts: dict[str, Any] = {
            "format": FORMAT,
            "case": case.digest,
            "seed": case.seed,
            "train": repr(case.train),
            "files": [os.path.relpath(path, case.root) for path in (bench.weights, bench.train_data) if path],
            "versions": bench.framework.versions(),
            "threads": os.environ.get("OMP_NUM_THREADS", ""),
        }
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return cls(folder=case.root / ENVELOPES / case.id, key=key)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.key[:16]}.json"

    def runs(self, reference: Array, count: int, make: Callable[[int], Sequence[float]]) -> Array:
        """Return the losses of ``count`` perturbed runs, float64 ``[count, steps]``, made where the file does not serve.

        Args:
            reference: losses of the unperturbed run, float64 ``[steps]``.
            count: number of runs.
            make: makes the losses of the run of a number from 0.
        """
        found = self._read(reference, count)
        if found is not None:
            return found
        made = np.array([make(number) for number in range(count)], dtype=np.float64)
        self._write(reference, made)
        return made

    def _read(self, reference: Array, count: int) -> Array | None:
        """Return what the file holds, or None where there is none, it is damaged, or it is of something else."""
        try:
            content = json.loads(self.path.read_bytes())
            known, runs = (np.asarray(content[name], dtype=np.float64) for name in ("reference", "runs"))
            if content["key"] != self.key or runs.shape != (count, len(reference)):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return runs if np.array_equal(known, reference, equal_nan=True) else None

    def _write(self, reference: Array, runs: Array) -> None:
        content = {"key": self.key, "reference": reference.tolist(), "runs": runs.tolist()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self.path, json.dumps(content) + "\n")
        except OSError as error:  # a read-only or full disk costs time, no result
            print(f"{self.path}: the envelope was not saved: {error}", file=sys.stderr)
            return
        files = sorted(self.folder.glob("*.json"), key=lambda path: (path != self.path, -_modified(path)))
        for path in files[KEPT:]:
            path.unlink(missing_ok=True)


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
