"""From ``"module:callable"`` to the callable."""

from __future__ import annotations

import functools
import importlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tipchain
from tipchain.errors import CaseError, TipchainError, did_you_mean


def find_root(path: Path) -> Path:
    """Return the nearest folder above ``path`` with a pyproject.toml or a test_tipc, else its own folder."""
    start = path.resolve().parent
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() or (folder / "test_tipc").is_dir():
            return folder
    return start


def resolve(spec: str, root: Path) -> Callable[..., Any]:
    """Import and return the callable that ``"module:callable"`` names, with ``root`` on the import path.

    Raises:
        CaseError: the module cannot be found or imported, has no such name, or the name is not callable.
    """
    module_name, _, name = spec.partition(":")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise CaseError(
                f"cannot import {module_name!r}", key=spec, hint=f"imports start at {root}"
            ) from error
        raise CaseError(f"cannot be imported: {blame(error)}", key=spec) from error
    except Exception as error:  # the user's own module may raise anything
        raise CaseError(f"cannot be imported: {blame(error)}", key=spec) from error
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise CaseError(f"{module_name} has no {name!r}", key=spec, hint=did_you_mean(name, public))
    builder = getattr(module, name)
    if not callable(builder):
        raise CaseError("is not callable", key=spec, found=type(builder).__name__)
    result: Callable[..., Any] = builder
    return result


def build(spec: str, root: Path, args: Mapping[str, Any]) -> Any:
    """Return what the builder ``"module:callable"`` makes of ``args``.

    Raises:
        CaseError: as `resolve`, or the builder raised; the message names the place in the user's files.
    """
    builder = resolve(spec, root)
    try:
        return builder(**args)
    except TipchainError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise CaseError(f"could not be called: {blame(error)}", key=spec) from error


def blame(error: BaseException) -> str:
    """Return ``file:line: Class: message``, the place being the innermost one in the user's own files."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}: {said}" if own else said


def is_users(filename: str) -> bool:
    """Tell whether a file is neither Python's, nor an installed package's, nor tipchain's."""
    return not filename.startswith(_others()) and not {"site-packages", "dist-packages"} & set(
        Path(filename).parts
    )


@functools.cache  # asked once for each of some two thousand imported files
def _others() -> tuple[str, ...]:
    """Return what the names of files begin with that are nobody's own."""
    paths = sysconfig.get_paths()
    return (
        "<",
        str(Path(tipchain.__file__).parent),
        *(paths[key] for key in ("stdlib", "purelib", "platlib")),
    )
