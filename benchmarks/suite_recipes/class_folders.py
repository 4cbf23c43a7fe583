"""A few random images in a folder for each class, as the tutorials read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, IMAGES, SIDE = ("cat", "dog"), 2, 256


def make_class_folders(root: Path) -> None:
    """Write ``lite_data/{train,val}/CLASS/N.jpg`` and the image that inference gets."""
    draw = np.random.default_rng(0)
    names = [f"{part}/{one}/{number}.jpg" for part in ("train", "val") for one in CLASSES for number in range(IMAGES)]
    for name in (*names, "test/demo.jpg"):
        path = root / "lite_data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(path)
