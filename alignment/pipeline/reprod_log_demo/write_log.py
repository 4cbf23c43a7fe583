"""Write two dumps with ReprodLogger: one array equal in both, one different."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

from tipchain.reprod_log import ReprodLogger

if __name__ == "__main__":
    generator = np.random.default_rng(0)
    shared = generator.random((3, 64, 64), dtype=np.float32)
    for path in ("result_1.npy", "result_2.npy"):
        logger = ReprodLogger()
        logger.add("demo_test_1", shared)
        logger.add("demo_test_2", generator.random((3, 64, 64), dtype=np.float32))
        logger.save(path)
