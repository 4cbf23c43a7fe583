"""A suite's own ``test_tipc/prepare.sh``: run it in its checkout, then look at what it left.

Its exit status is judged, and because such scripts end with 0 whatever happens, so are the lines of its output and
the data and weights that the parameter file's commands will read.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tipchain.chain.plan import Options, Plan
from tipchain.chain.process import Ending, Stop, Watcher, call
from tipchain.errors import OutputError, UsageError
from tipchain.modes import Mode
from tipchain.outcome import ExitCode
from tipchain.prepare.named_paths import NamedPath, named_paths
from tipchain.prepare.script_log import find_troubles

SCRIPT = "test_tipc/prepare.sh"
LOGS = "test_tipc/output/prepare"
NESTED = "TIPCHAIN_PREPARING"
"""Set while a script runs: one that calls ``tipchain prepare`` again would do so for ever."""
MOST_LINES = 20
GIT_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What a suite's preparation of one mode runs and checks.

    Attributes:
        checkout: the suite's folder; absolute.
        argv: the script's call, None if the checkout has no script.
        log: its log, relative to ``checkout``.
        paths: what must be there afterwards.
    """

    checkout: Path
    argv: tuple[str, ...] | None
    log: str
    paths: tuple[NamedPath, ...]


def find_checkout(params: Path) -> Path:
    """Return the folder that ``params`` belongs to: the nearest above it with a ``test_tipc``, else the current one."""
    file = _absolute(params)
    return next((folder for folder in file.parents if (folder / "test_tipc").is_dir()), Path.cwd())


def _absolute(path: Path) -> Path:
    """Return ``path`` without ``..``; links stay, so that a linked file belongs to where the link stands."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def foreign_checkout(params: Path) -> Path | None:
    """Return the suite's checkout that ``params`` belongs to; None for tipchain's own project and its like.

    A suite's checkout has a ``test_tipc/prepare.sh``, or the folders by which its profile tells it.
    """
    checkout = find_checkout(params)
    if (checkout / "tipchain" / "__main__.py").is_file():
        return None
    return checkout if (checkout / SCRIPT).is_file() or _bears_marks(checkout) else None


def _bears_marks(checkout: Path) -> bool:
    from tipchain.chain.profiles import OWN, all_suites

    folders = (folder for suite in all_suites() for folder in suite.marks.folders)
    return (checkout / OWN).is_file() or any((checkout / folder).is_dir() for folder in folders)


def plan_preparation(checkout: Path, params: Path, mode: Mode, suite: str | None) -> Preparation:
    """Return what to run and what to check; nothing is run.

    Raises:
        ParamsError: the file cannot be read or does not fit the suite.
        UsageError: unknown suite.
    """
    plan = _plan(checkout, params, mode, suite)
    file = _absolute(params)
    name = str(file.relative_to(checkout)) if file.is_relative_to(checkout) else str(file)
    argv = ("bash", SCRIPT, name, mode.value) if (checkout / SCRIPT).is_file() else None
    model = re.sub(r"[^\w.+-]+", "_", plan.model) or "model"
    return Preparation(
        checkout=checkout, argv=argv, log=f"{LOGS}/{model}-{mode.value}.log", paths=named_paths(plan)
    )


def _plan(checkout: Path, params: Path, mode: Mode, suite: str | None) -> Plan:
    """Return the chain's plan; typos in the file are the linter's business."""
    from tipchain.chain.load import load_plan

    return load_plan(params, mode, suite=suite, lenient=True, options=Options(root=str(checkout)))


def describe(preparation: Preparation) -> list[str]:
    """Return what would be run and checked, for reading."""
    lines = [f"in {preparation.checkout}:"]
    if preparation.argv is None:
        lines.append(f"nothing is run: there is no {SCRIPT}")
    else:
        lines += [f"$ {shlex.join(preparation.argv)}", f"  log: {preparation.log}"]
    lines += [f"must be there: {one.path} ({one.key} of {one.command})" for one in preparation.paths]
    return lines


def prepare_suite(preparation: Preparation, timeout_s: float | None) -> ExitCode:
    """Run the script, check, print what was found, and return the exit code.

    Raises:
        UsageError: there is no bash, or the script calls ``tipchain prepare`` again.
        OutputError: no log can be written.
    """
    faults: list[str] = []
    if preparation.argv is None:
        print(f"{preparation.checkout}: has no {SCRIPT}; only what is there is checked")
    else:
        ending = _run_script(preparation, preparation.argv, timeout_s)
        if ending.interrupted:
            print(f"interrupted; log: {preparation.log}", file=sys.stderr)
            return ExitCode.INTERRUPTED
        faults += _script_faults(preparation, ending, timeout_s)
    for one in preparation.paths:
        if fault := one.fault(preparation.checkout):
            faults.append(f"{one.path} {fault} ({one.key} of {one.command})")
    for fault in faults:
        print(f"FAIL  {fault}")
    return _conclude(preparation, len(faults))


def _conclude(preparation: Preparation, faults: int) -> ExitCode:
    if faults:
        print(
            f"exit code 1: not prepared, {faults} faults"
            if faults > 1
            else "exit code 1: not prepared, 1 fault"
        )
        return ExitCode.FAILED
    count = len(preparation.paths)
    if preparation.argv is None and not count:
        print("exit code 4: nothing was run and nothing checked")
        return ExitCode.NOTHING_CHECKED
    print(f"exit code 0: prepared; {count} named paths are there" if count else "exit code 0: prepared")
    return ExitCode.PASSED


def _script_faults(preparation: Preparation, ending: Ending, timeout_s: float | None) -> Iterator[str]:
    """Yield what a script's end and its log tell of."""
    if ending.failure:
        yield ending.failure
    elif ending.timed_out:
        yield f"{SCRIPT} timed out after {timeout_s:g} s"
    elif ending.signal:
        yield f"{SCRIPT} was ended by signal {ending.signal}"
    elif ending.exit_code:
        yield f"{SCRIPT}: exit {ending.exit_code}" + (f": {ending.tail[-1]}" if ending.tail else "")
    log = preparation.checkout / preparation.log
    troubles = find_troubles(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else ()
    for trouble in troubles[:MOST_LINES]:
        yield f"{preparation.log}:{trouble.line}: {trouble.text}"
    if len(troubles) > MOST_LINES:
        yield f"{preparation.log}: {len(troubles) - MOST_LINES} more lines that tell of failures"


def _run_script(preparation: Preparation, argv: tuple[str, ...], timeout_s: float | None) -> Ending:
    if os.environ.get(NESTED):
        raise UsageError(f"{os.environ[NESTED]} calls tipchain prepare again; it must prepare by itself")
    bash = shutil.which(argv[0])
    if bash is None:
        raise UsageError(f"{SCRIPT} needs bash, which is not on PATH")
    root = preparation.checkout
    print(f"$ {shlex.join(argv)}\n  in {root}, log: {preparation.log}", flush=True)
    with _alone(root), _stoppable() as stop, _last_line() as show:
        before = _changed_files(root)
        ending = call(
            (bash, *argv[1:]),
            cwd=root,
            env=_environment(root),
            log=root / preparation.log,
            timeout_s=timeout_s,
            watch=show,
            stop=stop,
        )
        after = _changed_files(root)
    if changed := sorted(name for name in after if after[name] != before.get(name)):
        print(f"note: the script changed tracked files: {', '.join(changed)}")
    return ending


def _environment(root: Path) -> dict[str, str]:
    """Return the script's environment: the user's, with messages in English, which is what is looked for."""
    given = dict(os.environ)
    if whole := given.pop("LC_ALL", ""):
        given["LC_CTYPE"] = whole
    return {**given, "LC_MESSAGES": "C", NESTED: str(root / SCRIPT)}


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep two preparations of one checkout apart: the scripts remove and unpack the same folders."""
    from filelock import FileLock, Timeout

    try:
        (root / LOGS).mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / LOGS / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print("waiting for another preparation of this checkout", flush=True)
            lock.acquire()
    except OSError as error:
        raise OutputError(f"cannot write below {root / LOGS}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _stoppable() -> Iterator[Stop]:
    """Let SIGTERM and SIGHUP end the script as Ctrl-C does, so that no child is left behind."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    # nohup ignores SIGHUP, and means it.
    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: stop.ask()) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _last_line() -> Iterator[Watcher]:
    """Yield what shows the last line that the script wrote, on a terminal; downloads take long."""

    def show(line: str) -> None:
        width = shutil.get_terminal_size().columns - 3
        write("  " + "".join(char for char in line if char.isprintable())[:width])

    def write(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        write("")


def _changed_files(root: Path) -> Mapping[str, tuple[int, int]]:
    """Return the tracked files that differ from the last commit, each with its time and size; none outside git."""
    words = ("--no-optional-locks", "-C", str(root), "status", "--porcelain", "-z", "--no-renames")
    try:
        done = subprocess.run(
            ["git", *words, "--untracked-files=no", "--", "."],
            capture_output=True,
            timeout=GIT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode != 0:
        return {}
    names = [os.fsdecode(entry[3:]) for entry in done.stdout.split(b"\0") if entry]
    top = _top(root)
    return {name: _stamp(top / name) for name in names}


def _top(root: Path) -> Path:
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)
