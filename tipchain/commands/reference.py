"""``--reference`` and ``--port``: a bundle or dumps in a side's place, for ``tipchain align`` and the numbered scripts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import renamed
from tipchain.cores import core_count
from tipchain.errors import UsageError
from tipchain.modes import Mode

if TYPE_CHECKING:
    from tipchain.bundle.manifest import BundleManifest
    from tipchain.parity.case_types import Case
    from tipchain.parity.preparation import GivenInputs

NEEDS_TORCH = (
    "not looked for: it takes the live torch model, and a bundle has none; "
    "tipchain align CASE without --reference, where torch is installed, looks for it"
)


def add_reference_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    reference = parser.add_argument(
        "--reference",
        type=Path,
        metavar="PATH",
        help="torch's side is this bundle (tipchain bundle make), or these dumps (a folder or a file); torch is not run",
    )
    renamed(parser, "--torch-dump", reference)
    port = parser.add_argument(
        "--port", type=Path, metavar="PATH", help="Paddle's side is these dumps; Paddle is not run"
    )
    renamed(parser, "--paddle-dump", port)
    parser.add_argument(
        "--allow-other-torch",
        action="store_true",
        help="use a bundle of another torch than the one installed or pinned",
    )


def bundle_of(args: argparse.Namespace) -> Path | None:
    """Return the bundle that ``--reference`` names; None where it names dumps, or nothing."""
    path: Path | None = args.reference
    if path is None or path.is_file() or any(path.glob("*.npy")):
        return None
    return path


def given_dumps(args: argparse.Namespace) -> dict[str, Path]:
    """Return the dumps that were made elsewhere, by side."""
    reference = None if bundle_of(args) else args.reference
    return {side: path for side, path in (("torch", reference), ("paddle", args.port)) if path is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A bundle that fits the case."""

    folder: Path
    manifest: BundleManifest

    @property
    def dumps(self) -> Path:
        """The folder of torch's dumps."""
        from tipchain.bundle.serving import dumps_of

        return dumps_of(self.folder)

    @property
    def given(self) -> GivenInputs:
        """Inputs and weights."""
        from tipchain.bundle.serving import given

        return given(self.folder, self.manifest)

    @property
    def threads(self) -> int:
        """As many threads as torch had, if this machine has them and the environment names none; else 0."""
        if os.environ.get("OMP_NUM_THREADS"):
            return 0
        return min(self.manifest.threads, core_count())

    def serve(self, stages: Sequence[str], *, asked: bool) -> tuple[str, ...]:
        """Return those of ``stages`` that the bundle has.

        Raises:
            BundleError: it lacks one that was asked for, or has none.
        """
        from tipchain.bundle.serving import check_stages

        found = tuple(stage for stage in stages if stage in self.manifest.stages)
        if asked or not found:
            check_stages(self.folder, self.manifest, stages)
        return found

    def notes(self, possible: Sequence[str]) -> tuple[str, ...]:
        """Return where the reference comes from, and what it has nothing for, of the stages that there could be."""
        one = self.manifest
        made = f"torch {one.torch or 'not run'} on {one.device or 'no device'}, made {one.created}"
        notes = [f"reference: bundle {self.folder}, {made}, content {one.content[:12]}"]
        absent = [stage for stage in possible if stage not in one.stages]
        if absent:
            notes.append(f"not checked, for the bundle has no such stage: {', '.join(absent)}")
        return tuple(notes)


def open_reference(args: argparse.Namespace, case: Case, mode: Mode) -> Reference | None:
    """Return the bundle that ``--reference`` names, checked, or None where there is none.

    Raises:
        UsageError: options that exclude each other.
        BundleError: the bundle is damaged, or of another case, mode, seed or torch.
    """
    folder = bundle_of(args)
    if folder is None:
        if args.allow_other_torch:
            raise UsageError("--allow-other-torch needs --reference, a bundle")
        return None
    from tipchain.bundle.manifest import open_bundle
    from tipchain.bundle.serving import check_case, check_torch

    if not folder.exists():
        raise UsageError(f"--reference: no such file or folder: {folder}\n  expected: a bundle, or dumps")
    if args.record is not None:
        raise UsageError("--reference and --record exclude each other")
    manifest = open_bundle(folder)
    check_case(folder, manifest, case, mode)
    if not args.allow_other_torch:
        check_torch(folder, manifest, case.root)
    return Reference(folder=folder, manifest=manifest)
