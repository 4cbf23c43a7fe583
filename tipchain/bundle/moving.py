"""A bundle that takes another's place: what it was, what it is, and the move itself."""

from __future__ import annotations

import ctypes
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tipchain.bundle.manifest import DUMPS, BundleManifest, StoredBundle
from tipchain.framework_types import Array
from tipchain.modes import SOLO, dump_name, tensors_name
from tipchain.numbers.compare import diff_arrays
from tipchain.numbers.dumps import load_record
from tipchain.parity.stages.tensors import TensorFile

NEW, OLD = "bundle", "old"
"""In a work folder: the bundle that is made, and the one whose place it takes."""
_HERE = -100
"""``AT_FDCWD``: paths are as they stand."""
_EXCHANGE = 2
"""``RENAME_EXCHANGE``, of Linux's ``renameat2``: both names change owners at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFact:
    """A fact of a bundle, before and after."""

    name: str
    before: str
    after: str


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
    moved: int = 0
    reshaped: int = 0
    gone: int = 0
    new: int = 0
    largest: str = ""
    difference: float = 0.0
    scale: float = 0.0


def changed_facts(old: BundleManifest, new: BundleManifest) -> list[ChangedFact]:
    """Return the facts of two bundles that differ: versions, device, case, sources, weights, inputs."""
    facts = [_facts(one) for one in (old, new)]
    names = dict.fromkeys(name for one in facts for name in one)
    pairs = ((name, facts[0].get(name, ""), facts[1].get(name, "")) for name in names)
    return [ChangedFact(name=name, before=before, after=after) for name, before, after in pairs if before != after]


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
        moved = reshaped = 0
        largest, difference, scale, farthest = "", 0.0, 0.0, 0.0
        for name in (one for one in before if one in after):
            was, now = before[name], after[name]
            if (was.shape, was.dtype) != (now.shape, now.dtype):
                reshaped += 1
            elif was.tobytes() != now.tobytes():
                moved += 1
                diff = diff_arrays(name, was, now, equal_nan=True)
                share = diff.max_abs / diff.expected_max_abs if diff.expected_max_abs else float("inf")
                if not largest or not share <= farthest:
                    largest, difference, scale, farthest = name, diff.max_abs, diff.expected_max_abs, share
        return StageChange(
            stage=stage,
            arrays=len(after),
            moved=moved,
            reshaped=reshaped,
            gone=len(before.keys() - after.keys()),
            new=len(after.keys() - before.keys()),
            largest=largest,
            difference=difference,
            scale=scale,
        )


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
    """Yield a folder beside a bundle's place, on the same disk; it is gone afterwards.

    It is locked (flock) as long as this process or one that it forks lives. What a kill left goes first.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    clear_remains(place)
    work = place.with_name(f"{_prefix(place)}{secrets.token_hex(4)}")
    work.mkdir()
    handle = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a disk without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        (work / NEW).mkdir()
        yield work
    finally:
        _remove(work, place)
        os.close(handle)


def clear_remains(place: Path) -> None:
    """Remove what killed processes left beside a place; a bundle that they had taken away goes back."""
    for work in place.parent.glob(f"{glob.escape(_prefix(place))}*"):
        with suppress(OSError):
            handle = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held: somebody works in it
                _remove(work, place)
            finally:
                os.close(handle)


def _prefix(place: Path) -> str:
    return f".{place.name}.tipchain-"


def _remove(work: Path, place: Path) -> None:
    if (work / OLD).exists() and not place.exists():
        (work / OLD).rename(place)
    shutil.rmtree(work, ignore_errors=True)


def replace_bundle(place: Path, work: Path) -> None:
    """Put the new bundle of a work folder where ``place`` is; the old one stays in the work folder.

    Whoever opens ``place`` meanwhile finds either of them. Where the file system cannot exchange two folders, there is
    none for a moment.

    Raises:
        OSError: it cannot be done; the old folder is then where it was.
    """
    if _exchange(place, work / NEW):
        return
    place.rename(work / OLD)
    try:
        (work / NEW).rename(place)
    except OSError:
        (work / OLD).rename(place)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, and tell whether that was done."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # no glibc that has it
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)
