"""Compare what both train.sh recorded of AlexNet's training iterations: --mode; --help says more."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from enter import main

if __name__ == "__main__":
    raise SystemExit(main("check_stage", "backward", ["--case", "configs/alexnet.yaml", *sys.argv[1:]]))
