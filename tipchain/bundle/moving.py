"""A bundle that takes another's place: what it was, what it is, and the move itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tipchain.bundle.manifest import DUMPS, BundleManifest, StoredBundle
from tipchain.framework_types import Array
from tipchain.modes import SOLO, dump_name, tensors_name
from tipchain.numbers.compare import TensorDiff, diff_arrays
from tipchain.numbers.dumps import load_record
from tipchain.parity.stages.tensors import TensorFile

NEW = "bundle"
"""In a work folder: the bundle that is made."""
_HERE = -100
"""``AT_FDCWD``: paths are as they stand."""
_EXCHANGE = 2
"""``RENAME_EXCHANGE``, of Linux's ``renameat2``: both names change owners at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """How the dumps of a stage changed.

    Attributes:
        stage: its name.
        arrays: how many there are now.
        moved: how many have other values.
        reshaped: how many have another shape or dtype.
        gone, new: how many only one bundle has.
        largest: the array that moved farthest, by its largest value; "" for none.
        difference: by how much, at most.
        scale: its largest value before.
    """

    stage: str
    arrays: int
    moved: int
    reshaped: int
    gone: int
    new: int
    largest: str
    difference: float
    scale: float


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


def changed_stages(old: StoredBundle, new: StoredBundle) -> list[StageChange]:
    """Return how the dumps of each stage of either bundle changed.

    Raises:
        RecordError: a dump of a bundle cannot be read.
    """
    stages = dict.fromkeys([*old.manifest.stages, *new.manifest.stages])
    return [_stage(stage, old.folder / DUMPS, new.folder / DUMPS) for stage in stages if stage not in SOLO]


def _stage(stage: str, old: Path, new: Path) -> StageChange:
    with ExitStack() as files:
        before, after = (_arrays(folder, stage, files) for folder in (old, new))
        both = [(name, before[name], after[name]) for name in before if name in after]
        alike = [one for one in both if (one[1].shape, one[1].dtype) == (one[2].shape, one[2].dtype)]
        moved = [diff_arrays(*one, equal_nan=True) for one in alike if one[1].tobytes() != one[2].tobytes()]
        farthest = max(moved, key=_share, default=None)
        return StageChange(
            stage=stage,
            arrays=len(after),
            moved=len(moved),
            reshaped=len(both) - len(alike),
            gone=len(before) - len(both),
            new=len(after) - len(both),
            largest=farthest.path if farthest else "",
            difference=farthest.max_abs if farthest else 0.0,
            scale=farthest.expected_max_abs if farthest else 0.0,
        )


def _share(diff: TensorDiff) -> float:
    """Return how far an array moved, by its largest value; what is no number moved farthest."""
    share = diff.max_abs / diff.expected_max_abs if diff.expected_max_abs else inf
    return share if share == share else inf  # noqa: PLR0124


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
