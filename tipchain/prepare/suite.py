"""A suite's own ``test_tipc/prepare.sh``: run it in its checkout, then look at what it left."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tipchain.chain.load import checkout as checkout_of
from tipchain.chain.plan import Command, Options, Plan
from tipchain.chain.process import Ending
from tipchain.core.language import say
from tipchain.modes import Mode
from tipchain.outcome import ExitCode
from tipchain.prepare.running import LOGS, REFUSED, SCRIPT, Interpreter, find_interpreter, find_troubles, run_script
from tipchain.prepare.shell import Removals, find_removals

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


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPath:
    """A path that a command reads.

    Attributes:
        path: relative to the checkout, or absolute.
        key: the argument that names it, as ``--image_dir`` or ``Global.infer_imgs``.
        command: id of the first command that does.
    """

    path: str
    key: str
    command: str

    def fault(self, root: Path) -> str:
        """Return what is wrong with it below ``root``: missing or empty; "" for nothing."""
        place = root / self.path
        found = [place] if place.exists() else []
        if not found and MODEL.search(self.key):  # Paddle adds the ending itself: model.pdparams, model.pdmodel
            found = [path for path in place.parent.glob("*") if path.name.startswith(f"{place.name}.pd")]
        if not found:
            return "is a link to nothing" if place.is_symlink() else "is missing"
        if any(_holds_something(path) for path in found):
            return ""
        return "is an empty folder" if found[0].is_dir() else "is an empty file"


def _holds_something(path: Path) -> bool:
    if not path.is_dir():
        return path.stat().st_size > 0
    files = (Path(folder, name) for folder, _, names in os.walk(path, followlinks=True) for name in names)
    return any(file.exists() and file.stat().st_size > 0 for file in files)


def named_paths(plan: Plan) -> tuple[NamedPath, ...]:
    """Return the local paths of data, images and weights in the words of ``plan``, each once, in order.

    What stands in an argument called after data or a model counts; not URLs, configurations, and what the chain
    itself writes.
    """
    found: dict[str, NamedPath] = {}
    made = {_normal(".", path) for path in (plan.out, plan.run)}
    for command in plan.commands:
        pairs = list(_arguments(command.argv))
        for key, value in pairs:
            path = _place(command, value)
            if _is_input(key, value) and not any(
                path == folder or path.startswith(f"{folder}/") for folder in made if folder != "."
            ):
                found.setdefault(path, NamedPath(path=path, key=key, command=command.id))
        made |= {_normal(command.cwd, value) for key, value in pairs if OUTPUT.search(key)}
        made |= set(_folders_left(command))
    return tuple(found.values())


def _arguments(argv: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``key=value`` words and of ``--key value`` words."""
    flag = ""
    for word in argv:
        key, equals, value = word.partition("=")
        if equals:
            yield key, value
        elif flag and not word.startswith("-"):
            yield flag, word
        flag = word if word.startswith("-") and not equals else ""


def _is_input(key: str, value: str) -> bool:
    if not INPUT.search(key) or OUTPUT.search(key) or NO_INPUT.search(key) or NO_PATH.search(value):
        return False
    return ("/" in value.rstrip("/") or bool(ENDING.search(value))) and not value.endswith(PROGRAM)


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


def _folders_left(command: Command) -> Iterator[str]:
    """Yield the folders that hold what ``command`` must leave."""
    for artifact in command.leaves:
        for pattern in artifact.files:
            fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
            yield os.path.normpath(fixed.rpartition("/")[0] or ".")


# A suite's own ``test_tipc/prepare.sh``: run it in its checkout, then look at what it left.
#
# Its exit status is judged, and because such scripts end with 0 whatever happens, so are the lines of its output and
# the data and weights that the parameter file's commands will read. Each call runs it again and judges anew.


MOST_LINES = 20
MOST_CHARACTERS = 160
NOTHING = Removals()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What a suite's preparation of one mode runs and checks.

    Attributes:
        checkout: the suite's folder; absolute.
        argv: the script's call, None if the checkout has no script.
        log: its log, relative to ``checkout``.
        paths: what must be there afterwards.
        interpreter: what the script calls Python by; None if none was found, or there is no script.
        removals: what it may delete.
        keep: whether that is put back.
    """

    checkout: Path
    argv: tuple[str, ...] | None
    log: str
    paths: tuple[NamedPath, ...]
    interpreter: Interpreter | None = None
    removals: Removals = NOTHING
    keep: bool = False


def foreign_checkout(params: Path) -> Path | None:
    """Return the suite's checkout that ``params`` belongs to; None for tipchain's own project and its like.

    A suite's checkout has a ``test_tipc/prepare.sh``, or the folders by which its profile tells it.
    """
    checkout = checkout_of(params) or Path.cwd()
    if (checkout / "tipchain" / "__main__.py").is_file():
        return None
    return checkout if (checkout / SCRIPT).is_file() or _bears_marks(checkout) else None


def _bears_marks(checkout: Path) -> bool:
    from tipchain.chain.profiles import OWN, all_suites

    folders = (folder for suite in all_suites() for folder in suite.marks.folders)
    return (checkout / OWN).is_file() or any((checkout / folder).is_dir() for folder in folders)


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
    """Return what to run and what to check; nothing is run.

    Args:
        checkout: the suite's folder.
        params: the parameter file.
        mode: the mode.
        suite: whose layout the file has; told from it if None.
        chain: the kind of chain; told from the file and the mode if None.
        python: the interpreter that the script runs with; the file's if None.
        keep: whether what the script deletes is put back.

    Raises:
        ParamsError: the file cannot be read or does not fit the suite.
        UsageError: unknown kind or suite, a mode that the kind does not have, or no such interpreter.
    """
    from tipchain.chain.load import load_plan

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
        removals=find_removals(checkout / SCRIPT, checkout, (name, mode.value)),
        keep=keep,
    )


def describe(preparation: Preparation) -> list[str]:
    """Return what would be run and checked, for reading."""
    named = [f"must be there: {one.path} ({one.key} of {one.command})" for one in preparation.paths]
    return [f"in {preparation.checkout}:", *_announce(preparation), *named]


def _announce(preparation: Preparation) -> Iterator[str]:
    """Yield what is run, and with what, and what it may delete."""
    if preparation.argv is None:
        yield f"nothing is run: there is no {SCRIPT}"
        return
    python = preparation.interpreter
    yield f"$ {shlex.join(preparation.argv)}"
    yield f"  log: {preparation.log}"
    yield f"  {python.describe() if python else 'python: there is none on PATH; --python names one'}"
    paths, untold = preparation.removals.paths, preparation.removals.untold
    if preparation.keep:
        yield "  --keep-data: what it deletes of what is there is put back"
    for path in paths[:MOST_LINES]:
        name = path.relative_to(preparation.checkout) if path.is_relative_to(preparation.checkout) else path
        kind = " (the link alone)" if path.is_symlink() else "/" if path.is_dir() else ""
        yield f"  may delete: {name}{kind}"
    if len(paths) > MOST_LINES:
        yield f"  may delete: {len(paths) - MOST_LINES} more files and folders"
    for line in untold:
        yield f"  may delete, cannot be told: {line}"
    if not paths and not untold:
        yield "  may delete: nothing that is there now"


def prepare_suite(preparation: Preparation, timeout_s: float | None) -> ExitCode:
    """Run the script, check, print what was found, and return the exit code.

    Raises:
        UsageError: there is no bash, or the script calls ``tipchain prepare`` again.
        OutputError: no log can be written.
    """
    faults: list[str] = []
    if preparation.argv is None:
        print(say(f"{preparation.checkout}: has no {SCRIPT}; only what is there is checked"))
    else:
        print(say("\n".join([f"in {preparation.checkout}:", *_announce(preparation)])), flush=True)
        ran = run_script(
            preparation.checkout,
            preparation.argv,
            preparation.checkout / preparation.log,
            preparation.interpreter,
            keep=preparation.keep,
            limit_s=timeout_s,
        )
        if ran.ending.interrupted:
            print(say("\n".join([*ran.faults, f"interrupted; log: {preparation.log}"])), file=sys.stderr)
            return ExitCode.INTERRUPTED
        faults += [*_script_faults(preparation, ran.ending, timeout_s), *ran.faults]
    for one in preparation.paths:
        if fault := one.fault(preparation.checkout):
            faults.append(f"{one.path} {fault} ({one.key} of {one.command})")
    for fault in faults:
        print(f"FAIL  {say(fault)}")
    if any(REFUSED in fault for fault in faults):
        print(say(f"hint: nothing is installed into tipchain's own environment, {sys.prefix};"))
        print(say("      --python PATH names an interpreter of the suite's own"))
    return _conclude(preparation, len(faults))


def _conclude(preparation: Preparation, faults: int) -> ExitCode:
    if faults:
        print(say(f"exit code 1: not prepared, {faults} fault{'s' if faults > 1 else ''}"))
        return ExitCode.FAILED
    count = len(preparation.paths)
    if preparation.argv is None and not count:
        print(say("exit code 4: nothing was run and nothing checked"))
        return ExitCode.NOTHING_CHECKED
    print(say("exit code 0: prepared" + (f"; {count} named paths are there" if count else "")))
    return ExitCode.PASSED


def _script_faults(preparation: Preparation, ending: Ending, timeout_s: float | None) -> Iterator[str]:
    """Yield what a script's end and its log tell of."""
    if ending.failure:
        yield ending.failure
    elif ending.timed_out:
        yield f"{SCRIPT} timed out after {timeout_s:g} s"
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
