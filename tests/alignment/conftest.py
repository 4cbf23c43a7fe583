"""Both frameworks in one process, torch first, and the two sides that a module tests."""

import importlib
import sys
from pathlib import Path

import pytest
from stage_records import load_both

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def frameworks():
    """Return the modules torch and paddle, with the project's root on the import path."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    torch, paddle = load_both()
    return torch.torch, paddle.paddle


@pytest.fixture(scope="module")
def sides(request, frameworks):
    """Return both frameworks and the modules of both sides in the package that the test module names."""
    package = request.module.PACKAGE
    return *frameworks, *(importlib.import_module(f"{package}.{side}_side") for side in ("torch", "paddle"))
