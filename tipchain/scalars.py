"""Numbers by step for TensorBoard and VisualDL, written by those programs' own libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tipchain.errors import UsageError

WRITERS = {"tensorboard": ("tensorboardX", "SummaryWriter"), "visualdl": ("visualdl", "LogWriter")}
"""What each viewer's files are written with; the extra of tipchain that brings it is called as the viewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A number of a curve.

    Attributes:
        run: the folder below that the curve stands in; curves of one tag in several runs share a chart. "" for none.
        tag: names the curve; slashes group charts.
        step: its place on the curve.
        value: the number.
        time: when it was measured, in seconds since 1970; None for now.
    """

    run: str = ""
    tag: str
    step: int
    value: float
    time: float | None = None


def write_scalars(scalars: Iterable[Scalar], viewer: str, folder: Path) -> int:
    """Write curves for ``"tensorboard"`` or ``"visualdl"`` into a folder, and return how many numbers they have.

    Raises:
        UsageError: the viewer's library is not installed, or the folder cannot be written.
    """
    module, name = WRITERS[viewer]
    try:
        make = getattr(__import__(module), name)
    except ImportError as error:
        raise UsageError(
            f"--{viewer} needs {module}, which cannot be imported: {error}\n  hint: pip install 'tipchain[{viewer}]'"
        ) from error
    writers: dict[str, Any] = {}
    count = 0
    try:
        for one in scalars:
            if one.run not in writers:
                writers[one.run] = make(str(folder / one.run))
            # VisualDL counts milliseconds.
            time = one.time if one.time is None or viewer != "visualdl" else round(one.time * 1000)
            writers[one.run].add_scalar(plain_tag(one.tag), one.value, one.step, walltime=time)
            count += 1
    except OSError as error:
        raise UsageError(f"--{viewer} {folder}: cannot be written: {error.strerror}") from error
    finally:
        for writer in writers.values():
            writer.close()
    return count


def plain_tag(tag: str) -> str:
    """Return a tag of the letters that both viewers take: what is no letter, digit, ``-``, ``.`` or ``/`` is ``_``."""
    return re.sub(r"[^\w\-./]", "_", tag).strip("/")
