"""A suite's script is run: alone in its checkout, with one interpreter, seen to go on, ended with all its children."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tipchain.chain.process import Ending, Stop, call
from tipchain.errors import OutputError, UsageError
from tipchain.language import say
from tipchain.prepare.interpreter import Interpreter, environment, programs
from tipchain.prepare.keep import put_back, start_keeping
from tipchain.prepare.script_log import unfinished_downloads

SCRIPT = "test_tipc/prepare.sh"
LOGS = "test_tipc/output/prepare"
NESTED = "TIPCHAIN_PREPARING"
"""Set while a script runs: one that calls ``tipchain prepare`` again would do so for ever."""
GIT_LIMIT_S = 60.0
TERMINAL_S, ELSEWHERE_S = 0.2, 30.0
"""How often a running script is told of, on a terminal and in a log."""
CLOCK_S = 2.0
"""So long after its log was last written to a program that is killed may still write to a file."""
HALF_MADE = "half-made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a script ended.

    Attributes:
        ending: of the program.
        faults: what is wrong besides that: files half-made or not put back.
    """

    ending: Ending
    faults: tuple[str, ...]


def run_script(
    root: Path,
    argv: Sequence[str],
    log: Path,
    interpreter: Interpreter | None,
    *,
    keep: bool,
    limit_s: float | None,
) -> Ran:
    """Run a script in ``root`` and return how it ended.

    Args:
        root: the checkout.
        argv: the call; its first word is looked for on PATH.
        log: where the output goes.
        interpreter: what it calls Python by; its own if None.
        keep: whether what it deletes is put back.
        limit_s: seconds until it is ended.

    Raises:
        UsageError: there is no bash, or the script calls ``tipchain prepare`` again.
        OutputError: nothing can be written below the checkout.
    """
    if os.environ.get(NESTED):
        raise UsageError(f"{os.environ[NESTED]} calls tipchain prepare again; it must prepare by itself")
    bash = shutil.which(argv[0])
    if bash is None:
        raise UsageError(f"{SCRIPT} needs bash, which is not on PATH")
    with _alone(root), _stoppable() as stop, programs(interpreter) as folder:
        left = log.stat().st_mtime if log.exists() else 0.0
        for fault in [*_put_back(root), *_set_half_made_aside(root, log, left)]:
            print(say(f"note: from an earlier call: {fault}"))
        before = _changed_files(root)
        if keep:
            start_keeping(root / LOGS, folder)
        with _told(log) as told:
            ending = call(
                (bash, *argv[1:]),
                cwd=root,
                env=environment(interpreter, folder, _english(root)),
                log=log,
                timeout_s=limit_s,
                watch=told.hear,
                stop=stop,
            )
        faults = [*_put_back(root), *_set_half_made_aside(root, log, time.time())]
        after = _changed_files(root)
    if changed := sorted(name for name in after if after[name] != before.get(name)):
        print(say(f"note: the script changed tracked files: {', '.join(changed)}"))
    return Ran(ending=ending, faults=tuple(faults))


def _put_back(root: Path) -> Iterator[str]:
    """Put back what was kept and say so; yield what could not be."""
    try:
        for place, beside in put_back(root / LOGS):
            made = f"; what the script made there is {beside.name}" if beside else ""
            print(say(f"kept: {os.path.relpath(place, root)}{made}"))
    except OSError as error:
        yield f"{error.filename}: cannot be moved back to {error.filename2}: {error.strerror}"


def _set_half_made_aside(root: Path, log: Path, ended: float) -> Iterator[str]:
    """Rename what the downloads of ``log``, which ended then, did not finish; yield a line for each.

    The next ``wget -nc`` would take it for whole.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for download in unfinished_downloads(text):
        for path in _found_below(root, download.name):
            if download.began <= path.stat().st_ctime <= ended + CLOCK_S:
                aside = path.with_name(f"{path.name}.{HALF_MADE}")
                path.replace(aside)
                yield f"{os.path.relpath(path, root)} is half-made; it is called {aside.name} now"


def _found_below(root: Path, name: str) -> Iterator[Path]:
    """Yield the files of that name, wherever the script was when it was told."""
    tail = os.path.normpath(name)
    for folder, _, files in os.walk(root):
        if os.path.basename(tail) in files:  # noqa: PTH119 - for each folder
            path = Path(folder, os.path.basename(tail))  # noqa: PTH119
            if str(path).endswith(f"/{tail.lstrip('./')}"):
                yield path


def _english(root: Path) -> dict[str, str]:
    """Return the user's environment with messages in English, which is what is looked for."""
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
            print(say("waiting for another preparation of this checkout"), flush=True)
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


class Told:
    """Says that a script goes on: on a terminal in one line that changes, elsewhere in a line now and then."""

    def __init__(self, log: Path) -> None:
        self.log, self.began, self.line = log, time.monotonic(), ""
        self.terminal = sys.stderr.isatty()

    def hear(self, line: str) -> None:
        """Note the last line of the script's output."""
        self.line = "".join(char for char in line if char.isprintable())

    def say(self) -> None:
        """Write how long it has run, how much it has written and its last line."""
        try:
            size = self.log.stat().st_size
        except OSError:
            size = 0
        width = shutil.get_terminal_size().columns - 1
        text = f"  {time.monotonic() - self.began:.0f} s, log {size / 1024:.0f} kB: {self.line}"[:width]
        self.write(f"\r\x1b[K{text}" if self.terminal else f"{text}\n")

    def clear(self) -> None:
        """Take the line away from a terminal."""
        self.write("\r\x1b[K" if self.terminal else "")

    @staticmethod
    def write(text: str) -> None:
        """Write to standard error."""
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal is gone; the script goes on
            return


@contextmanager
def _told(log: Path) -> Iterator[Told]:
    """Yield what hears a script's lines, and tell of them until it ends."""
    told, over = Told(log), threading.Event()

    def tell() -> None:
        while not over.wait(TERMINAL_S if told.terminal else ELSEWHERE_S):
            told.say()

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()
        told.clear()


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
