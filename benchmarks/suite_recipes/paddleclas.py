"""PaddleClas: eight images of two classes, and a checkout that is importable as ``paddleclas``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

IMAGES, CLASSES, SIDE = 8, 2, 256


def make_data(root: Path) -> None:
    """Write ImageNet's layout with a few random images, and the link that stands for an installed checkout."""
    images = root / "dataset" / "ILSVRC2012"
    draw = np.random.default_rng(0)
    for part in ("train", "val"):
        (images / part).mkdir(parents=True, exist_ok=True)
        lines = []
        for index in range(1, IMAGES + 1):
            name = f"{part}/ILSVRC2012_{part}_{index:08d}.JPEG"
            pixels = draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(images / name, "JPEG")
            lines.append(f"{name} {index % CLASSES}\n")
        (images / f"{part}_list.txt").write_text("".join(lines))
    link = root / ".installed" / "paddleclas"
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(root.resolve())
