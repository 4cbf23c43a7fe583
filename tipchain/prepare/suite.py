"""A suite's own ``test_tipc/prepare.sh``: run in its checkout, ended with all its children, then its results."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tipchain.chain.execute import has_own_python, search_path
from tipchain.chain.load import checkout as checkout_of
from tipchain.chain.load import load_plan
from tipchain.chain.plan import Command, Options, Plan
from tipchain.chain.process import Ending, Stop, call
from tipchain.chain.profiles import OWN, all_suites
from tipchain.chain.run import on_signals
from tipchain.core.language import clean, cut, many, say, terminal_width
from tipchain.core.progress import Screen
from tipchain.errors import ExitCode, OutputError, UsageError
from tipchain.modes import Mode
from tipchain.prepare.keep import left_aside, put_back, start_keeping

# The suites' ``prepare.sh`` neither stop at an error nor check a download, so their exit status tells nothing about the
# steps before the last. The programs that they call do say so, in words that hardly change.


TROUBLE = re.compile(
    r"""
    \bERROR\ \d{3}\b                                # wget: a status of HTTP
  | unable\ to\ (?:resolve|establish|access|connect)|could\ not\ resolve|\bGiving\ up\.
  | ^curl:\ \(\d+\)|^(?:wget|fatal|unzip):[ ]
  | ^tar:\ .*(?:cannot|error|not\ look\ like|unexpected|not\ found|no\ such|exiting\ with)
  | ^(?:gzip|gunzip|zcat|bzip2|bunzip2|xz|unxz):\ (?!.*trailing\ garbage)
  | \bnot\ (?:a|in)\ gzip\b|unexpected\ end\ of|end-of-central-directory|(?:invalid|bad|corrupt)\ zip|zipfile\ corrupt
  | \b(?:cannot|can't)\ (?:find\ or\ )?open\b
  | ^(?:rm|mv|cp|ln|ls|cd|cat|sed|mkdir|touch|chmod|find|grep):\ .*(?:cannot|can't|failed|omitting|invalid|missing)
  | no\ such\ file\ or\ directory|not\ a\ directory\b|is\ a\ directory\b
  | command\ not\ found|:\ \d+:\ .*:\ not\ found$    # bash, dash
  | permission\ denied|no\ space\ left\ on\ device|read-only\ file\ system|disk\ quota\ exceeded
  | syntax\ error
  | ^(?:[\w.]+\.)?\w+(?:Error|Exception):\           # the last line of a Python traceback
  | ^ERROR:\ (?!pip's\ dependency\ resolver)         # pip; that one is a remark, the installation is done
  | \bline\ \d+:\s+\d+\ (?:killed|aborted|bus\ error|segmentation\ fault)\b|^killed$
  | :\ FAILED(?:\ open\ or\ read)?$                  # md5sum -c
    """,
    re.VERBOSE | re.IGNORECASE,
)
HARMLESS = re.compile(r"^(?:mkdir|ln): .*: File exists$|: setlocale: ", re.IGNORECASE)
"""An existing file was made by an earlier call; a locale that is not installed changes messages only."""
UNCONNECTED = re.compile(r"\bfailed: (?:Connection|Operation|Network|No route|Host)\b", re.IGNORECASE)
CONNECTED = re.compile(r"\bconnected\.$", re.IGNORECASE)
REQUEST = re.compile(r"--\d{4}-\d\d-\d\d \d\d:\d\d:\d\d--  (?!\(try)")
"""How wget begins a new download; not a further try of the same."""
BEGAN = re.compile(r"--(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)--  ")
SAVING = re.compile(r"^Saving to: (?P<name>.+)$")
SAVED = re.compile(r" - (?P<name>.+) saved \[\d+")
QUOTES = "\u2018\u2019'`\""


class LogTrouble(NamedTuple):
    """A line of a log that tells of a failure, and its number."""

    line: int
    text: str


def find_troubles(log: str) -> tuple[LogTrouble, ...]:
    """Return the lines of a script's output that tell of a failure."""
    found: list[LogTrouble] = []
    unconnected: list[LogTrouble] = []  # of a download, of which another address may still answer
    for number, line in enumerate(_lines(log), 1):
        if REQUEST.match(line):
            found, unconnected = found + unconnected, []
        elif CONNECTED.search(line):
            unconnected = []
        if TROUBLE.search(line) and not HARMLESS.search(line):
            found.append(LogTrouble(number, line.strip()))
        elif UNCONNECTED.search(line):
            unconnected.append(LogTrouble(number, line.strip()))
    return tuple(sorted(found + unconnected))


def unfinished_downloads(log: str) -> dict[str, float]:
    """Return the files that wget began to write and, by its log, did not get to the end of: by name when, since the epoch."""
    open_: dict[str, float] = {}
    began = math.inf
    for line in _lines(log):
        if found := BEGAN.match(line):
            began = datetime.fromisoformat(found.group(1)).astimezone().timestamp()
        elif found := SAVING.match(line):
            open_[found["name"].strip(QUOTES)] = began
        elif found := SAVED.search(line):
            open_.pop(found["name"].strip(QUOTES), None)
    return open_


def _lines(log: str) -> list[str]:
    """Return the lines of a log as a terminal shows them: a progress bar is written over."""
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in log.split("\n")]


VERSIONS = ("", "3", *(f"3.{minor}" for minor in range(6, 16)))
LIMIT_S = 60.0
REFUSED = "ERROR: not installed: "
"""How a refusal begins in the script's log; pip's own failures begin with the first word, too."""
WRAPPER = """\
#!/bin/sh
exec {command} "$@"
"""
REFUSING = """\
#!/bin/sh
case " {words} $* " in
*" -m pip "*install" "*|*" -m easy_install "*|*"setup.py "*install" "*|*"setup.py "*develop" "*)
    echo "{refused}{name} $*" >&2
    exit 1
    ;;
esac
exec {command} "$@"
"""


class Interpreter(NamedTuple):
    """An interpreter of Python; ``own`` is that of tipchain, in whose environment nothing may be installed."""

    path: str
    prefix: str
    own: bool

    def __str__(self) -> str:
        own = ": tipchain's own, so nothing is installed; --python names the suite's" if self.own else ""
        return f"python: {self.path}{own}"


def find_interpreter(root: Path, given: str | None, files: str) -> Interpreter | None:
    """Return the interpreter for the script of a checkout, that of the user or of the file; None if there is none.

    Raises:
        UsageError: what the user names is no interpreter.
    """
    named = (files, "python", "python3") if given is None else (given,)
    # The links of a virtual environment stay.
    places = [os.path.abspath(name) if "/" in name else name for name in named]  # noqa: PTH100
    paths = [path for name in places if (path := shutil.which(name, path=search_path(root)))]
    interpreter = next(filter(None, (_examine(path, root) for path in paths)), None)
    if given is not None and interpreter is None:
        what = "is no interpreter of Python" if paths else "there is no such program"
        raise UsageError(f"--python {given}: {what}")
    return interpreter


def _examine(path: str, root: Path) -> Interpreter | None:
    """Return the interpreter at ``path``, None if it cannot be asked."""
    question = "import sys; print(sys.prefix)"
    try:
        done = subprocess.run([path, "-c", question], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    prefix = done.stdout.strip()
    if done.returncode != 0 or not prefix:
        return None
    own = os.path.realpath(prefix) == os.path.realpath(sys.prefix) and not has_own_python(root)
    return Interpreter(path=path, prefix=prefix, own=own)


@contextmanager
def programs(interpreter: Interpreter | None) -> Iterator[Path]:
    """Yield a folder of programs for the front of PATH: ``python``, ``pip`` and so on, all of one interpreter.

    They are scripts, not links: a link into a virtual environment does not know that it belongs there.
    """
    with TemporaryDirectory(prefix="tipchain-prepare-") as name:
        folder = Path(name)
        if interpreter is not None:
            for version in VERSIONS:
                _write(folder / f"python{version}", interpreter, ())
                _write(folder / f"pip{version}", interpreter, ("-m", "pip"))
        yield folder


def _write(path: Path, interpreter: Interpreter, words: tuple[str, ...]) -> None:
    text = REFUSING if interpreter.own else WRAPPER
    command = shlex.join((interpreter.path, *words))
    path.write_text(text.format(command=command, words=" ".join(words), name=path.name, refused=REFUSED))
    path.chmod(0o755)


def environment(interpreter: Interpreter | None, folder: Path, given: dict[str, str]) -> dict[str, str]:
    """Return ``given`` with the programs of `programs` in front of PATH."""
    path = [str(folder), given.get("PATH", os.defpath)]
    if interpreter is not None and not interpreter.own:
        path.insert(1, str(Path(interpreter.path).parent))
        given = {**given, "VIRTUAL_ENV": interpreter.prefix}
    return {**given, "PATH": os.pathsep.join(path)}


SCRIPT = "test_tipc/prepare.sh"
LOGS = "test_tipc/output/prepare"
NESTED = "TIPCHAIN_PREPARING"
"""Set while a script runs: one that calls ``tipchain prepare`` again would do so for ever."""
ELSEWHERE_S = 30.0
"""How often a running script is told of in a log."""
CLOCK_S = 2.0
"""So long after its log was last written to a program that is killed may still write to a file."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""A file's times may be so many seconds behind the clock: they are of the kernel's last tick, of which a second has at least a hundred (time(7))."""


def run_script(
    root: Path, argv: Sequence[str], log: Path, interpreter: Interpreter | None, *, keep: bool, limit_s: float | None
) -> tuple[Ending, Sequence[str]]:
    """Run a script in ``root``; return how it ended, and which files are half-made or not put back.

    With ``keep`` what it deletes of what is there is put back, not only moved aside.

    Raises:
        UsageError: there is no bash, or the script calls ``tipchain prepare`` again.
        OutputError: nothing can be written below the checkout.
        KeyboardInterrupt: the user interrupted before the script began.
    """
    if os.environ.get(NESTED):
        raise UsageError(f"{os.environ[NESTED]} calls tipchain prepare again; it must prepare by itself")
    bash = shutil.which(argv[0])
    if bash is None:
        raise UsageError(f"{SCRIPT} needs bash, which is not on PATH")
    stop = Stop()
    with _alone(root), on_signals(stop.ask), programs(interpreter) as folder:
        left = log.stat().st_mtime if log.exists() else 0.0
        for fault in [*_put_back(root), *_set_half_made_aside(root, log, left)]:
            print(say(f"note: from an earlier call: {fault}"))
        before = _changed_files(root)
        start_keeping(root / LOGS, folder)
        if stop.is_set():
            raise KeyboardInterrupt  # the script shall not begin
        with _told(log) as hear:
            # User's environment with messages in English, which is what is looked for.
            given = dict(os.environ)
            given |= {"LC_CTYPE": whole} if (whole := given.pop("LC_ALL", "")) else {}
            ending = call(
                (bash, *argv[1:]),
                cwd=root,
                env=environment(interpreter, folder, {**given, "LC_MESSAGES": "C", NESTED: str(root / SCRIPT)}),
                log=log,
                timeout_s=limit_s,
                watch=hear,
                stop=stop,
            )
        if keep:
            faults = list(_put_back(root))
        else:
            faults = []
            for place, aside in left_aside(root / LOGS):
                print(
                    say(f"moved aside: {os.path.relpath(place, root)}, which the script deleted, is {aside.name} now")
                )
        faults += _set_half_made_aside(root, log, time.time())
        after = _changed_files(root)
    if changed := sorted({name for name, _ in after - before}):
        print(say(f"note: the script changed tracked files: {', '.join(changed)}"))
    return replace(ending, interrupted=ending.interrupted or stop.is_set()), faults


def _put_back(root: Path) -> Iterator[str]:
    try:
        for place, beside in put_back(root / LOGS):
            made = f"; what the script made there is {beside.name}" if beside else ""
            print(say(f"kept: {os.path.relpath(place, root)}{made}"))
    except OSError as error:
        yield f"{error.filename}: cannot be moved back to {error.filename2}: {error.strerror}"


def _set_half_made_aside(root: Path, log: Path, ended: float) -> Iterator[str]:
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for name, began in unfinished_downloads(text).items():
        tail = os.path.normpath(name)
        folders = (Path(folder, os.path.basename(tail)) for folder, _, _ in os.walk(root))  # noqa: PTH119
        for path in [one for one in folders if one.is_file() and str(one).endswith(f"/{tail.lstrip('./')}")]:
            if began - TICK_S <= path.stat().st_ctime <= ended + CLOCK_S:
                aside = path.with_name(f"{path.name}.half-made")
                path.replace(aside)
                yield f"{os.path.relpath(path, root)} is half-made; it is called {aside.name} now"


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        (root / LOGS).mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / LOGS / ".lock")
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            print(say("waiting for another preparation of this checkout"), flush=True)
            held = lock.acquire()
    except OSError as error:
        raise OutputError(f"cannot write below {root / LOGS}: {error.strerror}") from error
    with held:
        yield


@contextmanager
def _told(log: Path) -> Iterator[Callable[[str], None]]:
    latest, began, over = deque([""], maxlen=1), time.monotonic(), threading.Event()

    def lines() -> list[str]:
        size = log.stat().st_size if log.exists() else 0
        line = " ".join(clean(latest[0]).split())
        return [f"  {time.monotonic() - began:.0f} s, log {size / 1024:.0f} kB: {line}"]

    def tell() -> None:
        while not over.wait(ELSEWHERE_S):
            with suppress(OSError):
                screen.print(cut(lines()[0], terminal_width() - 1))

    with Screen(sys.stderr, lines) as screen:
        if not screen.live:
            threading.Thread(target=tell, daemon=True).start()
        try:
            yield latest.append
        finally:
            over.set()


def _changed_files(root: Path) -> set[tuple[str, int]]:
    """Return the tracked files that differ from the commit, each with the time of its change."""
    words = ("git", "--no-optional-locks", "-C", str(root), "status", "--porcelain", "-z", "--no-renames")
    try:
        done = subprocess.run([*words, "-uno", "--", "."], capture_output=True, timeout=60.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return set()
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    names = [os.fsdecode(entry[3:]) for entry in done.stdout.split(b"\0") if entry]
    return {(name, (top / name).lstat().st_mtime_ns if os.path.lexists(top / name) else 0) for name in names}


INPUT = re.compile(r"data|imag|img|video|input|file|label|anno|list|weight|pretrain|model", re.IGNORECASE)
MODEL = re.compile(r"weight|pretrain|model", re.IGNORECASE)
OUTPUT = re.compile(r"save|output|out_|result|log|export", re.IGNORECASE)
NO_INPUT = re.compile(r"config|name|class_path|script", re.IGNORECASE)
ENDING = re.compile(
    r"\.(?:jpe?g|png|bmp|npy|npz|nii(?:\.gz)?|mp4|avi|wav|txt|list|csv|tsv|json|pkl|pdparams|pdmodel|pdiparams|pdema)$",
    re.IGNORECASE,
)
NO_PATH = re.compile(r"""://|[\[\]{}()'",;*?<>|$]|^\s*$""")
CONFIG = (".yml", ".yaml")
PROGRAM = (".py", ".sh", *CONFIG)


class NamedPath(NamedTuple):
    """A path that a command reads, by the argument that names it; ``command`` is the id of the first that does."""

    path: str
    key: str
    command: str

    def fault(self, root: Path) -> str:
        """Return its fault below ``root``: missing or empty; "" for nothing."""
        place = root / self.path
        found = [place] if place.exists() else []
        if not found and MODEL.search(self.key):  # Paddle adds the ending itself: model.pdparams, model.pdmodel
            found = [path for path in place.parent.glob("*") if path.name.startswith(f"{place.name}.pd")]
        if not found:
            return "is a link to nothing" if place.is_symlink() else "is missing"
        below = (
            Path(folder, name) for one in found for folder, _, names in os.walk(one, followlinks=True) for name in names
        )
        if any(path.is_file() and path.stat().st_size > 0 for path in (*found, *below)):
            return ""
        return "is an empty folder" if found[0].is_dir() else "is an empty file"


def named_paths(plan: Plan) -> tuple[NamedPath, ...]:
    """Return the local paths of data, images and weights in the words of ``plan``, each once; not the chain's outputs."""
    found: dict[str, NamedPath] = {}
    made = {_normal(".", path) for path in (plan.out, plan.run)}
    for command in plan.commands:
        pairs = list(_arguments(command.argv))
        for key, value in pairs:
            path, is_named = _place(command, value), "/" in value.rstrip("/") or ENDING.search(value)
            other = OUTPUT.search(key) or NO_INPUT.search(key) or NO_PATH.search(value) or value.endswith(PROGRAM)
            own = any(path == folder or path.startswith(f"{folder}/") for folder in made if folder != ".")
            if INPUT.search(key) and is_named and not other and not own:
                found.setdefault(path, NamedPath(path=path, key=key, command=command.id))
        made |= {_normal(command.cwd, value) for key, value in pairs if OUTPUT.search(key)}
        patterns = [pattern for one in command.leaves for pattern in one.files]
        made |= {_normal(".", re.split(r"[*?\[]", one, maxsplit=1)[0].rpartition("/")[0]) for one in patterns}
    return tuple(found.values())


def _arguments(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    for before, word in pairwise(("", *argv)):
        key, equals, value = word.partition("=")
        if equals:
            yield key, value
        elif before.startswith("-") and "=" not in before and not word.startswith("-"):
            yield before, word


def _place(command: Command, value: str) -> str:
    """Return where a value points to.

    One that leads out of the checkout, ``../../../data`` beside ``models/rank/net/config.yaml``, is relative to the
    configuration's folder, if it stays inside from there.
    """
    path = _normal(command.cwd, value)
    if not path.startswith("../"):
        return path
    configs = (_normal(command.cwd, word) for word in command.argv if word.endswith(CONFIG))
    nearer = (_normal(os.path.dirname(config), value) for config in configs)  # noqa: PTH120 - a word
    return next((one for one in nearer if not one.startswith("../")), path)


def _normal(cwd: str, path: str) -> str:
    return os.path.normpath(PurePosixPath(cwd, path))


# Its exit status is judged, and because such scripts end with 0 whatever happens, so are the lines of its output and
# the data and weights that the parameter file's commands will read. Each call runs it again and judges anew.


MOST_LINES = 20
MOST_CHARACTERS = 160


class Preparation(NamedTuple):
    """The script and the checks of a suite's preparation of one mode.

    Attributes:
        checkout: the suite's folder; absolute.
        argv: the script's call, None if the checkout has no script.
        log: its log, relative to ``checkout``.
        paths: what must be there afterwards.
        interpreter: what the script calls Python by, None for nothing.
        keep: whether what it deletes of what is there is put back.
    """

    checkout: Path
    argv: tuple[str, ...] | None
    log: str
    paths: tuple[NamedPath, ...]
    interpreter: Interpreter | None = None
    keep: bool = False


def foreign_checkout(params: Path) -> Path | None:
    """Return the suite's checkout that ``params`` belongs to; None for tipchain's own project and its like.

    A suite's checkout has a ``test_tipc/prepare.sh``, or the folders by which its profile tells it.
    """
    checkout = checkout_of(params) or Path.cwd()
    if (checkout / "tipchain" / "__main__.py").is_file():
        return None
    is_suites = any((checkout / one).is_file() for one in (SCRIPT, OWN))
    marks = (folder for suite in all_suites() for folder in suite.marks.folders)
    return checkout if is_suites or any((checkout / folder).is_dir() for folder in marks) else None


def plan_preparation(
    checkout: Path,
    params: Path,
    mode: Mode,
    suite: str | None = None,
    *,
    chain: str | None = None,
    python: str | None = None,
    keep: bool = False,
) -> Preparation:
    """Plan the script and the checks for a parameter file in a suite's ``checkout``; nothing is run.

    Raises:
        ParamsError: the file cannot be read or does not fit the suite.
        UsageError: unknown kind or suite, a mode that the kind does not have, or no such interpreter.
    """
    plan = load_plan(params, mode, chain=chain, suite=suite, lenient=True, options=Options(root=str(checkout)))
    model = re.sub(r"[^\w.+-]+", "_", plan.model) or "model"
    log, paths = f"{LOGS}/{model}-{mode.value}.log", named_paths(plan)
    if not (checkout / SCRIPT).is_file():
        return Preparation(checkout=checkout, argv=None, log=log, paths=paths)
    file = Path(os.path.abspath(params))  # noqa: PTH100 - links stay: a linked file belongs to where the link stands
    name = str(file.relative_to(checkout)) if file.is_relative_to(checkout) else str(file)
    return Preparation(
        checkout=checkout,
        argv=("bash", SCRIPT, name, mode.value),
        log=log,
        paths=paths,
        interpreter=find_interpreter(checkout, python, plan.commands[0].argv[0] if plan.commands else "python"),
        keep=keep,
    )


def describe(preparation: Preparation) -> list[str]:
    """Describe a preparation's script and checks, for reading."""
    named = [f"must be there: {one.path} ({one.key} of {one.command})" for one in preparation.paths]
    return [f"in {preparation.checkout}:", *_announce(preparation), *named]


def _announce(preparation: Preparation) -> Iterator[str]:
    if preparation.argv is None:
        yield f"nothing is run: there is no {SCRIPT}"
        return
    python = preparation.interpreter
    yield f"$ {shlex.join(preparation.argv)}"
    yield f"  log: {preparation.log}"
    yield f"  {python or 'python: there is none on PATH; --python names one'}"
    kept = "--keep-data: what it deletes of what is there is put back"
    yield f"  {kept if preparation.keep else 'what it deletes of what is there is moved aside'}"


def prepare_suite(preparation: Preparation, timeout_s: float | None) -> ExitCode:
    """Run the script, check, print the findings, and return the exit code.

    Raises:
        UsageError: there is no bash, or the script calls ``tipchain prepare`` again.
        OutputError: no log can be written.
    """
    faults: list[str] = []
    if preparation.argv is None:
        print(say(f"{preparation.checkout}: has no {SCRIPT}; only what is there is checked"))
    else:
        print(say("\n".join([f"in {preparation.checkout}:", *_announce(preparation)])), flush=True)
        ending, more = run_script(
            preparation.checkout,
            preparation.argv,
            preparation.checkout / preparation.log,
            preparation.interpreter,
            keep=preparation.keep,
            limit_s=timeout_s,
        )
        if ending.interrupted:
            print(say("\n".join([*more, f"interrupted; log: {preparation.log}"])), file=sys.stderr)
            return ExitCode.INTERRUPTED
        faults += [*_script_faults(preparation, ending, timeout_s), *more]
    for one in preparation.paths:
        if fault := one.fault(preparation.checkout):
            faults.append(f"{one.path} {fault} ({one.key} of {one.command})")
    for fault in faults:
        print(f"FAIL  {say(fault)}")
    if any(REFUSED in fault for fault in faults):
        print(say(f"hint: nothing is installed into tipchain's own environment, {sys.prefix};"))
        print(say("      --python PATH names an interpreter of the suite's own"))
    if faults:
        print(say(f"exit code 1: not prepared, {many(len(faults), 'fault')}"))
        return ExitCode.FAILED
    count = len(preparation.paths)
    if preparation.argv is None and not count:
        print(say("exit code 4: nothing was run and nothing checked"))
        return ExitCode.NOTHING_CHECKED
    print(say("exit code 0: prepared" + (f"; {count} named paths are there" if count else "")))
    return ExitCode.PASSED


def _script_faults(preparation: Preparation, ending: Ending, timeout_s: float | None) -> Iterator[str]:
    if ending.failure or ending.timed_out:
        yield ending.failure or f"{SCRIPT} timed out after {timeout_s:g} s"
    elif ending.signal:
        yield f"{SCRIPT} was ended by signal {ending.signal}"
    log = preparation.checkout / preparation.log
    troubles = find_troubles(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else ()
    if ending.exit_code:
        last = f": {ending.tail[-1]}" if ending.tail and not troubles else ""
        yield f"{SCRIPT}: exit {ending.exit_code}{last}"
    for trouble in troubles[:MOST_LINES]:
        yield f"log:{trouble.line}: {textwrap.shorten(trouble.text, MOST_CHARACTERS, placeholder=' ...')}"
    if len(troubles) > MOST_LINES:
        yield f"log: {len(troubles) - MOST_LINES} more lines that tell of failures"
