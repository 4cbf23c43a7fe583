"""How the documents' scripts enter the engine, or say how to enter the environment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def enter() -> None:
    """Put the project's root on the import path; end the program where the environment lacks what it needs."""
    sys.path.insert(0, str(ROOT))
    missing = [name for name in ("numpy", "yaml", "filelock", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"error: this Python ({sys.executable}) lacks {', '.join(missing)}\n"
            f"  enter the project's environment:  source {ROOT}/.venv/bin/activate\n"
            "  or make it first:                 bash prepare.sh --env-only",
            file=sys.stderr,
        )
        raise SystemExit(2)


def main(name: str, *args: Any) -> int:
    """Call the function ``name`` of ``tipchain.commands.scripts`` with ``args``; return the exit code."""
    enter()
    from tipchain.commands import scripts

    code: int = getattr(scripts, name)(*args)
    return code
