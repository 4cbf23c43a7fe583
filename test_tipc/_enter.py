"""How the numbered scripts enter the engine, or say how to enter the environment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(number: str) -> int:
    """Run the stages of script ``number`` ("01" to "05") and return the exit code."""
    sys.path.insert(0, str(ROOT))
    missing = [
        name
        for name in ("numpy", "yaml", "filelock", "safetensors")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        print(
            f"error: this Python ({sys.executable}) lacks {', '.join(missing)}\n"
            f"  enter the project's environment:  source {ROOT}/.venv/bin/activate\n"
            "  or make it first:                 bash prepare.sh --env-only",
            file=sys.stderr,
        )
        return 2
    from tipchain.commands.align import script_main

    return script_main(number)
