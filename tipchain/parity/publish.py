"""File names of a stage, and how a run's files come to ``log_reprod``."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tipchain.errors import UsageError, did_you_mean
from tipchain.numbers.dumps import meta_path
from tipchain.parity.case import SIDES
from tipchain.stage_table import INFO, SCRIPTS, SOLO, STAGES

# File names of a stage: the user documents' section 2.2.3.


def prefix(stage: str) -> str:
    """Return the stage's file prefix: ``bp_align`` for backward, ``train_align`` for train."""
    return INFO[stage].prefix


def dump_name(stage: str, side: str) -> str:
    """Return the dump's file name; ``"torch"`` stands for the reference, ``benchmark`` in the training stage."""
    role = INFO[stage].reference if side == "torch" else side
    return f"{prefix(stage)}_{role}.npy"


def tensors_name(stage: str, side: str) -> str:
    """Return the name of the safetensors file beside the dump; ``"torch"`` stands for the reference."""
    role = INFO[stage].reference if side == "torch" and INFO[stage].solo else side
    return f"{prefix(stage)}_{role}.safetensors"


def log_name(stage: str) -> str:
    """Return the diff log's file name."""
    return f"{prefix(stage)}_diff.log"


def parse_stages(text: str) -> tuple[str, ...]:
    """Return the stages that ``text`` names: stage names or script numbers, split on ``,`` or ``|``.

    Raises:
        UsageError: an unknown name or number, or none at all.
    """
    chosen: set[str] = set()
    for word in text.replace("|", ",").split(","):
        name = word.strip()
        if name.isdigit() and f"{int(name):02d}" in SCRIPTS:
            chosen.update(SCRIPTS[f"{int(name):02d}"][1])
        elif name in STAGES:
            chosen.add(name)
        else:
            hint = did_you_mean(name, (*STAGES, *SCRIPTS))
            raise UsageError(
                f"unknown stage {name!r}"
                + (f", {hint}" if hint else "")
                + f"\n  expected: {', '.join(STAGES)} or a script number 01 to 05"
            )
    return tuple(stage for stage in STAGES if stage in chosen)


# Bring a run's files to ``log_reprod``, where users look for the latest ones.


LATEST = "log_reprod"


def withdraw(latest: Path, stages: Iterable[str]) -> None:
    """Remove the stages' diff logs from ``latest``: an old "passed" must not outlive the start of a run."""
    for stage in stages:
        (latest / log_name(stage)).unlink(missing_ok=True)


def publish(folder: Path, latest: Path, names: Iterable[str]) -> None:
    """Put the named files of ``folder`` into ``latest``, each in one step; what is absent there is removed."""
    latest.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, target = folder / name, latest / name
        if not source.is_file():
            target.unlink(missing_ok=True)
            continue
        link(source, target)


def link(source: Path, target: Path) -> None:
    """Let ``target`` be the same file as ``source``, or a copy where the file system has no hard links; in one step."""
    beside = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        os.link(source, beside)
    except OSError:
        shutil.copyfile(source, beside)
    os.replace(beside, target)  # noqa: PTH105


def stage_files(stage: str, sides: Sequence[str] = SIDES) -> tuple[str, ...]:
    """Return the names of all files that a stage may leave; of one side alone, no diff log is among them."""
    roles = SIDES if stage in SOLO and "paddle" in sides else sides
    dumps = [dump_name(stage, side) for side in roles]
    tensors = [tensors_name(stage, side) for side in roles] if INFO[stage].tensors else []
    logs = [log_name(stage)] if len(roles) == len(SIDES) else []
    return (*dumps, *(meta_path(name).name for name in dumps), *tensors, *logs)


def adopt_dumps(dumps: Mapping[str, Path], stages: Sequence[str], folder: Path) -> None:
    """Copy dumps made elsewhere, with what stands beside them, into a run's folder.

    A stage that has no dump there is left without one, which judging reports as an ERROR.
    """
    for side, path in dumps.items():
        for stage in stages:
            # A stage that holds the port against itself has both of its dumps from there.
            for role in ("torch", "paddle") if stage in SOLO and side == "paddle" else (side,):
                own = path if path.is_file() and role == side else None
                source = own or (path if path.is_dir() else path.parent) / dump_name(stage, role)
                target = folder / dump_name(stage, role)
                pairs = {
                    source: target,
                    meta_path(source): meta_path(target),
                    source.with_name(tensors_name(stage, role)): folder / tensors_name(stage, role),
                }
                for one, other in pairs.items():
                    if one.is_file():
                        shutil.copyfile(one, other)
