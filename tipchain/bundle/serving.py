"""Let a bundle take torch's place in an alignment, if it is of this case and of the torch that is asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tipchain.bundle.making import weights_spec
from tipchain.bundle.manifest import DUMPS, BundleManifest
from tipchain.environment import installed_versions
from tipchain.errors import BundleError
from tipchain.modes import Mode
from tipchain.parity.case_types import Case
from tipchain.parity.preparation import GivenInputs
from tipchain.parity.weights import WeightFiles
from tipchain.runs import sha256_of

PINS = ("constraints.txt", "requirements.txt")
"""Files of a project's root that may pin torch, the first that does."""
_PIN = re.compile(r"^torch\s*===?\s*([^\s;,#]+)", re.IGNORECASE | re.MULTILINE)
_AGAIN = "tipchain rebaseline moves the bundle, if the evidence is that nothing but rounding changed"


def given(folder: Path, manifest: BundleManifest) -> GivenInputs:
    """Return what a bundle has prepared."""
    return GivenInputs(
        inputs={variant: folder / name for variant, name in manifest.inputs.items()},
        weights={
            variant: WeightFiles(
                paths={"paddle": folder / one.file},
                sha256={"paddle": manifest.files[one.file]},
                digest=one.digest,
                names=one.names,
            )
            for variant, one in manifest.weights.items()
        },
    )


def kept_weights(folder: Path, manifest: BundleManifest, case: Case) -> GivenInputs:
    """Return the bundle's weights, for both sides, of each variant whose weights the case makes as it did then.

    Weights that are made anew differ by rounding wherever torch does, and so would all that is computed with them: a new
    reference is recorded with the old one's. Those of a file of the user's are always that file's.
    """
    found: dict[str, WeightFiles] = {}
    for variant, one in manifest.weights.items():
        seen = case.for_stage(variant) if variant else case
        if seen.weights.torch is None and weights_spec(seen) == one.spec:
            paths = {"torch": one.torch, "paddle": one.file}
            found[variant] = WeightFiles(
                paths={side: folder / name for side, name in paths.items()},
                sha256={side: manifest.files[name] for side, name in paths.items()},
                digest=one.digest,
                names=one.names,
            )
    return GivenInputs(weights=found)


def dumps_of(folder: Path) -> Path:
    """Return the folder of a bundle's dumps."""
    return folder / DUMPS


def check_case(folder: Path, manifest: BundleManifest, case: Case, mode: Mode) -> None:
    """Refuse a bundle of another case, mode or seed, or of a case or torch side that was changed since.

    Raises:
        BundleError: with what was found and what was expected.
    """
    for what, found, expected in (
        ("case", manifest.case.id, case.id),
        ("mode", manifest.mode, mode.value),
        ("seed", f"--seed {manifest.reseed}", f"--seed {case.reseed}"),
    ):
        if found != expected:
            raise BundleError(f"is of another {what}", file=folder, key=what, found=found, expected=expected)
    if manifest.case.sha256 != case.digest:
        raise BundleError(
            "was made from another version of the case",
            file=folder,
            key=manifest.case.file,
            found=f"sha256 {manifest.case.sha256[:12]}…",
            expected=f"{case.digest[:12]}…, of {case.path}",
            hint=_AGAIN,
        )
    for name, found in manifest.case.sources.items():
        path = case.root / name
        now = sha256_of(path) if path.is_file() else ""
        if now != found:
            raise BundleError(
                "was made from another version of the torch side",
                file=folder,
                key=name,
                found=f"sha256 {found[:12]}…",
                expected=f"{now[:12]}…, of {path}" if now else f"no such file: {path}",
                hint=_AGAIN,
            )


def check_stages(folder: Path, manifest: BundleManifest, stages: Sequence[str]) -> None:
    """Refuse a bundle that lacks a stage.

    Raises:
        BundleError: naming what it has.
    """
    missing = [stage for stage in stages if stage not in manifest.stages]
    if missing:
        raise BundleError(
            "lacks a stage",
            file=folder,
            key="stages",
            found=", ".join(manifest.stages),
            expected=", ".join(missing),
            hint="tipchain bundle make CASE --only …",
        )


def check_torch(folder: Path, manifest: BundleManifest, root: Path) -> None:
    """Refuse a bundle of another torch than the one installed here, or, where none is, than the project pins.

    The build behind a ``+`` does not count: the same release is built for CPUs and GPUs. torch is not imported.

    Raises:
        BundleError: with both versions.
    """
    installed = installed_versions().get("torch", "")
    wanted = {f"torch {installed}": installed} if installed else pinned(root)
    if not manifest.torch or not wanted:
        return
    if any(_release(version) == _release(manifest.torch) for version in wanted.values()):
        return
    raise BundleError(
        "is of another torch",
        file=folder,
        key="versions.torch",
        found=manifest.torch,
        expected=" or ".join(wanted) + (", installed here" if installed else ""),
        hint=f"--allow-other-torch compares all the same; {_AGAIN}",
    )


def pinned(root: Path) -> dict[str, str]:
    """Return the versions of torch that the project's constraints allow, by what to call them; empty without a pin."""
    for name in PINS:
        path = root / name
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = dict.fromkeys(_PIN.findall(text))
        if found:
            return {f"torch {version}, pinned in {path}": version for version in found}
    return {}


def _release(version: str) -> str:
    return version.partition("+")[0]
