"""Making a bundle, and letting it take torch's place."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tipchain import __version__
from tipchain.bundle.manifest import (
    AGAIN,
    CASE,
    DUMPS,
    INPUTS,
    MANIFEST,
    WEIGHTS,
    BundledWeights,
    BundleManifest,
    CaseIdentity,
    open_bundle,
    write_manifest,
)
from tipchain.bundle.moving import NEW, work_folder
from tipchain.core.files import atomic_write, commit, files_below, sha256_of
from tipchain.core.json_text import JsonObject
from tipchain.core.machine import core_count, installed_versions
from tipchain.errors import InputError, Outcome, OutputError, TipchainError, UsageError
from tipchain.modes import SOLO, Mode, dump_name
from tipchain.numbers.dumps import load_record, meta_path
from tipchain.parity.align import AlignRequest, align, default_threads, stage_files
from tipchain.parity.case import SIDES, Case
from tipchain.parity.weights import GivenInputs, Prepared, WeightFiles, prepare

# Make a bundle: record torch's side of a case, and all that the other side needs without torch.

Say = Callable[[str], None]
_ELSEWHERE = ("created", "commit")
"""Facts beside a dump that the manifest tells once."""


class BundleFailedError(TipchainError):
    """A part of a bundle could not be recorded; nothing was left behind."""

    exit_code = 1


def make_bundle(request: AlignRequest, say: Say = lambda _: None) -> BundleManifest:
    """Make a bundle in the request's folder, whole or not at all; ``say`` hears of each part.

    Raises:
        UsageError: something is at its place already.
        BundleFailedError: a stage could not be recorded.
        MissingFrameworkError: torch is absent or lacks the device, or Paddle is, which the weights are converted for.
        OutputError: it cannot be written.
    """
    if request.folder.exists() and (not request.folder.is_dir() or any(request.folder.iterdir())):
        raise UsageError(f"{request.folder}: is there already\n  {AGAIN}")
    try:
        with work_folder(request.folder) as work:
            case, bundle = request.case, work / NEW
            recorded = tuple(stage for stage in request.stages if stage not in SOLO)
            say("weights and inputs")
            # Make inputs and both sides' weights for all stages.
            folder = work / "prepared"
            folder.mkdir()
            prepared = prepare(
                request.case, request.mode, request.stages, folder, SIDES, request.data_path, request.given
            )
            if prepared.failures:
                raise _failure(prepared.failures)
            say(f"torch: {', '.join(recorded) or 'no stage'}")
            threads = request.threads or default_threads(len(SIDES))
            recording = replace(request, stages=recorded, folder=work / "recorded", sides=("torch",), threads=threads)
            failures = {
                judgement.stage: verdict.reason
                for judgement in align(recording)
                for verdict in judgement.verdicts
                if verdict.outcome is not Outcome.SKIP
            }
            if failures:
                raise _failure(failures)
            meta, sources = _copy_dumps(request, recorded, work / "recorded", bundle)
            inputs, weights = _copy_prepared(request, prepared, bundle)
            shutil.copyfile(case.path, bundle / CASE)
            names = [name for name in files_below(bundle) if name != MANIFEST]
            manifest = BundleManifest(
                tipchain=__version__,
                case=CaseIdentity(id=case.id, file=_below(case.path, case.root), sha256=case.digest, sources=sources),
                mode=request.mode.value,
                stages=request.stages,
                reseed=case.reseed,
                seed=case.seed,
                device=str(meta.get("device", "")),
                threads=threads,
                versions={
                    str(name): str(one)
                    for name, one in (meta.get("versions") or installed_versions()).items()
                    if name != "paddle"
                },
                inputs=inputs,
                weights=weights,
                files={name: sha256_of(bundle / name) for name in names},
                created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                commit=commit(case.root),
            )
            write_manifest(bundle, manifest)
            bundle.replace(request.folder)
    except OSError as error:
        raise OutputError(f"{request.folder}: the bundle cannot be written: {error}") from error
    return manifest


def _below(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path.resolve(), root.resolve())).as_posix()


def _failure(reasons: Mapping[str, str]) -> BundleFailedError:
    lines = "".join(f"\n  {stage}: {reason}" for stage, reason in reasons.items())
    return BundleFailedError(f"the bundle was not made; nothing is left of it{lines}")


def _copy_dumps(
    request: AlignRequest, stages: tuple[str, ...], recorded: Path, bundle: Path
) -> tuple[JsonObject, dict[str, str]]:
    """Copy the dumps; return the facts beside one of them, and the sources behind all."""
    (bundle / DUMPS).mkdir()
    facts: JsonObject = {}
    sources: dict[str, str] = {}
    for stage in stages:
        name = dump_name(stage, "torch")
        meta = {key: one for key, one in load_record(recorded / name).meta.items() if key not in _ELSEWHERE}
        found = meta.pop("sources", {})
        sources |= found if isinstance(found, dict) else {}
        if "case" in meta:
            meta["case"] = _below(request.case.path, request.case.root)
        # Refuse facts that name absolute paths: they hold on no other machine.
        for text in _texts(meta):
            if text.startswith("/") and Path(text).exists():
                raise _failure(
                    {
                        stage: f"names an absolute path, which no other machine has\n    found: {text}\n"
                        "    expected: file names below the data folder, as the data set gives them"
                    }
                )
        for one in stage_files(stage, ("torch",)):
            if (recorded / one).is_file():
                shutil.copyfile(recorded / one, bundle / DUMPS / one)
        atomic_write(bundle / DUMPS / meta_path(name).name, json.dumps(meta, indent=1) + "\n")
        facts = meta if "versions" in meta else facts
    return facts, {name: one for name, one in sorted(sources.items()) if not name.startswith("..")}


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _copy_prepared(
    request: AlignRequest, prepared: Prepared, bundle: Path
) -> tuple[dict[str, str], dict[str, BundledWeights]]:
    """Copy inputs and weights, once each: variants often share them."""
    inputs: dict[str, str] = {}
    weights: dict[str, BundledWeights] = {}
    known: dict[str, str] = {}

    def keep(source: Path, name: str) -> str:
        digest = sha256_of(source)
        if digest not in known:
            known[digest] = name
            (bundle / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source, bundle / name)
        return known[digest]

    for stage in request.stages:
        variant = request.case.for_stage(stage).variant
        label = variant or "case"
        if stage in prepared.inputs and variant not in inputs:
            inputs[variant] = keep(prepared.inputs[stage], f"{INPUTS}/{label}.npy")
        if stage in prepared.weights and variant not in weights:
            found = prepared.weights[stage]
            file = keep(found.paths["paddle"], f"{WEIGHTS}/{label}{found.paths['paddle'].suffix}")
            weights[variant] = BundledWeights(file=file, digest=found.digest, names=dict(found.names))
    return inputs, weights


@dataclass(frozen=True, slots=True)
class Reference:
    """A bundle that fits the case: its folder, and its description of itself."""

    folder: Path
    manifest: BundleManifest

    @property
    def dumps(self) -> Path:
        """The folder of torch's dumps."""
        return self.folder / DUMPS

    @property
    def given(self) -> GivenInputs:
        """Inputs and weights."""
        folder, one = self.folder, self.manifest
        return GivenInputs(
            inputs={variant: folder / name for variant, name in one.inputs.items()},
            weights={
                variant: WeightFiles(
                    paths={"paddle": folder / weights.file},
                    sha256={"paddle": one.files[weights.file]},
                    digest=weights.digest,
                    names=weights.names,
                )
                for variant, weights in one.weights.items()
            },
        )

    @property
    def threads(self) -> int:
        """As many threads as torch had, if this machine has them and the environment names none; else 0."""
        if os.environ.get("OMP_NUM_THREADS"):
            return 0
        return min(self.manifest.threads, core_count())

    def serve(self, stages: Sequence[str], *, asked: bool) -> tuple[str, ...]:
        """Return those of ``stages`` that the bundle has.

        Raises:
            InputError: it lacks one that was asked for, or has none.
        """
        found = tuple(stage for stage in stages if stage in self.manifest.stages)
        missing = [stage for stage in stages if stage not in found]
        if missing and (asked or not found):
            raise InputError(
                "lacks a stage",
                file=self.folder,
                key="stages",
                found=", ".join(self.manifest.stages),
                expected=", ".join(missing),
                hint="tipchain bundle make CASE --only …",
            )
        return found

    def notes(self, possible: Sequence[str]) -> tuple[str, ...]:
        """Return where the reference comes from, and the possible stages for which it has nothing."""
        one = self.manifest
        made = f"torch {one.torch or 'not run'} on {one.device or 'no device'}, made {one.created}"
        notes = [f"reference: bundle {self.folder}, {made}, content {one.content[:12]}"]
        absent = [stage for stage in possible if stage not in one.stages]
        if absent:
            notes.append(f"not checked, for the bundle has no such stage: {', '.join(absent)}")
        return tuple(notes)


def open_reference(folder: Path, case: Case, mode: Mode) -> Reference:
    """Return the bundle in ``folder``, checked.

    Raises:
        InputError: it is damaged, or of another case, mode or seed.
    """
    manifest = open_bundle(folder)
    # Refuse a bundle of another case, mode or seed, or of a case or torch side that was changed since.
    for what, found, expected in (
        ("case", manifest.case.id, case.id),
        ("mode", manifest.mode, mode.value),
        ("seed", f"--seed {manifest.reseed}", f"--seed {case.reseed}"),
    ):
        if found != expected:
            raise InputError(f"is of another {what}", file=folder, key=what, found=found, expected=expected)
    if manifest.case.sha256 != case.digest:
        raise InputError(
            "was made from another version of the case",
            file=folder,
            key=manifest.case.file,
            found=f"sha256 {manifest.case.sha256[:12]}…",
            expected=f"{case.digest[:12]}…, of {case.path}",
            hint=AGAIN,
        )
    for name, found in manifest.case.sources.items():
        path = case.root / name
        now = sha256_of(path) if path.is_file() else ""
        if now != found:
            raise InputError(
                "was made from another version of the torch side",
                file=folder,
                key=name,
                found=f"sha256 {found[:12]}…",
                expected=f"{now[:12]}…, of {path}" if now else f"no such file: {path}",
                hint=AGAIN,
            )
    return Reference(folder, manifest)
