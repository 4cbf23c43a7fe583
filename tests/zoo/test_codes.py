"""Diagnosis codes that no other test of the gate asks for, each of the port that docs/diagnoses.json has for it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)

from zoo.third.run import judge  # noqa: E402

pytestmark = pytest.mark.frameworks
RECORDED = json.loads((Path(__file__).resolve().parents[2] / "docs/diagnoses.json").read_text(encoding="utf-8"))
CODES = (
    "dropout-in-eval", "dropout-place", "dropout-shape", "extra-dropout", "shift-ratio", "transposed-operand",
)  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_a_recorded_port_has_its_code(code):
    recorded = RECORDED[code]
    found = judge(recorded["id"], recorded["list"])
    assert (found.get("caught"), found.get("code")) == (True, code), found
