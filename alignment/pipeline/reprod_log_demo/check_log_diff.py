"""Compare the two dumps of write_log.py with ReprodDiffHelper; the second array differs, so the check fails."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tipchain.reprod_log import ReprodDiffHelper

if __name__ == "__main__":
    helper = ReprodDiffHelper()
    helper.compare_info(helper.load_info("result_1.npy"), helper.load_info("result_2.npy"))
    raise SystemExit(0 if helper.report(path="diff.txt") else 1)
