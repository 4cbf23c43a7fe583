"""A bundle that takes another's place: the old one, the new one, and the move itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import inf, isnan
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tipchain.bundle.manifest import DUMPS, BundleManifest
from tipchain.core.language import many
from tipchain.errors import Outcome
from tipchain.framework_types import Array
from tipchain.modes import SOLO, dump_name, tensors_name
from tipchain.numbers.compare import TensorDiff
from tipchain.numbers.dumps import load_record
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import compare
from tipchain.parity.stages.tensors import TensorFile

NEW = "bundle"
"""In a work folder: the bundle that is made."""
EXACT = Tolerance(rtol=0.0, atol=0.0, equal_nan=True)
"""The tolerance of an array that did not move."""
_HERE = -100
"""``AT_FDCWD``: paths are as they stand."""
_EXCHANGE = 2
"""``RENAME_EXCHANGE``, of Linux's ``renameat2``: both names change owners at once."""


def changed_facts(old: BundleManifest, new: BundleManifest) -> dict[str, tuple[str, str]]:
    """Return the facts of two bundles that differ: versions, device, case, sources, weights, inputs."""
    before, after = _facts(old), _facts(new)
    pairs = {name: (before.get(name, ""), after.get(name, "")) for name in {**before, **after}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _facts(manifest: BundleManifest) -> dict[str, str]:
    hashed = {
        manifest.case.file: manifest.case.sha256,
        **manifest.case.sources,
        **{one.file: one.digest for one in manifest.weights.values()},
        **{name: manifest.files.get(name, "") for name in manifest.inputs.values()},
    }
    return {
        **manifest.versions,
        "tipchain": manifest.tipchain,
        "device": manifest.device,
        "commit": manifest.commit,
        "made": manifest.created,
        "stages": ", ".join(manifest.stages),
        **{name: f"sha256 {digest[:12]}" for name, digest in hashed.items()},
    }


def changed_stages(stages: Iterable[str], old: Path, new: Path) -> dict[str, str]:
    """Return how many arrays of each stage moved, and the largest move.

    Raises:
        RecordError: a dump of a bundle cannot be read.
    """
    return {stage: _moved(stage, old / DUMPS, new / DUMPS) for stage in stages if stage not in SOLO}


def _moved(stage: str, old: Path, new: Path) -> str:
    with ExitStack() as files:
        verdicts = compare(_arrays(old, stage, files), _arrays(new, stage, files), EXACT)
    moved = [one for one in verdicts if one.outcome is not Outcome.PASS]
    if not moved:
        return f"{many(len(verdicts), 'array')} as before"
    diffs = [one.diff for one in moved if one.diff and one.diff.expected_shape == one.diff.actual_shape]
    text = f"{len(moved)} of {many(len(verdicts), 'array')} moved"
    if not diffs:
        return text
    farthest = max(diffs, key=_share)
    return f"{text}, {farthest.path} by up to {farthest.max_abs:.3g} of {farthest.expected_max_abs:.3g}"


def _share(diff: TensorDiff) -> float:
    """Return how far an array moved, by its largest value; NaN and Inf moved farthest."""
    share = diff.max_abs / (diff.expected_max_abs or 1.0)
    return inf if isnan(share) else share


def _arrays(folder: Path, stage: str, files: ExitStack) -> Mapping[str, Array]:
    """Return all arrays of a stage; a bundle without the stage has none."""
    arrays: dict[str, Array] = {}
    if (folder / dump_name(stage, "torch")).is_file():
        arrays |= load_record(folder / dump_name(stage, "torch")).arrays
    if (folder / tensors_name(stage, "torch")).is_file():
        tensors = files.enter_context(TensorFile(folder / tensors_name(stage, "torch")))
        arrays |= {name: np.asarray(tensors[name]) for name in tensors}
    return arrays


@contextmanager
def work_folder(place: Path) -> Iterator[Path]:
    """Yield a folder beside a bundle's place, on the same disk; it is gone afterwards."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{place.name}.tipchain-", dir=place.parent, ignore_cleanup_errors=True) as work:
        (Path(work) / NEW).mkdir()
        yield Path(work)


def replace_bundle(place: Path, work: Path) -> None:
    """Put the new bundle of a work folder where ``place`` is; the old one goes with the work folder.

    Whoever opens ``place`` meanwhile finds either of them. Where the file system cannot exchange two folders, there is
    none for a moment, and a kill in it leaves the old one beside its place.

    Raises:
        OSError: it cannot be done; the old folder is then where it was.
    """
    if _exchange(place, work / NEW):
        return
    old = place.with_name(f"{place.name}.old")
    place.rename(old)
    try:
        (work / NEW).rename(place)
    except OSError:
        old.rename(place)
        raise
    old.rename(work / old.name)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, and tell whether that was done."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # no glibc that has it
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)
