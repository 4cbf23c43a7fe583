"""Videos as folders of frames, for tests: as others than tipchain lay them out."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_video(folder: Path, frames: int, size: tuple[int, int] = (40, 30), seed: int = 0) -> None:
    """Write ``frames`` noisy JPEGs of ``size`` (width, height) into ``folder``; the first pixels tell their number."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    for number in range(1, frames + 1):
        pixels = random.integers(0, 40, (size[1], size[0], 3), dtype=np.uint8)
        pixels[: size[1] // 2] = 4 * number
        Image.fromarray(pixels).save(folder / f"img_{number:05d}.jpg", quality=95)


def write_ucf(folder: Path, *, lists: str = ".", frames: int = 7) -> Path:
    """Write a data folder like a real UCF-101: two classes, groups 1 (val) and 8, 9 (train), its lists in ``lists``."""
    names = {"train": ("g08_c01", "g08_c02", "g09_c01"), "val": ("g01_c01",)}
    (folder / lists).mkdir(parents=True, exist_ok=True)
    for split, groups in names.items():
        lines = []
        for label, name in enumerate(("ApplyLipstick", "YoYo")):
            for group in groups:
                video = f"{name}/v_{name}_{group}"
                write_video(folder / "rawframes" / video, frames + label, seed=label)
                lines.append(f"{video} {frames + label} {label}\n")
        (folder / lists / f"ucf101_{split}_split_1_rawframes.txt").write_text("".join(lines))
    return folder
