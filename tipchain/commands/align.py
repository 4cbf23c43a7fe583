"""``tipchain align`` and the numbered scripts: run the alignment stages of a case; say where a failed one differs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.commands.options import (
    add_data_path,
    add_device,
    add_mode,
    add_out,
    add_report_arguments,
    add_root,
    add_seed,
    add_stages,
    add_strict,
    add_threads,
    add_timeout,
    add_verbosity,
    add_within,
    check_targets,
    renamed,
    report_targets,
)
from tipchain.commands.prepare import add_prepare_first, prepare_case_first
from tipchain.errors import MissingFrameworkError, OutputError, TipchainError, UsageError
from tipchain.machine import core_count
from tipchain.modes import Mode, parse_device, parse_mode
from tipchain.outcome import Outcome
from tipchain.progress import Progress, Stages
from tipchain.report.model import Diagnosed, diagnose_run, stage_of
from tipchain.runs import DATA_VARIABLE, RUN_VARIABLE

if TYPE_CHECKING:
    from tipchain.bundle.manifest import BundleManifest
    from tipchain.live.report import AlignmentReport
    from tipchain.parity.align import AlignRequest
    from tipchain.parity.case import Case
    from tipchain.parity.stages.judging import StageJudgement
    from tipchain.parity.weights import GivenInputs
    from tipchain.report.model import RunReport
    from tipchain.report.page import Section


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
        from tipchain.bundle.making import dumps_of

        return dumps_of(self.folder)

    @property
    def given(self) -> GivenInputs:
        """Inputs and weights."""
        from tipchain.bundle.making import given

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
        from tipchain.bundle.making import check_stages

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
    from tipchain.bundle.making import check_case, check_torch
    from tipchain.bundle.manifest import open_bundle

    if not folder.exists():
        raise UsageError(f"--reference: no such file or folder: {folder}\n  expected: a bundle, or dumps")
    if args.record is not None:
        raise UsageError("--reference and --record exclude each other")
    manifest = open_bundle(folder)
    check_case(folder, manifest, case, mode)
    if not args.allow_other_torch:
        check_torch(folder, manifest, case.root)
    return Reference(folder=folder, manifest=manifest)


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
    from tipchain.live.worker import launch
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


STAGE_SECONDS = ".stage_seconds.json"
"""What stages took when they last ran, the basis for the time that is left; nothing else rests on it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``tipchain align``."""
    parser.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    add_stages(parser, "these stages alone: names or script numbers, e.g. forward,loss or 01,04")
    add_run_arguments(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``align`` and the numbered scripts share."""
    add_device(parser)
    add_mode(parser)
    add_root(parser)
    add_out(parser, "output folder (default test_tipc/output/CASE/MODE)")
    add_reference_arguments(parser)
    parser.add_argument(
        "--record", choices=("torch", "paddle"), help="record this side only, to compare elsewhere; exit code 4"
    )
    add_data_path(parser)
    add_prepare_first(parser)
    add_strict(parser)
    add_timeout(parser, "what each side may take in all")
    add_threads(parser, "threads of each side (default: cores shared out)")
    add_seed(parser, "add N to the seeds of the case, its weights and fake inputs")
    parser.add_argument(
        "--no-locate", action="store_true", help="where a stage fails, do not look for the layer at fault and its cause"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="record torch's side even where an earlier run's still holds"
    )
    add_within(parser, "look for causes no longer than this (60s, 5m): what was found is told")
    add_report_arguments(parser)
    add_verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages and return the exit code."""
    from tipchain.parity.publish import parse_stages

    return align_case(args, parse_stages(args.stages) if args.stages else ())


def align_case(
    args: argparse.Namespace, stages: Sequence[str], *, show: Callable[[Path], Iterable[str]] | None = None
) -> int:
    """Align the case that ``args`` names; without ``stages`` all that the case and the mode have.

    What ``show`` makes of the folder of dumps is printed before the verdict.
    """
    from tipchain.report.write import with_page, write_report
    from tipchain.runs import prune

    check_targets(args)
    # Where the report goes to standard output, it must stand there alone.
    stream = sys.stderr if "-" in (args.json, args.junit) else sys.stdout
    if args.prepare and (code := _prepare(args, stream)):
        return code
    clock = time.perf_counter()
    request, out = make_request(args, stages)
    if not args.quiet:
        print(f"project root: {request.case.root}", file=sys.stderr, flush=True)
    told = stream if args.verbose else None
    try:
        report = run_request(request, out, told, quiet=args.quiet)
        try:
            found = find_causes(args, request, out, report, told)
        except KeyboardInterrupt:
            found, report = Diagnosed(undiagnosed=INTERRUPTED), replace(report, interrupted=True)
        if found != Diagnosed():
            report = replace(
                report,
                diagnoses=found.diagnoses,
                undiagnosed=found.undiagnosed,
                interrupted=report.interrupted or found.interrupted,
            )
        elif not report.diagnoses:
            located_file(request).unlink(missing_ok=True)
        report = replace(report, seconds=time.perf_counter() - clock)
        page = request.folder / f"{report_name(request)}.html"
        report = with_page(report, args.html, page, located_details(request.folder))
        keep_report(report, request)
    except OSError as error:
        raise OutputError(
            f"{request.folder.parent}: the run cannot be written: {error.filename or ''}: {error.strerror or error}"
        ) from error
    if not os.environ.get(RUN_VARIABLE):
        prune(out)
    for line in show(request.folder) if show and not args.quiet else ():
        print(line, file=stream)
    return write_report(report, report_targets(args), stream=sys.stdout, root=request.case.root)


def _prepare(args: argparse.Namespace, stream: TextIO) -> int:
    """Prepare data and weights; a reference bundle brings weights of its own."""
    from tipchain.parity.case import load_case

    case, mode = load_case(from_root(args.case), args.seed), parse_mode(args.mode)
    return prepare_case_first(case, mode, data_path=args.data_path, stream=stream, weights=bundle_of(args) is None)


def make_request(args: argparse.Namespace, stages: Sequence[str]) -> tuple[AlignRequest, Path]:
    """Return what ``args`` asks for, and the output folder; a new run is opened in it.

    Raises:
        UsageError: arguments that do not fit together, or the case.
    """
    from tipchain.parity.align import AlignRequest, check_dumps
    from tipchain.parity.case import SIDES, check_builders, load_case
    from tipchain.parity.publish import LATEST
    from tipchain.parity.stages.judging import Rules

    mode, device = parse_mode(args.mode), parse_device(args.device)
    case = load_case(from_root(args.case), args.seed)
    reference = open_reference(args, case, mode)
    possible = choose_stages(case, mode, stages)
    chosen = reference.serve(possible, asked=bool(stages)) if reference else possible
    dumps = given_dumps(args)
    _check_use(args, dumps)
    recorded = (args.record,) if args.record else SIDES
    check_builders(
        case, chosen, [side for side in recorded if side not in dumps and not (reference and side == "torch")]
    )
    check_dumps(dumps, chosen)
    if reference:
        dumps["torch"] = reference.dumps
    out = out_folder(args.out, case, mode)
    request = AlignRequest(
        case=case,
        mode=mode,
        stages=chosen,
        folder=_run_folder(out) / LATEST,
        device=str(device),
        dumps=dumps,
        sides=(args.record,) if args.record else ("torch", "paddle"),
        data_path=_data_path(args, case, mode),
        timeout_s=args.timeout,
        threads=args.threads or (reference.threads if reference else 0),
        rules=Rules.of(case, strict=args.strict),
        given=reference.given if reference else None,
        notes=reference.notes(possible) if reference else (),
        fresh=args.fresh,
    )
    return request, out


def out_folder(out: Path | None, case: Case, mode: Mode) -> Path:
    """Return where the case's runs in a mode go: ``out``, else the usual place."""
    return out or case.root / "test_tipc" / "output" / case.id / mode.value


def run_request(request: AlignRequest, out: Path, stream: TextIO | None, *, quiet: bool = False) -> RunReport:
    """Run the stages and write down each of them, on ``stream`` too; an interruption ends the run, not the report."""
    from tipchain.parity.align import align
    from tipchain.parity.publish import LATEST, withdraw
    from tipchain.runs import atomic_write

    scribe = _Scribe(request, out, stream)
    withdraw(out / LATEST, request.stages)
    stages = Stages(request.stages, _stage_seconds(out))
    with Progress(quiet=quiet) as progress:
        progress.left = stages.left

        def listen(judgement: StageJudgement) -> None:
            stages.ended(judgement.stage)
            with progress.hidden():
                scribe.stage(judgement)

        try:
            align(request, listen, progress)
        except MissingFrameworkError as error:
            scribe.refuse(str(error))
            raise
        except KeyboardInterrupt:
            return scribe.report(interrupted=True)
    atomic_write(out / STAGE_SECONDS, json.dumps(_stage_seconds(out) | stages.took))
    return scribe.report()


def _stage_seconds(out: Path) -> dict[str, float]:
    """Return what stages took when they last ran below ``out``."""
    try:
        found = json.loads((out / STAGE_SECONDS).read_text())
        return {str(stage): float(seconds) for stage, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def keep_report(report: RunReport, request: AlignRequest) -> None:
    """Write a run's report into its folder; alignments of one stage each may share a folder."""
    from tipchain.report.model import dump_report
    from tipchain.runs import atomic_write

    atomic_write(request.folder / f"{report_name(request)}.json", dump_report(report))


def choose_stages(case: Case, mode: Mode, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the stages to run: those wanted, or all that the case names and the mode allows.

    Raises:
        UsageError: a wanted stage is not in the case.
    """
    from tipchain.stage_table import INFO

    possible = [stage for stage in case.stages if mode.trains or not INFO[stage].trains]
    missing = [stage for stage in wanted if stage not in case.stages]
    if missing:
        raise UsageError(
            f"{case.path}: stages: {', '.join(missing)} not in this case\n  it has: {', '.join(case.stages)}"
        )
    return tuple(wanted) or tuple(possible)


def from_root(path: Path) -> Path:
    """Return ``path`` as seen from here, else from the project's root (the scripts run from anywhere)."""
    here = Path(__file__).resolve().parents[2] / path
    return path if path.exists() or not here.exists() else here


def _run_folder(out: Path) -> Path:
    """Return the folder of the chain's run that this is part of, or a new one."""
    from tipchain.runs import new_run

    if os.environ.get(RUN_VARIABLE):
        return Path(os.environ[RUN_VARIABLE])
    try:
        return new_run(out)
    except OSError as error:
        raise UsageError(f"cannot write below {out}: {error.strerror}") from error


def _data_path(args: argparse.Namespace, case: Case, mode: Mode) -> Path | None:
    """Return the user's data folder: --data-path, or what the chain was given instead of the mode's."""
    from tipchain.parity.weights import data_roots

    if args.data_path is not None:
        return Path(args.data_path)
    given = os.environ.get(DATA_VARIABLE)
    if not given or Path(given).resolve() in [root.resolve() for root in data_roots(case, mode, None)]:
        return None
    return Path(given)


def _check_use(args: argparse.Namespace, dumps: Mapping[str, Path]) -> None:
    from tipchain.parity.align import DUMPS

    if args.record and args.record in dumps:
        raise UsageError(f"--record {args.record} and {DUMPS[args.record]} exclude each other")
    if args.data_path is not None and not args.data_path.is_dir():
        raise UsageError(f"--data-path: no such folder: {args.data_path}")


class _Scribe:
    """Writes down each stage as it is judged: the diff log, ``alignment.log``, ``log_reprod``, the terminal."""

    def __init__(self, request: AlignRequest, out: Path, stream: TextIO | None) -> None:
        from tipchain.environment import installed_versions
        from tipchain.nightly.origin import origin
        from tipchain.runs import append, run_header

        self.request = request
        self.case, self.mode, self.out, self.folder = request.case, request.mode, out, request.folder
        self.stream, self.sides = stream, request.sides
        self.started, self.clock = datetime.now().astimezone(), time.perf_counter()
        self.versions, self.where = installed_versions(), origin(request.case.root)
        self.judged: list[StageJudgement] = []
        self.notes = request.notes
        facts = {
            "case": str(self.case.path),
            "mode": self.mode.value,
            "device": request.device,
            "commit": self.where["commit"],
            **self.versions,
            "tf32": "off",
        }
        header = (run_header(self.folder.parent, facts), *(f"# {note}" for note in self.notes))
        append(out / "alignment.log", "\n".join(header))

    def stage(self, judgement: StageJudgement) -> None:
        """Write down one judged stage."""
        from tipchain.numbers.diff_log import write_diff_log
        from tipchain.parity.publish import LATEST, log_name, publish, stage_files
        from tipchain.runs import append

        self.judged.append(judgement)
        path = self.folder / log_name(judgement.stage)
        if self.stream is not None:
            print(f"== {judgement.stage}", file=self.stream, flush=True)
        write_diff_log(path, judgement.verdicts, judgement.tolerances, stage=judgement.stage, stream=self.stream)
        publish(self.folder, self.out / LATEST, stage_files(judgement.stage, self.sides))
        append(
            self.out / "alignment.log", f"# run {self.folder.parent.name} stage {judgement.stage}\n{path.read_text()}"
        )

    def refuse(self, message: str) -> None:
        """Note in ``alignment.log`` why nothing was run."""
        from tipchain.runs import append

        append(self.out / "alignment.log", "".join(f"# {line}\n" for line in f"error: {message}".splitlines()))

    def report(self, *, interrupted: bool = False) -> RunReport:
        """Return the report, its stages in their order, kept in the run's folder too."""
        from tipchain.numbers.verdicts import Verdict
        from tipchain.report.model import RunReport
        from tipchain.runs import append
        from tipchain.stage_table import STAGES

        sides = self.case.sides
        judged = sorted(self.judged, key=lambda one: STAGES.index(one.stage))
        ended = {one.stage for one in judged}
        left = [
            Verdict(outcome=Outcome.SKIP, subject=f"{stage}/run", reason="interrupted before it was judged")
            for stage in self.request.stages
            if interrupted and stage not in ended
        ]
        report = RunReport(
            title=str(self.case.path),
            mode=self.mode.value,
            run=os.path.relpath(self.folder.parent),
            started=self.started.isoformat(timespec="seconds"),
            seconds=time.perf_counter() - self.clock,
            versions=self.versions,
            where=self.where,
            models={"reference": sides["torch"].model, "port": sides["paddle"].model},
            verdicts=(*(verdict for one in judged for verdict in one.verdicts), *left),
            notes=(*self.notes, *(f"{one.stage}: {note}" for one in judged for note in one.notes)),
            interrupted=interrupted,
        )
        keep_report(report, self.request)
        counts = ", ".join(
            f"{report.outcomes.count(outcome)} {outcome.value}" for outcome in dict.fromkeys(report.outcomes)
        )
        append(
            self.out / "alignment.log",
            f"# run {self.folder.parent.name} ended: {counts}; exit code {int(report.exit_code)}",
        )
        return report
