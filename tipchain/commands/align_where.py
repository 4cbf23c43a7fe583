"""What an alignment that failed says besides: the layer at fault and its cause, looked for in live models."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.commands.reference import NEEDS_TORCH, bundle_of
from tipchain.errors import TipchainError
from tipchain.outcome import Outcome
from tipchain.report.diagnoses import Diagnosed, diagnose_run, stage_of

if TYPE_CHECKING:
    from tipchain.live.report import AlignmentReport
    from tipchain.parity.align import AlignRequest
    from tipchain.report.html.parts import Section
    from tipchain.report.model import RunReport

LOCATABLE = frozenset(
    ("forward", "data", "metric", "loss", "optimizer", "lr", "regularization", "backward", "train_data", "train")
)
"""Stages whose failure may lie in a layer, the loss, the optimizer, the schedule, the data or the metric."""
LOCATE_TIMEOUT_S = 900.0
SWITCHED_OFF = "not looked for: --no-locate"
INTERRUPTED = "not looked for: interrupted"
ONE_SIDE = "not looked for: it takes both models, and a side's dumps were given"


def find_causes(
    args: argparse.Namespace, request: AlignRequest, out: Path, report: RunReport, stream: TextIO | None
) -> Diagnosed:
    """Look for the causes where a stage failed that runs the model, and both sides were run here.

    Raises:
        OSError: the output folder cannot be written to.
    """
    failed = {stage_of(verdict) for verdict in report.verdicts if verdict.outcome is Outcome.FAIL}
    if not failed or report.interrupted:
        return Diagnosed(undiagnosed=INTERRUPTED if failed else "")
    if not failed & LOCATABLE:
        return Diagnosed(undiagnosed=f"not looked for: {', '.join(sorted(failed))} tells itself what differs")
    if args.no_locate:
        return Diagnosed(undiagnosed=SWITCHED_OFF)
    if request.dumps or len(request.sides) < 2:
        return Diagnosed(undiagnosed=ONE_SIDE if bundle_of(args) is None else NEEDS_TORCH)
    return _locate(args, request, out, report, stream, failed)


def _locate(
    args: argparse.Namespace,
    request: AlignRequest,
    out: Path,
    report: RunReport,
    stream: TextIO | None,
    failed: Collection[str],
) -> Diagnosed:
    """Look for the layer at fault and its cause in live models, and write down what was found."""
    from tipchain.language import say
    from tipchain.live.launch import launch
    from tipchain.report.terminal import fold, terminal_width
    from tipchain.runs import append, atomic_write

    asked = {
        "case": str(request.case.path.resolve()),
        "mode": request.mode.value,
        "reseed": args.seed,
        "data_path": str(request.data_path) if request.data_path else "",
        "only": sorted(failed),
        "options": {"within": args.within} if getattr(args, "within", None) else {},
    }
    try:
        done = launch(asked, timeout_s=args.timeout or LOCATE_TIMEOUT_S, quiet=args.quiet)
        text, document, interrupted = done.text, done.document, done.interrupted
    except TipchainError as error:
        text, document, interrupted = str(error), None, False
    kept = located_file(request)
    if document is None:
        kept.unlink(missing_ok=True)
        found = Diagnosed(undiagnosed=f"could not be looked for: {text.removeprefix('ERROR: ')}")
        text = found.undiagnosed
    else:
        found = diagnose_run(report.verdicts, document, request.case.root)
        atomic_write(kept, json.dumps(document) + "\n")
    if stream is not None:
        print(f"== where and why\n{fold(say(text), terminal_width())}", file=stream, flush=True)
    append(
        out / "alignment.log",
        "".join(f"{line}\n" for line in (f"# run {request.folder.parent.name} where and why", text)),
    )
    return replace(found, interrupted=interrupted)


def report_name(request: AlignRequest) -> str:
    """Return what an alignment's report is called, without an ending; alignments of one stage each may share a folder."""
    return "alignment" if len(request.stages) != 1 else f"alignment_{request.stages[0]}"


def located_file(request: AlignRequest) -> Path:
    """Return the file that keeps what the live models showed, beside an alignment's report."""
    return request.folder / f"{report_name(request).replace('alignment', 'located')}.json"


def located_details(folder: Path) -> list[Section]:
    """Return what live models showed, of the first of the alignments in a folder that failed; [] where nothing is kept."""
    from tipchain.live.html import detail_sections

    found = (_read_located(file) for file in sorted(folder.glob("located*.json")))
    first = next((one for one in found if one is not None), None)
    return [] if first is None else list(detail_sections(first))


def _read_located(file: Path) -> AlignmentReport | None:
    """Return what a file keeps; None where it cannot be read: a page without it tells the causes all the same."""
    from tipchain.live.report import AlignmentReport

    try:
        return AlignmentReport.from_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, TipchainError):
        return None
