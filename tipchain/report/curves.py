"""The curves of a run: losses and learning rates of its alignments by step, and figures of its chain's commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.report.diagnoses import LATEST
from tipchain.report.model import RunReport
from tipchain.scalars import Scalar
from tipchain.stage_table import INFO

if TYPE_CHECKING:
    import numpy as np

NUMBERED = re.compile(r"(?P<name>(?:loss|lr))_(?P<step>\d+)")
CURVES = ("loss", "lr")
"""Tensors of one axis that are curves by name."""


def curves_of(report: RunReport, folder: Path) -> Iterator[Scalar]:
    """Yield a run's curves; the two sides of an alignment are runs of the same tags, so that they share charts.

    Args:
        report: of the run, for the figures of commands.
        folder: of the run, or of its dumps.

    Raises:
        RecordError: a dump is damaged.
    """
    for stage, info in INFO.items():
        for side in (info.reference, "paddle"):
            for place in (folder, folder / LATEST):
                yield from _of_dump(place / f"{info.prefix}_{side}.npy", stage)
                yield from _of_tensors(place / f"{info.prefix}_{_tensor_side(stage, side)}.safetensors", stage)
    for number, result in enumerate(report.results):
        for name, value in result.figures.items():
            yield Scalar(run="chain", tag=f"{result.command.id}/{name}", step=number, value=value)


def _tensor_side(stage: str, side: str) -> str:
    return "torch" if side != "paddle" and not INFO[stage].solo else side


def _of_dump(file: Path, stage: str) -> Iterator[Scalar]:
    from tipchain.numbers.dumps import load_record

    if not file.is_file():
        return
    record = load_record(file)
    side = record.side or file.stem.rpartition("_")[2]
    for name, array in record.arrays.items():
        numbered = NUMBERED.fullmatch(name)
        if numbered and array.size == 1:
            step, value = int(numbered["step"]), float(array.reshape(-1)[0])
            yield Scalar(run=side, tag=f"{stage}/{numbered['name']}", step=step, value=value)
        yield from _series(side, stage, name, array)


def _of_tensors(file: Path, stage: str) -> Iterator[Scalar]:
    from safetensors import safe_open

    if not file.is_file():
        return
    side = file.stem.rpartition("_")[2]
    with safe_open(file, framework="numpy") as tensors:
        for name in sorted(set(tensors.keys()) & set(CURVES)):
            yield from _series(side, stage, name, tensors.get_tensor(name))


def _series(side: str, stage: str, name: str, array: np.ndarray) -> Iterator[Scalar]:
    if name in CURVES and array.ndim == 1 and array.size > 1:
        for step, value in enumerate(array.tolist()):
            yield Scalar(run=side, tag=f"{stage}/{name}", step=step, value=float(value))
