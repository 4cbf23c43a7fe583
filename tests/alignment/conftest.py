"""Both frameworks in one process, torch first."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def frameworks():
    """Return the modules torch and paddle, with the project's root on the import path."""
    for name in ("torch", "paddle"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tipchain.frameworks import load_framework

    return load_framework("torch").torch, load_framework("paddle").paddle
