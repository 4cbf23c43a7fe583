"""Compare what both sides of a case recorded of the metrics: --case, --mode; --help says more."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from enter import main

if __name__ == "__main__":
    raise SystemExit(main("check_stage", "metric"))
