"""Both frameworks, torch first; a module of tests that imports this is skipped where one is missing."""

import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")
