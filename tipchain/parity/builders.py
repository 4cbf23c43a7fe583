"""From ``"module:callable"`` to the callable."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tipchain.errors import CaseError, did_you_mean


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
        CaseError: the module cannot be found, has no such name, or the name is not callable.
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
        raise
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise CaseError(f"{module_name} has no {name!r}", key=spec, hint=did_you_mean(name, public))
    builder = getattr(module, name)
    if not callable(builder):
        raise CaseError("is not callable", key=spec, found=type(builder).__name__)
    result: Callable[..., Any] = builder
    return result


def source_file(spec: str, root: Path) -> Path | None:
    """Return the file that holds ``"module:callable"`` without importing the module itself, or None."""
    module_name = spec.partition(":")[0]
    for base in (root.joinpath(*module_name.split(".")),):
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
    try:
        found = importlib.util.find_spec(module_name)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found is not None and found.origin else None
