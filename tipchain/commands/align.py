"""``tipchain align`` and the numbered scripts: run the alignment stages of a case."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.commands.align_where import tell_where
from tipchain.commands.locate import add_within
from tipchain.commands.prepare import add_prepare_first, prepare_case_first
from tipchain.commands.reference import add_reference_arguments, open_reference
from tipchain.commands.report import add_report_arguments, check_targets
from tipchain.devices import parse_device
from tipchain.errors import MissingFrameworkError, OutputError, UsageError
from tipchain.modes import Mode, parse_mode
from tipchain.runs import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE

if TYPE_CHECKING:
    from tipchain.parity.align import Request
    from tipchain.parity.case_types import Case
    from tipchain.parity.stage_judge import StageJudgement
    from tipchain.report.model import RunReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``tipchain align``."""
    parser.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    parser.add_argument(
        "--stages",
        "--steps",
        metavar="LIST",
        help="stage names or script numbers, e.g. forward,loss or 01,04",
    )
    add_run_arguments(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``align`` and the numbered scripts share."""
    mode = os.environ.get(MODE_VARIABLE) or Mode.LITE_TRAIN_LITE_INFER.value
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu, gpu or gpu:N (default cpu)")
    parser.add_argument("--mode", default=mode, metavar="MODE", help=f"TIPC mode (default {mode})")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="output folder (default test_tipc/output/CASE/MODE)"
    )
    parser.add_argument(
        "--torch-dump",
        type=Path,
        metavar="PATH",
        help="use these torch dumps (a folder or a file); torch is not run",
    )
    add_reference_arguments(parser)
    parser.add_argument(
        "--paddle-dump", type=Path, metavar="PATH", help="use these Paddle dumps; Paddle is not run"
    )
    parser.add_argument(
        "--record",
        choices=("torch", "paddle"),
        help="record this side only, to compare elsewhere; exit code 4",
    )
    parser.add_argument(
        "--data-path", type=Path, metavar="DIR", help="data folder with train/ and val/ class folders"
    )
    add_prepare_first(parser)
    parser.add_argument(
        "--strict", action="store_true", help="forward within 1e-6, the reproduction guide's threshold"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds that each side may take in all")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="threads of each side (default: cores shared out)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="add N to the seeds of the case, its weights and fake inputs",
    )
    parser.add_argument(
        "--no-locate",
        action="store_true",
        help="where a stage fails, do not look for the layer at fault and its cause",
    )
    add_within(parser)
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages and return the exit code."""
    from tipchain.parity.names import parse_stages

    return align_case(args, parse_stages(args.stages) if args.stages else ())


def align_case(args: argparse.Namespace, stages: Sequence[str], *, show_metrics: bool = False) -> int:
    """Align the case that ``args`` names; without ``stages`` all that the case and the mode have.

    With ``show_metrics`` the metrics of both sides are printed before they are compared.
    """
    from tipchain.report.write import write_report
    from tipchain.runs import prune

    check_targets(args)
    # Where the report goes to standard output, it must stand there alone.
    stream = sys.stderr if "-" in (args.json, args.junit) else sys.stdout
    if args.prepare and (code := _prepare(args, stream)):
        return code
    request, out = make_request(args, stages)
    try:
        report = run_request(request, out, stream, show_metrics=show_metrics)
        if not args.no_locate:
            tell_where(args, request, out, report, stream)
    except OSError as error:
        raise OutputError(f"{request.folder.parent}: the run cannot be written: {error}") from error
    if not os.environ.get(RUN_VARIABLE):
        prune(out)
    return write_report(report, json_to=args.json, junit_to=args.junit, stream=sys.stdout)


def _prepare(args: argparse.Namespace, stream: TextIO) -> int:
    """Prepare data and weights; a reference bundle brings weights of its own."""
    from tipchain.parity.case import load_case

    case, mode = load_case(from_root(args.case), args.seed), parse_mode(args.mode)
    return prepare_case_first(
        case, mode, data_path=args.data_path, stream=stream, weights=args.reference is None
    )


def make_request(args: argparse.Namespace, stages: Sequence[str]) -> tuple[Request, Path]:
    """Return what ``args`` asks for, and the output folder; a new run is opened in it.

    Raises:
        UsageError: arguments that do not fit together, or the case.
    """
    from tipchain.parity.align import Request, check_dumps
    from tipchain.parity.case import load_case
    from tipchain.parity.publish import LATEST
    from tipchain.parity.stage_judge import Rules

    mode, device = parse_mode(args.mode), parse_device(args.device)
    case = load_case(from_root(args.case), args.seed)
    reference = open_reference(args, case, mode)
    possible = choose_stages(case, mode, stages)
    chosen = reference.serve(possible, asked=bool(stages)) if reference else possible
    dumps = {
        side: path for side in ("torch", "paddle") if (path := getattr(args, f"{side}_dump")) is not None
    }
    _check_use(args, dumps)
    check_dumps(dumps, chosen)
    if reference:
        dumps["torch"] = reference.dumps
    out = out_folder(args, case, mode)
    request = Request(
        case=case, mode=mode, stages=chosen, folder=_run_folder(out) / LATEST, device=str(device), dumps=dumps,
        sides=(args.record,) if args.record else ("torch", "paddle"), data_path=_data_path(args, case, mode),
        timeout_s=args.timeout, threads=args.threads or (reference.threads if reference else 0),
        rules=Rules.of(case, strict=args.strict), given=reference.given if reference else None,
        notes=reference.notes(possible) if reference else (),
    )  # fmt: skip
    return request, out


def out_folder(args: argparse.Namespace, case: Case, mode: Mode) -> Path:
    """Return where the case's runs in a mode go."""
    return args.out or case.root / "test_tipc" / "output" / case.id / mode.value


def run_request(request: Request, out: Path, stream: TextIO, *, show_metrics: bool = False) -> RunReport:
    """Run the stages and write down each of them."""
    from tipchain.parity.align import align
    from tipchain.parity.publish import LATEST, withdraw

    scribe = _Scribe(request, out, stream, show_metrics=show_metrics)
    withdraw(out / LATEST, request.stages)
    try:
        align(request, scribe.stage)
    except MissingFrameworkError as error:
        scribe.refuse(str(error))
        raise
    return scribe.report()


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
    if args.record and args.record in dumps:
        raise UsageError(f"--record {args.record} and --{args.record}-dump exclude each other")
    if args.seed < 0:
        raise UsageError(f"--seed must be at least 0, found {args.seed}")
    if args.threads < 0:
        raise UsageError(f"--threads must be at least 1, found {args.threads}")
    if args.timeout is not None and not args.timeout > 0:
        raise UsageError(f"--timeout must be a number of seconds above 0, found {args.timeout}")
    if args.data_path is not None and not args.data_path.is_dir():
        raise UsageError(f"--data-path: no such folder: {args.data_path}")


class _Scribe:
    """Writes down each stage as it is judged: the diff log, ``alignment.log``, ``log_reprod``, the terminal."""

    def __init__(self, request: Request, out: Path, stream: TextIO, *, show_metrics: bool = False) -> None:
        from tipchain.environment import installed_versions
        from tipchain.nightly.fingerprint import origin
        from tipchain.runs import append, run_header

        self.case, self.mode, self.out, self.folder = request.case, request.mode, out, request.folder
        self.stream, self.sides, self.show_metrics = stream, request.sides, show_metrics
        self.started, self.clock = datetime.now().astimezone(), time.perf_counter()
        self.versions, self.where = installed_versions(), origin(request.case.root)
        self.judged: list[StageJudgement] = []
        self.notes = request.notes
        facts = {"case": str(self.case.path), "mode": self.mode.value, "device": request.device,
                 "commit": self.where["commit"], **self.versions, "tf32": "off"}  # fmt: skip
        header = (run_header(self.folder.parent, facts), *(f"# {note}" for note in self.notes))
        append(out / "alignment.log", "\n".join(header))

    def stage(self, judgement: StageJudgement) -> None:
        """Write down one judged stage."""
        from tipchain.parity.difflog import write_diff_log
        from tipchain.parity.names import log_name
        from tipchain.parity.publish import LATEST, publish, stage_files
        from tipchain.runs import append

        self.judged.append(judgement)
        path = self.folder / log_name(judgement.stage)
        print(f"== {judgement.stage}", file=self.stream, flush=True)
        if self.show_metrics:
            self._print_metrics(judgement.stage)
        write_diff_log(
            path, judgement.verdicts, judgement.tolerances, stage=judgement.stage, stream=self.stream
        )
        publish(self.folder, self.out / LATEST, stage_files(judgement.stage, self.sides))
        append(
            self.out / "alignment.log",
            f"# run {self.folder.parent.name} stage {judgement.stage}\n{path.read_text()}",
        )

    def _print_metrics(self, stage: str) -> None:
        """Print the port's and the reference's metrics as two dictionaries, where both were recorded."""
        from tipchain.parity.names import dump_name
        from tipchain.parity.record import load_record

        paths = [self.folder / dump_name(stage, side) for side in ("paddle", "torch")]
        if all(path.is_file() for path in paths):
            shown = [{k: v for k, v in load_record(path).arrays.items() if "/" not in k} for path in paths]
            print(*shown, file=self.stream, flush=True)

    def refuse(self, message: str) -> None:
        """Note in ``alignment.log`` why nothing was run."""
        from tipchain.runs import append

        append(
            self.out / "alignment.log", "".join(f"# {line}\n" for line in f"error: {message}".splitlines())
        )

    def report(self) -> RunReport:
        """Return the report, kept in the run's folder too."""
        from tipchain.report.json_ import dump_report
        from tipchain.report.model import RunReport
        from tipchain.runs import append, atomic_write

        report = RunReport(
            title=str(self.case.path),
            mode=self.mode.value,
            run=os.path.relpath(self.folder.parent),
            started=self.started.isoformat(timespec="seconds"),
            seconds=time.perf_counter() - self.clock,
            versions=self.versions,
            where=self.where,
            verdicts=tuple(verdict for judgement in self.judged for verdict in judgement.verdicts),
            notes=(
                *self.notes,
                *(f"{judgement.stage}: {note}" for judgement in self.judged for note in judgement.notes),
            ),
        )
        name = "alignment.json" if len(self.judged) != 1 else f"alignment_{self.judged[0].stage}.json"
        atomic_write(self.folder / name, dump_report(report))
        counts = ", ".join(
            f"{report.outcomes.count(outcome)} {outcome.value}" for outcome in dict.fromkeys(report.outcomes)
        )
        append(
            self.out / "alignment.log",
            f"# run {self.folder.parent.name} ended: {counts}; exit code {int(report.exit_code)}",
        )
        return report
