"""What an alignment that failed says besides: the layer at fault and its cause, looked for in live models."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.commands.reference import NEEDS_TORCH
from tipchain.errors import UsageError
from tipchain.outcome import Outcome

if TYPE_CHECKING:
    from tipchain.parity.align import Request
    from tipchain.report.model import RunReport

LOCATABLE = frozenset(("forward", "data", "metric", "loss", "backward", "train_data", "train"))
"""Stages whose failure may lie in a layer, the loss, the optimizer, the data or the metric."""
LOCATE_TIMEOUT_S = 900.0


def tell_where(
    args: argparse.Namespace, request: Request, out: Path, report: RunReport, stream: TextIO
) -> None:
    """Look for the layer at fault where a stage failed that runs the model, and both sides were run here.

    Raises:
        OSError: the output folder cannot be written to.
    """
    failed = {
        verdict.subject.partition("/")[0] for verdict in report.verdicts if verdict.outcome is Outcome.FAIL
    }
    if not failed & LOCATABLE:
        return
    if not request.dumps and len(request.sides) == 2:
        _locate(args, request, out, stream, failed)
    elif args.reference is not None:
        print(f"== where and why\n{NEEDS_TORCH}\n", file=stream, flush=True)


def _locate(
    args: argparse.Namespace, request: Request, out: Path, stream: TextIO, failed: Collection[str]
) -> None:
    """Look for the layer at fault and its cause in live models, and write down what was found."""
    from tipchain.live.launch import launch
    from tipchain.report.terminal import fold, terminal_width
    from tipchain.runs import append

    print("== where and why", file=stream, flush=True)
    asked = {
        "case": str(request.case.path.resolve()), "mode": request.mode.value, "reseed": args.seed,
        "data_path": str(request.data_path) if request.data_path else "", "only": sorted(failed),
        "options": {"within": args.within} if getattr(args, "within", None) else {},
    }  # fmt: skip
    try:
        text = launch(asked, timeout_s=args.timeout or LOCATE_TIMEOUT_S).text
    except UsageError as error:
        text = f"could not be looked for: {error}"
    print(fold(text, terminal_width()), end="\n\n", file=stream, flush=True)
    append(
        out / "alignment.log",
        "".join(f"{line}\n" for line in (f"# run {request.folder.parent.name} where and why", text)),
    )
