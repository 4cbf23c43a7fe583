"""Evaluate a weight file of a case's Paddle port."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tipchain.paddle_tools.program import run_program

if __name__ == "__main__":
    raise SystemExit(run_program("evaluate"))
