"""PaddleVideo: models of skeletons, and one of frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from suite_recipes import Model, Recipe

SKELETONS = "data/fsd10"
FRAMES = "data/k400"
ON_CPU = "on_cpu.py"
ON_CPU_PROGRAM = '''"""Run main.py on the CPU: it knows GPU, NPU and XPU only."""
import runpy
import sys

import paddle

set_device = paddle.set_device
paddle.set_device = lambda name: set_device("cpu" if name == "gpu" else name)
sys.argv = ["main.py", *sys.argv[1:]]
runpy.run_path("main.py", run_name="__main__")
'''


def make_data(root: Path) -> None:
    """Write skeletons of 25 joints, frames of three videos, and the program that stands in front of main.py."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    folder = root / SKELETONS
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "FSD_train_data.npy", rng.random((4, 3, 40, 25, 1), dtype=np.float32))
    np.save(folder / "FSD_train_label.npy", rng.integers(0, 30, 4))
    np.save(folder / "example_skeleton.npy", rng.random((3, 40, 25, 1), dtype=np.float32))
    lines = []
    for number in range(2):
        frames = root / FRAMES / "rawframes" / f"video{number}"
        frames.mkdir(parents=True, exist_ok=True)
        for frame in range(1, 9):
            Image.fromarray(rng.integers(0, 255, (64, 80, 3), dtype=np.uint8)).save(frames / f"img_{frame:05}.jpg")
        lines.append(f"video{number} 8 {number}\n")
    for split in ("train", "val"):
        (root / FRAMES / f"{split}_small_frames.list").write_text("".join(lines), encoding="utf-8")
    (root / ON_CPU).write_text(ON_CPU_PROGRAM, encoding="utf-8")
