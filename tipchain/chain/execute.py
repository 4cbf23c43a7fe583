"""One command of a plan: run it, read its logs and its workers', judge how it ended."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice, takewhile
from math import isfinite
from pathlib import Path

from tipchain.chain.artifacts import (
    USUAL,
    LineCheck,
    Missing,
    Snapshot,
    Stamp,
    UnsettledError,
    explain,
    missing_files,
    settle,
    snapshot,
    stamp,
)
from tipchain.chain.plan import Command, Result, Speed
from tipchain.chain.process import PYTHON_HINT, STUCK, Ending, Stop, call
from tipchain.chain.profiles import SHIPPED
from tipchain.core import language
from tipchain.core.files import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE, local_time
from tipchain.core.machine import signal_name
from tipchain.errors import NO_VERDICT, NOT_THE_SAME, Outcome
from tipchain.modes import DataFolders, Mode, data_folders

# Numbers of a command's log: losses, accuracies, speeds, milliseconds, memory.
#
# The suites print ``name: value`` pairs, each in its own words. The last value of a name counts. In a training's log the lines of evaluations (``[Eval]``, ``[EVAL]``, ``val step``)
# give metrics only, and these count more than the training's own. Metrics stand as printed: some suites print
# percent, some fractions. ``nan`` and ``inf`` are figures too.


_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|nan\b|inf(?:inity)?\b)"
_PAIR = re.compile(rf"(?<![\w/.@-])([a-z][\w/]*)(\([^()]*\))?(?:[:=]|\s=)\s*\[?({_NUMBER})")
_IPS = re.compile(rf"(?:^|\s)ips[:=]\s*(?P<value>{_NUMBER})(?:\s*(?P<unit>[a-z]+/s(?:ec)?)\b)?")
_EPOCH = re.compile(r"\bepoch[:=]\s*\d+")
_SENTENCES = (
    ("top{}", re.compile(rf"\bacc@(?P<which>[15])[: ]\s*(?P<value>{_NUMBER})")),
    (
        "map{}",
        re.compile(
            r"average precision\s+\(ap\) @\[ iou=0\.(?P<which>50:0\.95|50|75)\s*\| area=\s*all .*\] = "
            rf"(?P<value>{_NUMBER})"
        ),
    ),
    ("total_s", re.compile(rf"\btotal time(?: spent)?\(s\):\s*(?P<value>{_NUMBER})")),
    ("avg_ms", re.compile(rf"\baverage latency time\(ms\):\s*(?P<value>{_NUMBER})")),
    ("data_num", re.compile(rf"\btotal number of samples:\s*(?P<value>{_NUMBER})")),
)
_HINTS = ("acc@", "average", "total ")
_EVALUATION = re.compile(r"\[eval|\[val\b|\bval +(?:step|epoch|loss)|\btest:|\beval iter")


_OF_STEP: Mapping[str, Sequence[str]] = {
    "train": ("metrics", "speed", "training"),
    "eval": ("metrics", "speed"),
    "infer": ("metrics", "inference"),
    "compare": ("comparison",),
}
"""Which tables of figures count for a step."""


@cache
def _figure_names(*tables: str) -> Mapping[str, str]:
    from tipchain.core.yaml_reader import load_yaml

    data = load_yaml(SHIPPED / "kinds/figures.yaml", "a kind's data").data
    return {name: figure for table in tables for figure, text in data[table].items() for name in text.split()}


class FigureReader:
    """Collects the figures of a log, line by line; steps other than train, eval, infer and compare have none."""

    def __init__(self, step: str, speed: Speed | None = None) -> None:
        self.speed, self.unit, self.speeds = speed, "", list[float]()
        self.epoch, self.in_epoch, self.begun = "", 0, 0
        self.trains = step == "train"
        self.names = _figure_names(*_OF_STEP.get(step, ()))
        self.metrics = {*_figure_names("metrics").values(), "map50", "map75"}
        self.wanted = {*self.names.values(), *self.metrics}
        self.wanted |= {"total_s", "avg_ms", "data_num"} if step == "infer" else set()
        self.last: dict[str, float] = {}
        self.parts: dict[str, float] = {}
        self.evaluated: dict[str, float] = {}
        self.rates: dict[str, list[float]] = {"ips": [], "avg_ips": []}

    def read(self, line: str) -> None:
        """Take note of a line."""
        if not self.names:
            return
        text = line.lower()
        is_evaluation = self.trains and ("val" in text or "test:" in text) and bool(_EVALUATION.search(text))
        if self.speed and not is_evaluation and (told := _IPS.search(text)):
            self.unit = self.unit or (told["unit"] or "")
            if epoch := _EPOCH.search(text):
                self.epoch, self.in_epoch = epoch[0], self.in_epoch + 1 if epoch[0] == self.epoch else 1
            if epoch and self.in_epoch <= self.speed.each_epoch:
                self.begun += 1
            else:
                self.speeds.append(float(told["value"]))
        for name, unit, value in _PAIR.findall(text):
            if figure := self.names.get(name + unit) or self.names.get(name):
                self._note(figure, float(value), is_evaluation=is_evaluation)
            elif "loss" in name and "scal" not in name and not is_evaluation:
                self.parts[name] = float(value)
        for figure, pattern in _SENTENCES if any(hint in text for hint in _HINTS) else ():
            for found in pattern.finditer(text):
                which = found.groupdict().get("which", "")
                name = figure.format("" if ":" in which else which)
                if name in self.wanted:
                    self._note(name, float(found["value"]), is_evaluation=is_evaluation)

    def _note(self, figure: str, value: float, *, is_evaluation: bool) -> None:
        if is_evaluation:
            if figure in self.metrics:
                self.evaluated[figure] = value
            return
        self.last[figure] = value
        if figure in self.rates:
            self.rates[figure].append(value)

    def figures(self) -> dict[str, float]:
        """Return the figures found so far."""
        found = self.last | self.evaluated
        rates = self.rates["avg_ips"] or self.rates["ips"]
        if rates and self.names.get("avg_ips"):
            steady = rates[1:] or rates
            found["avg_ips"] = sum(steady) / len(steady)
            found.setdefault("ips", rates[-1])
        if self.speed:
            found.pop("avg_ips", None)
            if measured := self.speeds[self.speed.warm_up :]:
                unit = self.unit.replace("/sec", "/s") or self.speed.unit
                found[f"avg_ips[{unit}]"] = sum(measured) / len(measured)
        return found

    def lost(self) -> str:
        """Return the last loss, without one a part of it, or metric that is no finite number; "" for none."""
        values = {"loss": self.last["loss"]} if "loss" in self.last else dict(self.parts)
        values |= {name: value for name, value in self.figures().items() if name in self.metrics - {"psnr"}}
        return next((f"{name} {value}" for name, value in values.items() if not isfinite(value)), "")

    def unmeasured(self) -> str:
        """Return why no speed was measured where one should have been; "" for nothing."""
        if not self.speed or len(self.speeds) > self.speed.warm_up:
            return ""
        count = len(self.speeds) + self.begun
        more = f", as are the first {self.speed.each_epoch} of each epoch" if self.begun else ""
        return f"{count} lines tell a speed, and the first {self.speed.warm_up} are warm-up{more}"


CHUNK = 1 << 18
LONGEST = 4096
"""Bytes of a line that are looked at: the lines of frameworks are shorter."""
_ENDS = re.compile(rb"[\r\n]+")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def log_lines(path: Path) -> Iterator[str]:
    """Yield the lines of ``path`` that hold anything, without colours; of longer lines only the beginning.

    A progress bar's carriage returns end lines too. Bytes that are no UTF-8 are replaced.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        rest = b""
        while chunk := file.read(CHUNK):
            *lines, rest = _ENDS.split(rest + chunk)
            yield from filter(None, map(_text, lines))
            rest = rest[:LONGEST]
        yield from filter(None, [_text(rest)])


def _text(line: bytes) -> str:
    text = line[:LONGEST].decode("utf-8", errors="replace")
    return without_escapes(text.replace("\0", "")).rstrip()  # of UTF-16, or a hole in the file


def without_escapes(text: str) -> str:
    """Return a line without a terminal's colors."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


# What went wrong, in the words of a log: looked for from its end.


LAST_LINES = 60
"""So far from the end an error counts; one further up was overcome, unless all lines after it only tell of it."""
LONGEST_REASON = 500
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+)')
_OTHERS_CODE = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")
_EXCEPTION = re.compile(r"(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)|error): |.*\[ERROR\]\s")
_ABSENT = re.compile(r"(\S+): (?:command )?not found")
_BROKEN = re.compile(
    r"command not found|No such file or directory|can't open file|CUDA (?:error|out of)|CUDA\w*\(\d+\)|[Oo]ut of memory"
    r"|Cannot allocate memory|No space left|Permission denied|terminate called|^Fatal|\bSIG[A-Z]{3,}\b"
)
_NO_DATA = re.compile(r"(?!.*can't open file)(?:[Nn]o such (?:\w+ )?file|FileNotFoundError)")
_SECONDHAND = re.compile(
    r"Blocking queue is killed|DataLoader worker|worker process.* (?:died|failed|exited)|FatalError: .?Termination"
)
"""An exception that tells of another one, in another thread or process, whose message names the fault."""
_COMPLAINT = re.compile(
    r"\b(?:fail(?:ed|ure)?|unable|cannot|can't|could not|invalid|corrupt\w*|missing|error)\b", re.IGNORECASE
)


class ErrorReader:
    """Finds the line of a log that names the fault."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.number = 0
        self.frame = self.last = self.complained = ""
        self.at = 0

    def read(self, line: str) -> None:
        """Take note of a line."""
        self.number += 1
        if found := _FRAME.match(line):
            place = os.path.relpath(self.root / found["file"], self.root)
            if not _OTHERS_CODE.search(found["file"]) and not place.startswith(".."):
                self.frame = f" ({place}:{found['line']})"
            return
        if _EXCEPTION.match(line) or _BROKEN.search(line):
            if not (self.last and _SECONDHAND.search(line)):
                self.last = shortened(line) + self.frame
            self.at = self.number
        elif not re.match(r"\s|[IW]\d{4}", line) and _COMPLAINT.search(line):
            self.complained = shortened(line)
        if not line.startswith(" "):
            self.frame = ""

    def headline(self) -> str:
        """Return the last error near the log's end, or the one that it tells of."""
        return self.last if self.number - self.at <= LAST_LINES else ""


def shortened(text: str) -> str:
    """Return a line of a log for a reason: its blanks are one, and its end is left out where it is very long."""
    text = " ".join(without_escapes(text).split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


# Logs of the worker processes that ``paddle.distributed.launch`` starts.
#
# By default every launch writes to ``./log/workerlog.N``, over what the one before wrote there. The launcher
# reads ``PADDLE_LOG_DIR`` as the default of ``--log_dir`` (paddle/distributed/launch/context/args_envs.py), so each
# command gets a folder of its own beside its log.


VARIABLE = "PADDLE_LOG_DIR"
LAUNCHERS = ("paddle.distributed.launch", "fleetrun")
WORKER_LINES = 20


TEXT_FILES = frozenset(".csv .tsv .txt .list .lst .json .jsonl .yaml .yml".split())
RESULT_FILES = frozenset(
    ".npy .npz .png .jpg .jpeg .bmp .gif .tif .tiff .mp4 .avi .wav .csv .mat .ply .obj .nii .gz .pkl".split()
)
"""Endings of files of an inference, which no training or export writes beside it."""
MOST_FILES = 100_000
"""Files of a checkout that are looked at for one."""
AFTER_VERDICT = (" ", *(one.value for one in Outcome))
"""How the lines begin that may follow an alignment's verdict."""
JUDGES = ("align", "compare")
"""Steps whose exit code 1 says that something is wrong; any other, that it could not be found out."""
LOG_COLUMNS = "76"
"""Width of commands' output: the last lines of a log are shown indented by four, on 80 columns."""
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*")
OUT_OF_MEMORY_HINT = " (the kernel does that when memory runs out)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a plan runs.

    Attributes:
        root: the folder that the plan was made in; absolute.
        run: the run's folder; absolute.
        data: a data folder of the user's instead of the mode's; absolute.
        folders: the data folders, relative to ``root``; None for the mode's own.
    """

    root: Path
    run: Path
    mode: Mode
    data: Path | None = None
    folders: DataFolders | None = None

    def environment(self, command: Command) -> dict[str, str]:
        """Return the environment that ``command`` gets besides the parent's."""
        folder = (self.folders or data_folders(self.mode)).of(command.step)
        return {
            **command.env,
            RUN_VARIABLE: str(self.run),
            MODE_VARIABLE: self.mode.value,
            DATA_VARIABLE: str(self.data or self.root / folder),
            # Logs are English whoever reads them: an alignment's verdict is read from its log.
            language.VARIABLE: "en",
        }

    def log(self, command: Command) -> Path:
        """Return the command's log."""
        return self.root / command.log if command.log else self.run / "output.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """The values settled just before a command starts."""

    command: Command
    env: Mapping[str, str]
    log: Path | None = None
    start: Stamp | None = None
    before: Snapshot = field(default_factory=dict)
    lines: LineCheck = field(default_factory=lambda: LineCheck(()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """A command's traces: figures and an error in its log, missing files, the end of a worker's log."""

    figures: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    missing: tuple[Missing, ...] = ()
    workers: tuple[str, ...] = ()


def run_command(
    command: Command, place: Place, watch: Callable[[str], None], *, stop: Stop | None = None
) -> tuple[Result, bool]:
    """Run one command; return its result and whether the user, or ``stop``, interrupted it.

    ``watch`` is called with the last line of output, often. The result's command has the words that it was
    started with. One that exits with 0 without leaving what it should is a FAIL.
    """
    ready = _Ready(command=command, env=place.environment(command))
    seen = Findings()
    started = local_time("milliseconds")
    try:
        ready = _make_ready(ready, place)
        ending = call(
            ready.command.argv,
            cwd=place.root / ready.command.cwd,
            env={**os.environ, "COLUMNS": LOG_COLUMNS, "PATH": search_path(place.root), **ready.env},
            log=ready.log or place.log(ready.command),
            timeout_s=ready.command.timeout_s,
            watch=watch,
            stop=stop,
        )
        ending, seen = _look_after(ready, place, ending)
    except UnsettledError as error:
        ending = Ending(failure=f"not started: {error}")
    except Exception as error:  # noqa: BLE001 - the one place where an exception becomes a result
        ending = Ending(failure=f"{type(error).__name__}: {error}")
    outcome, reason = judge(command, ending, seen)
    reason = _with_file(reason, place.root) if reason else ""
    if _NO_DATA.search(reason) and (place.root / "test_tipc/prepare.sh").is_file():
        reason += "; `tipchain prepare` makes the data of a mode"
    result = Result(
        command=ready.command._replace(env=ready.env),
        outcome=outcome,
        reason=reason,
        exit_code=ending.exit_code,
        signal=signal_name(ending.signal) if ending.signal else "",
        started=started if ending.seconds or not ending.failure else "",
        seconds=round(ending.seconds, 3),
        peak_memory_mb=ending.peak_memory_mb,
        log=os.path.relpath(ready.log, place.run) if ready.log else "",
        tail=(*ending.tail, *seen.workers),
        figures=seen.figures,
        missing=tuple(map(str, seen.missing)),
    )
    return result, ending.interrupted


def _make_ready(ready: _Ready, place: Place) -> _Ready:
    command = settle(ready.command, place.root, place.run)
    for name, target in ((place.root / name, place.root / target) for name, target in command.links):
        if target.exists() and not os.path.lexists(name):
            name.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another leg was quicker
                name.symlink_to(os.path.relpath(target.resolve(), name.parent.resolve()))
    log = claim_log(place.log(command))
    env = dict(ready.env)
    # What stands after the program to launch is the program's own.
    start = next((index for index, word in enumerate(command.argv) if word in LAUNCHERS), -1) + 1
    words = takewhile(lambda word: not word.endswith(".py"), command.argv[start:])
    names_folder = any(word.partition("=")[0] in ("--log_dir", "--log-dir") for word in words)
    if command.launched and VARIABLE not in command.env and not names_folder:
        env[VARIABLE] = str(log.with_name(f"{log.stem}-workers"))
    given = next((place.root / command.cwd / one.given for one in command.leaves if one.given), None)
    # The names of a file of data, or of a folder and all files below it; none where they are not known, as of a list.
    names: list[str] = []
    if given is not None and given.suffix not in TEXT_FILES and os.path.exists(given):  # noqa: PTH110 - False for what is no name
        names = [given.name, *(name for _, _, files in os.walk(given) for name in files)]
    before, lines = snapshot(command.leaves, place.root), LineCheck(command.leaves, command.argv, names)
    return _Ready(command=command, env=env, log=log, start=stamp(log), before=before, lines=lines)


def claim_log(path: Path) -> Path:
    """Make an empty file and return its name: ``path``, or ``<stem>.2.log`` and so on if that is there already.

    A path in which nothing can be made is returned as it is: whoever opens it says why.
    """
    for number in count(1):
        name = path.with_name(f"{path.stem}.{number}{path.suffix}") if number > 1 else path
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            name.open("xb").close()
        except FileExistsError:
            if not name.parent.is_dir():
                return path
            continue
        except OSError:
            return path
        return name
    raise AssertionError


def is_interpreter(word: str) -> bool:
    """Return whether a command's first word is called as Python is."""
    return _INTERPRETER.fullmatch(Path(word).name) is not None


def has_own_python(root: Path) -> bool:
    """Return whether the environment that tipchain runs in is the project's own, below ``root``."""
    return Path(sys.prefix).is_relative_to(root)


def search_path(root: Path, *, given: str | None = None) -> str:
    """Return the PATH of commands: where ``python`` is looked for.

    The environment that tipchain runs in comes first if it is the project's own, below ``root``. Elsewhere (a suite's
    checkout, tipchain in an environment of its own) it comes last: there ``python`` is the user's. ``given`` is the PATH to
    begin with, this process's if None.
    """
    own = str(Path(sys.executable).parent)
    given = os.environ.get("PATH", os.defpath) if given is None else given
    return os.pathsep.join(filter(None, (own, given) if has_own_python(root) else (given, own)))


def _look_after(ready: _Ready, place: Place, ending: Ending) -> tuple[Ending, Findings]:
    assert ready.log is not None
    lines, errors = ready.lines, ErrorReader(place.root)
    figures = FigureReader(ready.command.step, ready.command.speed)
    try:
        for line in log_lines(ready.log):
            figures.read(line)
            lines.read(line)
            errors.read(line)
    except OSError as error:
        if ending.exit_code == 0:
            ending = replace(ending, failure=f"its log {ready.log} cannot be read: {error.strerror}")
    if ending.exit_code == 0:
        missing = missing_files(ready.command.leaves, place.root, ready.before, ready.start)
        log = os.path.relpath(ready.log, place.run)
        missing += lines.missing(log)
        for name, path in _worker_logs(ready, place):
            check = LineCheck(())
            for line in log_lines(path):
                check.read(line)
            if raised := check.missing(name):
                missing += raised
                break
        if any(USUAL in one.why for one in missing) and (written := _written_result(ready, place)):
            missing = tuple(one for one in missing if USUAL not in one.why)
            if not _is_finite(written):
                name = os.path.relpath(written, place.root)
                missing += (Missing(what="finite result", looked=name, why=f" in {name}: it holds no finite number"),)
        if why := figures.unmeasured():
            missing += (Missing(what="speed", looked=log, why=f" in {log}: {why}"),)
        if lost := figures.lost():
            missing += (Missing(what="finite loss or metric", looked=log, why=f" in {log}: {lost}"),)
        return ending, Findings(
            figures=figures.figures(), error=errors.headline() or errors.complained, missing=missing
        )
    workers: tuple[str, ...] = ()
    for name, path in _worker_logs(ready, place):
        own, last = ErrorReader(place.root), deque[str](maxlen=WORKER_LINES)
        for line in log_lines(path):
            own.read(line)
            last.append(line)
        if own.last:
            workers, errors = (f"---- {name} ----", *last), own
            break
    return ending, Findings(figures=figures.figures(), error=errors.headline(), workers=workers)


def _written_result(ready: _Ready, place: Place) -> Path | None:
    start = ready.start if ready.command.step == "infer" else None
    for path in _files(place.root, RESULT_FILES) if start else ():
        state = stamp(path)
        if state and start and state.size and state.device == start.device and state.ctime_ns > start.ctime_ns:
            return path
    return None


def _is_finite(path: Path) -> bool:
    if path.suffix != ".npy":
        return True
    import numpy as np  # few programs save arrays and print nothing

    with suppress(ValueError, OSError):  # objects, or no array at all
        array = np.load(path, mmap_mode="r")
        return array.dtype.kind not in "fc" or bool(np.isfinite(array).any())
    return True


def _files(root: Path, endings: Collection[str]) -> Iterator[Path]:
    files = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return (path for path in islice(files, MOST_FILES) if path.suffix.lower() in endings)


def _with_file(error: str, root: Path) -> str:
    byte = re.search(r"can't decode byte 0x(\w\w)", error)
    for path in _files(root, TEXT_FILES) if byte else ():
        data = path.read_bytes() if path.is_file() else b""
        try:
            data.decode()
        except UnicodeDecodeError as found:
            if byte and data[found.start] == int(byte[1], 16):
                return f"{error}; {path.relative_to(root)} is not UTF-8"
    return error


def _worker_logs(ready: _Ready, place: Place) -> Iterator[tuple[str, Path]]:
    folder = Path(ready.env[VARIABLE]) if VARIABLE in ready.env else None
    logs = [path for path in folder.glob("workerlog.*") if path.is_file()] if folder else []
    for path in sorted(logs, key=lambda one: (len(one.name), one.name)):
        yield os.path.relpath(path, place.run), path


def judge(command: Command, ending: Ending, seen: Findings | None = None) -> tuple[Outcome, str]:
    """Return the outcome of an ended command and, unless it passed, the reason."""
    code, seen = ending.exit_code, seen or Findings()
    if trouble := _trouble(command, ending, seen.error):
        return Outcome.ERROR, trouble
    if code == 0:
        missing = explain(seen.missing)
        told = re.sub(r" \([^()]+:\d+\)$", "", seen.error) in missing
        first = "" if told else f"its log has: {seen.error}; "
        return (Outcome.FAIL, f"exit 0, but {first}{missing}") if missing else (Outcome.PASS, "")
    tail = seen.workers or ending.tail
    said = f": {_said(command, tail, seen.error)}" if tail else ""
    if absent := code == 127 and is_interpreter(command.argv[0]) and _ABSENT.search(said):
        said = f": {absent[1]}: command not found ({PYTHON_HINT})"
    if "No module named 'auto_log'" in said:
        said += "; --set=--benchmark=False does without it, which no index has"
    unusable = code in (126, 127) or (
        command.step in JUDGES and (code != 1 or any(line.startswith(NO_VERDICT) for line in ending.tail))
    )
    return (Outcome.ERROR if unusable else Outcome.FAIL), f"exit {code}{said}"


def _said(command: Command, tail: tuple[str, ...], error: str) -> str:
    if command.step != "align":
        lines = [line for line in map(without_escapes, tail) if re.search(r"\w", line)] or list(tail)
        return error or shortened(lines[-1])
    verdict = [number for number, line in enumerate(tail) if line.startswith((NOT_THE_SAME, NO_VERDICT))]
    if not verdict:
        return tail[-1]
    # The verdict is a paragraph; what explains it stands indented, and the stages follow.
    first, *more = tail[verdict[-1] :]
    return " ".join([first, *takewhile(lambda line: not line.startswith(AFTER_VERDICT), more)])


def _trouble(command: Command, ending: Ending, error: str) -> str:
    if ending.interrupted:
        return "interrupted"
    if ending.failure:
        more = f"; its log has: {error}" if error and ending.failure == STUCK else ""
        return (f"exit {ending.exit_code}: " if ending.exit_code is not None else "") + ending.failure + more
    if ending.timed_out:
        # A reader's thread that dies of an exception leaves Paddle's programs waiting for it.
        return f"timed out after {command.timeout_s:g} s" + (f"; its log has: {error}" if error else "")
    return killed(ending.exit_code, ending.signal)


CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV)


def killed(code: int | None, number: int) -> str:
    """Return that a signal ended a process or, by a launcher's exit code, one that it started; "" if none did.

    Who exits with Python's status ``-signal``, as ``paddle.distributed.launch`` does, ends with 256 less the signal. Only
    signals that crashes send count: 255 is what ``exit(-1)`` comes to.
    """
    within = 0 if number else next((int(one) for one in CRASHES if code == 256 - one), 0)
    if not number and not within:
        return ""
    said = f"killed by {signal_name(number or within)}"
    said += OUT_OF_MEMORY_HINT if signal.SIGKILL in (number, within) else ""
    return said if number else f"exit {code}: a process that it started was {said}"
