"""Whose an exception is: the user's, with the place in their own files, or tipchain's.

tipchain calls models, losses, data sets and metrics that it has not written. What they raise is theirs to mend, and is
told with the deepest line of their own files. A user's own are all files that are neither Python's, nor an installed
package's, nor tipchain's; and those of a package that a builder was named from (`claim`).
"""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import tipchain
from tipchain.errors import TipchainError
from tipchain.framework_types import Function

CALLERS = 3
"""Largest number of places that a message names on the way to an exception."""
SIDES = {"torch": "the reference (torch)", "paddle": "the port (Paddle)"}
_PLACE = "_tipchain_place"
_SAID_FILE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_SAID_ERROR = re.compile(
    r"^\s*(?P<said>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\b.*)$", re.MULTILINE
)
_ARGUMENTS = re.compile(r"(?P<name>[\w.]+)\(\) (?:missing|takes|got)\b")
_KERNEL = re.compile(r"\s*\(at /[^)]*\)$")
_claimed: set[str] = set()
_OTHERS = ("<", str(Path(tipchain.__file__).parent), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
"""The prefixes of paths that are nobody's own."""


class UsersError(TipchainError):
    """The user's own code raised, or returned something that cannot be used."""

    exit_code = 1


def is_users(filename: str) -> bool:
    """Tell whether a file is the user's: not Python's, a package's or tipchain's."""
    if filename.startswith(tuple(_claimed)):
        return True
    return not (filename.startswith(_OTHERS) or "/site-packages/" in filename or "/dist-packages/" in filename)


def claim(module: str) -> None:
    """Count the package of ``module``, which the user named, as the user's own."""
    package = module.partition(".")[0]
    if package in (*SIDES, "tipchain", *sys.stdlib_module_names):
        return
    with suppress(ImportError, ValueError):
        spec = find_spec(package)
        _claimed.update(f"{folder}/" for folder in (spec and spec.submodule_search_locations) or ())


@contextmanager
def serving(*, side: str = "", stage: str = "") -> Iterator[None]:
    """Note whose code is at work for errors raised within; the innermost note counts."""
    try:
        yield
    except BaseException as error:
        known = getattr(error, _PLACE, ("", ""))
        setattr(error, _PLACE, (known[0] or side, known[1] or stage))
        raise


def blame(error: BaseException) -> str:
    """Return ``file:line: Class: message`` of an error, the user's line or else tipchain's."""
    said = f"{type(error).__name__}: {message_of(error)}".rstrip(": ")
    for _, place in _frames(error)[-1:]:
        said = f"{place}: {said} (this is a bug of tipchain; please report it)"
    return users_fault(error) or said


def users_fault(error: BaseException) -> str | None:
    """Return ``file:line: Class: message`` of an error in the user's code, else None.

    What torch or Paddle raises without a line of the user's, called by tipchain with what is the user's (their
    samples, their outputs), is told with the framework's own line.
    """
    said = f"{type(error).__name__}: {message_of(error)}".rstrip(": ")
    if isinstance(error, SystemExit):
        said = f"SystemExit: it ends the program here, with exit code {error.code or 0}"
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    text = str(error)
    if "Traceback (most recent call last)" in text or "In transformed code:" in text:  # as loaders' processes leave it
        quoted = [found for found in _SAID_FILE.finditer(text) if is_users(found["file"])]
        for last in quoted[-1:]:
            errors = [found["said"].strip() for found in _SAID_ERROR.finditer(text, last.end())]
            return f"{last['file']}:{last['line']}: {errors[-1] if errors else type(error).__name__}"
    walked = _frames(error)
    own = [place for frame, place in walked if is_users(frame.f_code.co_filename)]
    foreign = [place for frame, place in walked if _package(frame) in SIDES]
    called = _called(text, walked[-1][0]) if isinstance(error, TypeError) and walked else ""
    lacking = _lacking(error) if isinstance(error, AttributeError) else ""
    place = next(filter(None, (*own[-1:], called, lacking, *foreign[-1:])), "")
    return f"{place}: {said}" if place else None


def _frames(error: BaseException) -> list[tuple[FrameType, str]]:
    return [(frame, f"{frame.f_code.co_filename}:{line}") for frame, line in traceback.walk_tb(error.__traceback__)]


def side_of(error: BaseException) -> str:
    """Return the side whose code raised, ``"torch"`` or ``"paddle"``; "" if unknown.

    It is what `serving` said; else the framework of the deepest frame that is one's, or holds one's values.
    """
    side: str = getattr(error, _PLACE, ("", ""))[0]
    if side:
        return side
    for frame, _ in reversed(_frames(error)):
        package = _package(frame)
        if package in SIDES:
            return package
        if is_users(frame.f_code.co_filename):
            values = [*frame.f_locals.values()]
            values += [one for value in values if type(value) in (tuple, list) for one in value[:1]]
            frameworks = {_root(type(value)) for value in values} & set(SIDES)
            if len(frameworks) == 1:
                return frameworks.pop()
    return ""


def one_line(error: BaseException) -> str:
    """Return ``file:line: Class: message (whose)`` of an error in a stage's code."""
    if isinstance(error, TipchainError):
        return str(error)
    side = side_of(error)
    return f"{blame(error)}, in {SIDES[side]}" if side and users_fault(error) else blame(error)


def tell(error: BaseException) -> str | None:
    """Return the message for the user's own mistake, with side and stage, else None."""
    message = str(error) if isinstance(error, UsersError) else users_fault(error)
    if message is None:
        return None
    side, stage = side_of(error), getattr(error, _PLACE, ("", ""))[1]
    where = ", ".join(filter(None, (SIDES.get(side, ""), stage)))
    own = [place for frame, place in _frames(error) if is_users(frame.f_code.co_filename)]
    callers = [place for place in dict.fromkeys(reversed(own[:-1])) if place != own[-1]][:CALLERS]  # nearest first
    message += f"\n  called from: {', '.join(callers)}" if callers and not isinstance(error, UsersError) else ""
    return f"{message}\n  in: {where}" if where and "\n  in: " not in message else message


def message_of(error: BaseException) -> str:
    """Return the first telling line of an error's message, or of a kernel's summary."""
    summary = str(error).rpartition("Error Message Summary:")[2].rpartition("In user code:")[2]
    lines = [line.strip() for line in summary.splitlines()]
    telling = [line for line in lines if line and set(line) != {"-"}]
    if "In user code:" in str(error):  # the places come first
        telling = [line for line in telling if re.match(r"\w+Error:|\(\w+\)", line)] or telling
    if len(telling) > 1 and telling[0].endswith(":"):
        return f"{telling[0]} {telling[1]}"
    return _KERNEL.sub("", telling[0]) if telling else ""


def place_of(called: Callable[..., object]) -> str:
    """Return ``file:line`` of a function or class, "" if unknown."""
    inner = getattr(called, "func", called)
    inner = getattr(inner, "__wrapped__", inner)
    if isinstance(inner, type):
        inner = getattr(inner, "__init__", inner)
    code = getattr(inner, "__code__", None) or getattr(getattr(inner, "__func__", None), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def placed(called: Function) -> str:
    """Return ``file:line: name`` of a function or an object's class, else the name."""
    inner = getattr(called, "func", called)
    if not hasattr(inner, "__name__"):
        kind = type(inner)
        inner = kind if is_users(sys.modules[kind.__module__].__file__ or "<") else inner
    name = getattr(inner, "__name__", type(inner).__name__)
    place = place_of(inner)
    return f"{place}: {name}" if place else name


def _called(message: str, frame: FrameType) -> str:
    """Return the place of the function that tipchain called with wrong arguments, else ""."""
    match = _ARGUMENTS.match(message)
    if match is None:
        return ""
    values = [*frame.f_locals.values()]
    values += [one for value in values if isinstance(value, tuple | list) for one in value]
    for one in values:
        if callable(one) and getattr(one, "__qualname__", "") == match["name"].removesuffix(".__init__"):
            place = place_of(one)
            if is_users(place.rpartition(":")[0]):
                return place
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and is_users(file):
            value: Any = module
            for part in match["name"].split("."):
                value = vars(value).get(part) if isinstance(value, type | ModuleType) else None
            place = place_of(value) if value is not None else ""
            if place.startswith(f"{file}:"):
                return place
    return ""


def _lacking(error: AttributeError) -> str:
    """Return the place of the user's own class that lacks an attribute, else ""."""
    kind = error.obj if isinstance(error.obj, type) else type(error.obj)
    places = (place_of(one) for one in (kind, *vars(kind).values()) if callable(one))
    place = next(filter(None, places), "")
    return place if place and not _root(kind) and is_users(place.rpartition(":")[0]) else ""


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _root(kind: type) -> str:
    """Return the framework of a class or of its bases."""
    for base in kind.__mro__:
        root = str(base.__module__).partition(".")[0]
        if root in SIDES:
            return root
    return ""
