"""A case's run: record both sides in processes of their own, then compare, judge and report.

Recording and judging meet as files: a side may come from another machine, and a finished run can be judged again. Of torch's side, what rests on nothing that changed is not recorded again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from filelock import FileLock

import tipchain
from tipchain.core.files import RUN_VARIABLE, append, atomic_write, commit, made_in, replacing_path, run_header
from tipchain.core.json_text import JsonObject
from tipchain.core.machine import CPUINFO, core_count, installed_versions
from tipchain.core.progress import Estimate, Progress
from tipchain.core.store import StoreEntry, digest, find_entry, listing, mark
from tipchain.errors import MissingFrameworkError, Outcome, UsageError, worst
from tipchain.modes import INFO, LATEST, NONE, SOLO, STAGES, Mode, dump_name, log_name, tensors_name
from tipchain.numbers.dumps import load_record, meta_path, save_record
from tipchain.numbers.verdicts import Verdict, write_diff_log
from tipchain.parity.case import SIDES, Case
from tipchain.parity.recorder import RecordingJob, RecordingSide, listen
from tipchain.parity.stages.judging import BENCHMARK, Judged, Rules, foreign, judge_stage, leaves_unknown, unjudged
from tipchain.parity.weights import GivenInputs, Prepared, prepare
from tipchain.report.model import RunReport, dump_report
from tipchain.weights.structure import group_by

# torch's dumps of earlier runs: a stage is not recorded again while all that it rests on is as it was.
#
# What a dump rests on is known in two halves. Before anything runs: the case with its prepared inputs, weights and data, how it is
# run (device, threads, environment), what is installed, tipchain's own code. After it ran: the files that the process has imported
# and opened. An entry serves where the first half is equal and every file of the second is as it was; else the stage is recorded.


KEPT_BYTES = 2 << 30
"""Bytes of the entries of all cases; the ones that served least recently go first."""
PASSING = {RUN_VARIABLE, "PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES"}
"""Variables that differ from one command to the next and reach no number."""
PROCESSOR = ("vendor", "model", "stepping", "flags", "CPU ", "Features")
"""The beginnings of lines of ``/proc/cpuinfo`` that decide on kernels."""
PASSING_JOB = {"stages", "needs", "folder", "commit", "since", "noise"}
"""Keys of a job that belong to one run alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCache:
    """torch's kept recordings of one case: a folder each, with the files of a stage and ``entry.json``.

    Attributes:
        folder: of the recordings of all cases.
        case: the id of the case.
        keys: of the stages.
        served: the entries that served, by stage.
        look: a mark that is looked at once.
    """

    folder: Path
    case: str
    keys: Mapping[str, str]
    served: dict[str, StoreEntry] = field(default_factory=dict)
    look: Callable[[str, str], str] = field(default_factory=lambda: cache(mark))

    @classmethod
    def of(cls, case: Case, job: RecordingJob, stages: Sequence[str]) -> ReferenceCache:
        """Return the cache for the recordings of ``stages`` by ``job``."""
        common = {
            "case": case.digest,
            "path": job.case,
            "data": [] if case.data.set == NONE else [digest(listing(one)) for one in (job.train_data, job.eval_data)],
            "job": {key: value for key, value in asdict(job).items() if key not in PASSING_JOB},
            "cwd": str(Path.cwd()),
            "environment": {k: v for k, v in os.environ.items() if k not in PASSING},
            **_machine(),
        }
        keys = {}
        for stage in stages:
            needs = asdict(job.needs[stage])
            needs["inputs"] = bool(needs["inputs"])  # the file lies in the run's folder; its digest is among the others
            keys[stage] = digest({**common, "stage": stage, "needs": needs})
        return cls(folder=made_in(case.root, "data") / "references", case=case.id, keys=keys)

    def entry(self, stage: str) -> Path:
        """Return the file of a stage's entry."""
        return self.folder / self.case / f"{stage}-{self.keys[stage][:20]}" / "entry.json"

    def adopt(self, stage: str, folder: Path) -> bool:
        """Bring the files of a stage to ``folder`` if an entry holds, and tell whether one does."""
        path = self.entry(stage)
        entry = find_entry(path, self.keys[stage], path.parent, self.look)
        if entry is None:
            return False
        try:
            for name in entry.files:
                link(path.with_name(name), folder / name)
            os.utime(path)
        except OSError:
            return False
        self.served[stage] = entry
        return True

    def note(self) -> str:
        """Return a note on the stages that were not recorded anew."""
        since, count = min(one.facts["recorded"] for one in self.served.values()), len(self.served)
        return (
            f"reused torch's results of {since} for {'1 stage' if count == 1 else f'{count} stages'}: nothing they rest on "
            "has changed; --fresh records them anew"
        )

    def keep(self, judgement: Judged, marks: Mapping[str, str] | None, folder: Path) -> None:
        """Keep torch's recording of a stage, unless it changed its own sources or could not be judged."""
        stage = judgement.stage
        if not marks or any(one.outcome is Outcome.ERROR for one in judgement.verdicts):
            return
        path = self.entry(stage)
        try:
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock"):
                shutil.rmtree(path.parent, ignore_errors=True)
                path.parent.mkdir()
                names = [name for name in stage_files(stage, ("torch",)) if (folder / name).is_file()]
                for name in names:
                    link(folder / name, path.with_name(name))
                entry = StoreEntry(
                    key=self.keys[stage],
                    files={name: mark(str(path.with_name(name)), "time") for name in names},
                    rests_on=marks,
                    facts={"recorded": time.strftime("%Y-%m-%d %H:%M")},
                )
                entry.write(path)
                taken = 0  # those that served least recently go
                for one in sorted(self.folder.glob("*/*/entry.json"), key=lambda one: -one.stat().st_mtime):
                    taken += sum(file.stat().st_size for file in one.parent.iterdir())
                    if taken > KEPT_BYTES:
                        one.unlink()
                        shutil.rmtree(one.parent, ignore_errors=True)
        except OSError as error:  # a full or read-only disk costs time, no result
            shutil.rmtree(path.parent, ignore_errors=True)
            print(f"{path.parent}: not kept: {error}", file=sys.stderr)


@cache
def _machine() -> dict[str, object]:
    """Return the installed software and the processor, whose kernels decide on the last places."""
    package = Path(tipchain.__file__).parent
    code = {str(path.relative_to(package)): mark(str(path), "content") for path in sorted(package.rglob("*.py"))}
    lines = CPUINFO.read_text().partition("\n\n")[0].splitlines()
    processor = [line for line in lines if line.startswith(PROCESSOR)]
    installed = [
        (str(one), one.stat().st_mtime_ns)
        for folder in dict.fromkeys(Path(one).absolute() for one in sys.path)
        if folder.is_dir()
        for one in sorted(folder.iterdir())
        if one.suffix in (".dist-info", ".egg-info", ".egg-link", ".pth")
    ]
    return {
        "tipchain": digest(code),
        "python": sys.version,
        "executable": sys.executable,
        "path": sys.path,
        "platform": platform.platform(),
        "processor": processor,
        "installed": digest(installed),
    }


# A case's run.


DUMPS = {"torch": "--reference", "paddle": "--port"}
"""The option that names a side's dumps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignRequest:
    """One alignment run.

    Attributes:
        folder: where this run's dumps and logs go.
        dumps: dumps made elsewhere, by side: a folder or one file; that side is not run.
        sides: the sides to record; with one side only nothing is compared.
        data_path: a data folder of the user's instead of the mode's.
        timeout_s: how long a side may take in all; None for no limit.
        threads: threads of each recording process.
        given: what need not be prepared.
        notes: what a reader of the report should know of where the reference comes from.
        fresh: record torch's side even where an earlier run's still holds.
    """

    case: Case
    mode: Mode
    stages: tuple[str, ...]
    folder: Path
    device: str = "cpu"
    dumps: Mapping[str, Path] = field(default_factory=dict)
    sides: tuple[str, ...] = SIDES
    data_path: Path | None = None
    timeout_s: float | None = None
    threads: int = 0
    rules: Rules | None = None
    given: GivenInputs | None = None
    notes: tuple[str, ...] = ()
    fresh: bool = False

    @property
    def recorded_sides(self) -> tuple[str, ...]:
        """The sides that are run here."""
        return tuple(side for side in self.sides if side not in self.dumps)

    @property
    def report_name(self) -> str:
        """The name of its report, without an ending; alignments of other stages of the case may share its folder."""
        if len(self.stages) > 1 and self.stages == choose_stages(self.case, self.mode, ()):
            return "alignment"
        more = f"+{len(self.stages) - 1}" if len(self.stages) > 1 else ""
        return f"alignment_{self.stages[0]}{more}"


def out_folder(out: Path | None, case: Case, mode: Mode) -> Path:
    """Return where the case's runs in a mode go: ``out``, else the usual place."""
    return out or made_in(case.root, "output") / case.id / mode.value


def choose_stages(case: Case, mode: Mode, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the stages to run: those wanted, or all that the case names and the mode allows.

    Raises:
        UsageError: a wanted stage is not in the case.
    """
    possible = [stage for stage in case.stages if mode.trains or not INFO[stage].trains]
    missing = [stage for stage in wanted if stage not in case.stages]
    if missing:
        raise UsageError(
            f"{case.path}: stages: {', '.join(missing)} not in this case\n  it has: {', '.join(case.stages)}"
        )
    return tuple(wanted) or tuple(possible)


STAGE_SECONDS = ".stage_seconds.json"
"""The seconds of stages when they last ran, the basis for the time that is left; nothing else rests on it."""


def run_case(
    request: AlignRequest, out: Path, *, where: JsonObject, stream: TextIO | None = None, quiet: bool = False
) -> RunReport:
    """Run the stages, write down each of them as it is judged, and report; an interruption ends the run, not the report.

    Args:
        request: what is run.
        out: the folder of the case's runs in the mode, which has their log and the latest files.
        where: the machine and the commit, for the report.
        stream: where each stage is printed; None for nowhere.
        quiet: do not say how far it is.

    Raises:
        MissingFrameworkError: a framework is absent or lacks the device.
        OSError: the output folder cannot be written to.
    """
    scribe = _Scribe(request, out, where, stream)
    # An old "passed" must not outlive the start of a run.
    for stage in request.stages:
        (out / LATEST / log_name(stage)).unlink(missing_ok=True)
    usual, took, begin = _by_stage(out / STAGE_SECONDS, float), dict[str, float](), time.monotonic()

    def left() -> float | None:
        pending = [stage for stage in request.stages if stage not in took]
        ran = time.monotonic() - begin - sum(took.values())
        return Estimate(usual).left(pending[1:], dict.fromkeys(pending[:1], ran))

    with Progress(quiet=quiet) as progress:
        progress.left = left

        def listen(judgement: Judged) -> None:
            took[judgement.stage] = time.monotonic() - begin - sum(took.values())
            with progress.hidden():
                scribe.stage(judgement)

        try:
            align(request, listen, progress)
        except MissingFrameworkError as error:
            append(out / "alignment.log", "".join(f"# {line}\n" for line in f"error: {error}".splitlines()))
            raise
        except KeyboardInterrupt:
            return scribe.report(interrupted=True)
    atomic_write(out / STAGE_SECONDS, json.dumps(usual | took))
    return scribe.report()


def _by_stage(path: Path, kind: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a file's values by stage; nothing where it is not there, or damaged."""
    try:
        return {str(stage): kind(fact) for stage, fact in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


VERDICTS = "verdicts.json"
"""In `LATEST`: how each stage ended when it was judged last, by its name."""


def keep_report(report: RunReport, request: AlignRequest, out: Path) -> None:
    """Write a run's report into its folder, and how its stages ended to the latest dumps."""
    atomic_write(request.folder / f"{request.report_name}.json", dump_report(report))
    path = out / LATEST / VERDICTS
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{VERDICTS}.lock")):
        ended = group_by(report.verdicts, lambda one: one.subject.partition("/")[0])
        known = read_verdicts(out) | {stage: worst(one.outcome for one in ones) for stage, ones in ended.items()}
        atomic_write(path, json.dumps({stage: outcome.value for stage, outcome in known.items()}) + "\n")


def read_verdicts(out: Path) -> dict[str, Outcome]:
    """Return how each stage ended when it was judged last below ``out``; nothing where that is not known."""
    return _by_stage(out / LATEST / VERDICTS, Outcome)


class _Scribe:
    def __init__(self, request: AlignRequest, out: Path, where: JsonObject, stream: TextIO | None) -> None:
        self.request, self.out, self.stream, self.where = request, out, stream, where
        self.case, self.folder = request.case, request.folder
        self.started, self.clock = datetime.now().astimezone(), time.perf_counter()
        self.versions = installed_versions()
        self.judged: list[Judged] = []
        facts = {
            "case": str(self.case.path),
            "mode": request.mode.value,
            "device": request.device,
            "commit": where["commit"],
            **self.versions,
            "tf32": "off",
        }
        header = (run_header(self.folder.parent, facts), *(f"# {note}" for note in request.notes))
        append(out / "alignment.log", "\n".join(header))

    def stage(self, judgement: Judged) -> None:
        self.judged.append(judgement)
        path = self.folder / log_name(judgement.stage)
        if self.stream is not None:
            print(f"== {judgement.stage}", file=self.stream, flush=True)
        write_diff_log(path, judgement.verdicts, judgement.tolerances, stage=judgement.stage, stream=self.stream)
        latest = self.out / LATEST
        latest.mkdir(parents=True, exist_ok=True)
        # Each in one step; what is absent here is removed there.
        for name in stage_files(judgement.stage, self.request.sides):
            if (self.folder / name).is_file():
                link(self.folder / name, latest / name)
            else:
                (latest / name).unlink(missing_ok=True)
        append(
            self.out / "alignment.log", f"# run {self.folder.parent.name} stage {judgement.stage}\n{path.read_text()}"
        )

    def report(self, *, interrupted: bool = False) -> RunReport:
        """Return the report, its stages in their order."""
        request = self.request
        judged = sorted(self.judged, key=lambda one: STAGES.index(one.stage))
        ended = {one.stage for one in judged}
        left = [
            Verdict(Outcome.SKIP, f"{stage}/run", "interrupted before it was judged")
            for stage in request.stages
            if interrupted and stage not in ended
        ]
        decay = "optimizer" in ended and "regularization" not in request.stages
        apart = ["optimizer: weight decay was not compared: the stage regularization does that"] if decay else []
        report = RunReport(
            title=str(self.case.path),
            mode=request.mode.value,
            run=os.path.relpath(self.folder.parent),
            started=self.started.isoformat(timespec="seconds"),
            seconds=time.perf_counter() - self.clock,
            versions=self.versions,
            where=self.where,
            models={"reference": self.case.sides["torch"].model, "port": self.case.sides["paddle"].model},
            verdicts=(*(verdict for one in judged for verdict in one.verdicts), *left),
            notes=(*request.notes, *(f"{one.stage}: {note}" for one in judged for note in one.notes), *apart),
            interrupted=interrupted,
            stages=choose_stages(self.case, request.mode, ()),
        )
        counts = ", ".join(
            f"{report.outcomes.count(outcome)} {outcome.value}" for outcome in dict.fromkeys(report.outcomes)
        )
        append(
            self.out / "alignment.log",
            f"# run {self.folder.parent.name} ended: {counts}; exit code {int(report.exit_code)}",
        )
        return report


def align(
    request: AlignRequest, listener: Callable[[Judged], None] = lambda _: None, progress: Progress | None = None
) -> list[Judged]:
    """Record, compare and judge; ``listener`` hears of each stage as soon as it is judged.

    Raises:
        MissingFrameworkError: a framework is absent or lacks the device.
    """
    since, progress = time.time(), progress or Progress(quiet=True)
    rules = request.rules or Rules.of(request.case)
    pending, judged = list(request.stages), list[Judged]()
    sides: list[RecordingSide] = []
    cache: ReferenceCache | None = None
    full: RecordingJob | None = None

    def tell(judgement: Judged) -> None:
        pending.remove(judgement.stage)
        judged.append(judgement)
        listener(judgement)

    request.folder.mkdir(parents=True, exist_ok=True)
    adopt_dumps(request.dumps, request.stages, request.folder)
    benchmark = request.case.train.benchmark
    if benchmark is not None and "train" in request.stages and "torch" not in request.dumps:
        arrays = {key: np.array([value], dtype=np.float32) for key, value in benchmark.items()}
        meta = {"side": BENCHMARK, "stage": "train", "details": {"source": "published, from the case"}}
        save_record(request.folder / dump_name("train", "torch"), arrays, meta=meta)
    try:
        if request.recorded_sides:
            progress.stage("preparing inputs and weights")
            prepared = prepare(
                request.case,
                request.mode,
                pending,
                request.folder,
                request.recorded_sides,
                request.data_path,
                request.given,
            )
            for stage, reason in prepared.failures.items():
                tell(unjudged(stage, "needs", reason))
            at = commit(request.case.root)
            # The port begins before anybody looks for what torch has recorded before.
            for side in sorted(request.recorded_sides, key=SIDES.index, reverse=True) if pending else ():
                job = full = _job(request, prepared, pending, side, at)
                if side == "torch":
                    job, cache = _spare(request, job, pending, since)
                sides.insert(0, RecordingSide(job, pending, request.timeout_s))
        while pending:
            ready = [stage for stage in pending if all(stage in one.ended for one in sides)]
            for stage in ready:
                judgement = _judge(request, stage, sides, rules)
                if full and not full.noise and leaves_unknown(judgement):
                    ready = []
                    if not sides[0].left:  # torch is asked for more once it has done the rest
                        full = replace(full, stages=(stage,), noise=True, since=since if cache else 0.0)
                        sides[0] = sides[0].again(full, request.timeout_s)
                    continue
                if cache:
                    cache.keep(judgement, sides[0].marks.get(stage), request.folder)
                    if stage == next(iter(cache.served), ""):
                        judgement = replace(judgement, notes=(*judgement.notes, cache.note()))
                tell(judgement)
            if pending and not ready:
                show_recording(progress, request.stages, sides)
                listen(sides)
    finally:
        for one in sides:
            one.stop()
    return judged


def show_recording(progress: Progress, stages: Sequence[str], sides: Sequence[RecordingSide]) -> None:
    """Show the stage that the slower side is at, and the work of each side."""
    running = {one.side: one.current for one in sides if one.left}
    stage = min(filter(None, running.values()), key=stages.index, default="")
    if not stage:
        progress.stage(f"starting {' and '.join(running)}")
        return
    progress.stage(stage, stages.index(stage) + 1, len(stages))
    others = [f"{side} at {at or 'its start'}" for side, at in running.items() if at != stage]
    mine = " and ".join(side for side, at in running.items() if at == stage)
    progress.say(", ".join([mine, *others]))


def _judge(request: AlignRequest, stage: str, sides: Sequence[RecordingSide], rules: Rules) -> Judged:
    failures = [
        Verdict(Outcome.ERROR, f"{stage}/{one.side}", message)
        for one in sides
        if (message := one.ended[stage]) is not None
    ]
    if failures:
        return Judged(stage=stage, verdicts=tuple(failures))
    if len(request.sides) < len(SIDES):
        return unjudged(stage, request.sides[0], f"only {request.sides[0]} was recorded", Outcome.SKIP)
    return judge_stage(stage, request.folder, rules)


def check_dumps(dumps: Mapping[str, Path], stages: Sequence[str]) -> None:
    """Refuse dumps that cannot serve: a missing path, one file for several stages, no dump, another side's.

    Raises:
        UsageError: the message names the path and what was expected.
        RecordError: the file is no dump.
    """
    for side, path in dumps.items():
        if not path.exists():
            raise UsageError(f"{DUMPS[side]}: no such file or folder: {path}")
        names = ", ".join(dump_name(stage, side) for stage in stages)
        if path.is_file() and len(stages) > 1:
            raise UsageError(
                f"{DUMPS[side]}: {path} is one file for {len(stages)} stages\n  expected: a folder with {names}"
            )
        if path.is_dir() and not any((path / dump_name(stage, side)).is_file() for stage in stages):
            raise UsageError(f"{DUMPS[side]}: {path} has no dump\n  expected: {names}")
        for stage in stages if path.is_file() else ():
            wrong = foreign(path, load_record(path), stage, side)
            if wrong:
                raise UsageError(f"{DUMPS[side]}: {wrong}")


def _job(request: AlignRequest, prepared: Prepared, stages: Sequence[str], side: str, at: str) -> RecordingJob:
    case = request.case
    # torch is not asked where the port is held against itself, or against a published number.
    published = {"train"} if case.train.benchmark is not None else set()
    unasked = published.union(SOLO) if side == "torch" else ()
    return RecordingJob(
        side=side,
        case=str(case.path.resolve()),
        reseed=case.reseed,
        stages=tuple(stage for stage in stages if stage not in unasked),
        device=request.device,
        threads=request.threads or default_threads(len(request.recorded_sides)),
        folder=str(request.folder.resolve()),
        needs={stage: prepared.needs(stage, side) for stage in stages},
        train_data=str(prepared.train_data.resolve()),
        eval_data=str(prepared.eval_data.resolve()),
        epochs=case.epochs(request.mode),
        seeds=case.seeds(request.mode),
        commit=at,
        noise=request.recorded_sides != SIDES,  # where both sides are at hand, torch can be asked for more
    )


def _spare(
    request: AlignRequest, job: RecordingJob, stages: Sequence[str], since: float
) -> tuple[RecordingJob, ReferenceCache | None]:
    """Take recordings of an earlier run from torch's job, and have it tell the sources of the rest.

    Only on a CPU, where torch repeats itself, and where both sides are asked for: who records one alone wants it anew.
    """
    if request.device != "cpu" or request.recorded_sides != SIDES:
        return job, None
    cache = ReferenceCache.of(request.case, job, stages)
    left = tuple(stage for stage in job.stages if request.fresh or not cache.adopt(stage, request.folder))
    return replace(job, stages=left, since=since), cache


def default_threads(sides: int) -> int:
    """Return threads for each of ``sides`` recorders that run side by side."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else max(1, core_count() // max(1, sides))


def link(source: Path, target: Path) -> None:
    """Let ``target`` be the same file as ``source``, or a copy where the file system has no hard links; in one step."""
    with replacing_path(target) as beside:
        try:
            os.link(source, beside)
        except OSError:
            shutil.copyfile(source, beside)


def stage_files(stage: str, sides: Sequence[str] = SIDES) -> tuple[str, ...]:
    """Return the names of all files that a stage may leave; of one side alone, no diff log is among them."""
    roles = SIDES if stage in SOLO and "paddle" in sides else sides
    dumps = [dump_name(stage, side) for side in roles]
    logs = [log_name(stage)] if len(roles) == len(SIDES) else []
    return (*dumps, *(meta_path(name).name for name in dumps), *(tensors_name(stage, side) for side in roles), *logs)


def adopt_dumps(dumps: Mapping[str, Path], stages: Sequence[str], folder: Path) -> None:
    """Copy dumps made elsewhere, with the files beside them, into a run's folder.

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
