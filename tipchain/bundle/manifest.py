"""A bundle's manifest: its files with their SHA-256, and when and why it was moved."""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from tipchain.core.files import atomic_write, files_below, git, sha256_of
from tipchain.core.json_text import parse_as, read_json
from tipchain.core.store import digest
from tipchain.errors import InputError
from tipchain.modes import LATEST

# What a bundle says about itself, and whether its files are still those.
#
# ::
#
#     BUNDLE/
#       manifest.json       `BundleManifest`, written last; names every other file with its SHA-256
#       case.yaml           the case file it was made from
#       dumps/              what torch recorded, as ``tipchain align`` leaves it
#       inputs/             the fake inputs, by the case's variant
#       weights/            torch's weights, converted for the port, by the case's variant
#
# Nothing in it is run when it is read: JSON, dumps (`tipchain.numbers.dumps`), safetensors, and Paddle weight files
# (`tipchain.weights.files`).

FORMAT = 1
KIND = "tipchain reference bundle"
MANIFEST, CASE = "manifest.json", "case.yaml"
DUMPS, INPUTS, WEIGHTS = "dumps", "inputs", "weights"
_NO_CONTENT = ("created", "commit", "moves")
"""Keys that may differ between two equal bundles."""
AGAIN = "tipchain bundle make CASE --out NEW makes it anew, tipchain bundle rebaseline moves it to its place"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseIdentity:
    """The case that a bundle was made from.

    Attributes:
        id: its name.
        file: its path below the project's root.
        sha256: of the file.
        sources: SHA-256 of every source file below the root that the torch side imported, by its path.
    """

    id: str
    file: str
    sha256: str
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledWeights:
    """The weights of one variant of the case.

    Attributes:
        file: the port's, a path in the bundle.
        digest: SHA-256 of the torch weights' tensors, the identity that dumps carry.
        names: Paddle's name by torch's where they differ.
    """

    file: str
    digest: str
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """When a bundle took another's place.

    Attributes:
        when: ISO 8601 with offset.
        who: the user, as git knows them.
        why: their reason.
        before: the content of the bundle that was there.
    """

    when: str
    who: str
    why: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleManifest:
    """A bundle's description of itself. All paths are relative and posix.

    Attributes:
        tipchain: the version that made it.
        case: the case.
        mode: the TIPC mode.
        stages: the stages it serves, those included in which torch takes no part.
        reseed: what was added to the case's seeds.
        seed: the case's seed, with that.
        device: what torch ran on, as it describes it; "" where torch ran no stage.
        threads: of the recording process.
        versions: of torch, numpy and Python, and CUDA where torch has it.
        inputs: path of the fake inputs, by the case's variant.
        weights: the port's weights, likewise.
        files: SHA-256 of every other file, by path.
        created: ISO 8601 with offset.
        commit: of the project.
        moves: how the bundle came to its place, the oldest move first.
    """

    tipchain: str
    case: CaseIdentity
    mode: str
    stages: tuple[str, ...]
    reseed: int
    seed: int
    device: str
    threads: int
    versions: Mapping[str, str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, BundledWeights] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    commit: str = ""
    moves: tuple[Move, ...] = ()

    @property
    def content(self) -> str:
        """SHA-256 of everything in the bundle but when, at which commit and for which reason it was made."""
        return digest({key: value for key, value in asdict(self).items() if key not in _NO_CONTENT})

    @property
    def torch(self) -> str:
        """The version of torch; "" where it is not told."""
        return self.versions.get("torch", "")


def write_manifest(folder: Path, manifest: BundleManifest) -> None:
    """Write the manifest of the bundle in ``folder``.

    Raises:
        OSError: it cannot be written.
    """
    document = {"kind": KIND, "format": FORMAT, "content": manifest.content, **asdict(manifest)}
    atomic_write(folder / MANIFEST, json.dumps(document, indent=1, sort_keys=True) + "\n")


def read_manifest(folder: Path) -> BundleManifest:
    """Read the manifest of the bundle in ``folder``; its other files are not looked at.

    Raises:
        InputError: there is no bundle, its manifest is damaged, or it is of another format.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError("no such bundle", file=folder, expected="a folder that tipchain bundle make wrote")
    try:
        document = read_json(path)
    except FileNotFoundError:
        hint = f"its dumps are in {folder / LATEST}" if (folder / LATEST).is_dir() else AGAIN
        raise InputError("is no bundle", file=folder, found=f"no {MANIFEST}", hint=hint) from None
    except (OSError, ValueError) as error:
        raise InputError("cannot be read", file=path, found=error, expected="a JSON object") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError("is no bundle's manifest", file=path, expected=f'"kind": "{KIND}"')
    if document.get("format") != FORMAT:
        found, newer = document.get("format"), document.get("tipchain")
        raise InputError(
            "has another format",
            file=path,
            key="format",
            found=f"{found}, of tipchain {newer}",
            expected=FORMAT,
            hint="use that tipchain, or make the bundle anew with this one",
        )
    try:
        manifest = _manifest(document)
    except ValueError as error:
        raise InputError("is damaged", file=path, found=error, hint=AGAIN) from None
    if document.get("content") != manifest.content:
        raise InputError(
            "was changed",
            file=path,
            key="content",
            found=f"sha256 {manifest.content[:12]}…",
            expected=f"{str(document.get('content'))[:12]}…",
            hint=AGAIN,
        )
    return manifest


def _manifest(document: Mapping[str, object]) -> BundleManifest:
    manifest = parse_as(BundleManifest, document)
    stored = (one.file for one in manifest.weights.values())
    for name in (*manifest.files, *manifest.inputs.values(), *stored):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise ValueError(f"{name!r} is no path in the bundle")
    return manifest


def damages(folder: Path, manifest: BundleManifest) -> list[str]:
    """Say which files of a bundle are missing, changed, or none of its own; every byte is read."""
    problems = []
    for name, expected in sorted(manifest.files.items()):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            problems.append(f"missing: {name}")
            continue
        try:
            found = sha256_of(path)
        except OSError as error:
            problems.append(f"unreadable: {name}: {error.strerror}")
            continue
        if found != expected:
            problems.append(f"changed: {name}: found sha256 {found[:12]}…, expected {expected[:12]}…")
    known = {MANIFEST, *manifest.files}
    problems += [f"not of the bundle: {name}" for name in files_below(folder) if name not in known]
    return problems


def open_bundle(folder: Path) -> BundleManifest:
    """Read the manifest of a bundle, and check every file.

    Raises:
        InputError: it cannot be read, or a file is not what it was.
    """
    manifest = read_manifest(folder)
    problems = damages(folder, manifest)
    if problems:
        shown = problems[:5] + ([f"and {len(problems) - 5} more"] if len(problems) > 5 else [])
        raise InputError(
            "is damaged",
            file=folder,
            found="".join(f"\n    {one}" for one in shown),
            expected="the files that its manifest names",
            hint=AGAIN,
        )
    return manifest


def who(folder: Path) -> str:
    """Return the user as git knows them, else as the machine does."""
    found = [git(folder, "config", "--get", key) for key in ("user.name", "user.email")]
    if found[0]:
        return f"{found[0]} <{found[1]}>" if found[1] else found[0]
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user, no name in the environment
        return "unknown"
