"""Make a Paddle weight file from a torch one; the same as ``tipchain convert-weights``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tipchain.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["convert-weights", *sys.argv[1:]]))
