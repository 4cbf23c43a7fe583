"""Compare the learning rate's curve of both sides of a case, step by step: --case, --mode; --help says more."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from enter import main

if __name__ == "__main__":
    raise SystemExit(main("align_rates"))
