"""The interpreter that a suite's script runs with, under every name that such scripts call one by."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tipchain.chain.execute import has_own_python, search_path
from tipchain.errors import UsageError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter of Python.

    Attributes:
        path: the program, absolute.
        prefix: its environment.
        own: whether that is the environment that tipchain runs in, in which nothing may be installed.
    """

    path: str
    prefix: str
    own: bool

    def describe(self) -> str:
        """Return it for reading."""
        if not self.own:
            return f"python: {self.path}"
        return f"python: {self.path}: tipchain's own, so nothing is installed; --python names the suite's"


def find_interpreter(root: Path, given: str | None, files: str) -> Interpreter | None:
    """Return the interpreter for the script of a checkout; None if there is none.

    Args:
        root: the checkout.
        given: what the user names; relative to the current folder if it has a ``/``.
        files: what the parameter file names; where that is not here, ``python`` or ``python3`` is taken.

    Raises:
        UsageError: what the user names is no interpreter.
    """
    if given is not None:
        found = _look_up(given, root)
        interpreter = _examine(found, root) if found else None
        if interpreter is None:
            what = "is no interpreter of Python" if found else "there is no such program"
            raise UsageError(f"--python {given}: {what}")
        return interpreter
    programs = (_look_up(name, root) for name in (files, "python", "python3"))
    return next(filter(None, (_examine(path, root) for path in programs if path)), None)


def _look_up(name: str, root: Path) -> str | None:
    if "/" in name:
        name = os.path.abspath(name)  # noqa: PTH100 - the links of a virtual environment stay
    return shutil.which(name, path=search_path(root))


def _examine(path: str, root: Path) -> Interpreter | None:
    """Return the interpreter at ``path``, None if it cannot be asked."""
    question = "import sys; print(sys.prefix)"
    try:
        done = subprocess.run(
            [path, "-c", question], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    prefix = done.stdout.strip()
    if done.returncode != 0 or not prefix:
        return None
    same = os.path.realpath(prefix) == os.path.realpath(sys.prefix)
    return Interpreter(path=path, prefix=prefix, own=same and not has_own_python(root))


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
        own = str(Path(interpreter.path).parent)
        path[1:1] = [own] if own not in path[1].split(os.pathsep) else []
        given = {**given, "VIRTUAL_ENV": interpreter.prefix}
    return {**given, "PATH": os.pathsep.join(path)}
