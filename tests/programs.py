"""Programs that tests start and wait for."""

from __future__ import annotations

import subprocess
from typing import Any


def completed(words: Any, *, check: bool = False, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return it with what it printed."""
    return subprocess.run(words, capture_output=True, text=True, check=check, **more)
