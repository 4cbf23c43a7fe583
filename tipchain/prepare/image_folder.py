"""A data folder of the user's own, in ImageNet's layout: ``train/<class>/<image>`` and ``val/<class>/<image>``."""

from __future__ import annotations

from pathlib import Path

from tipchain.errors import DataError

SPLITS = ("train", "val")
IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def check_image_folder(folder: Path) -> tuple[str, ...]:
    """Return the class names of ``folder``, sorted (their order gives the labels).

    Raises:
        DataError: a split is missing, the splits have different classes, or a class has no image.
    """
    layout = "train/<class>/ and val/<class>/ with images"
    if not folder.is_dir():
        raise DataError("there is no such data folder", file=folder, key="--data-path", expected=layout)
    train, val = (_classes(folder / split, layout) for split in SPLITS)
    if train != val:
        only = [f"{split} only: {', '.join(sorted(names)[:5])}" for split, names in
                (("train", set(train) - set(val)), ("val", set(val) - set(train))) if names]  # fmt: skip
        raise DataError("train and val have different classes", file=folder, found="; ".join(only))
    for split in SPLITS:
        for name in train:
            _check_class(folder / split / name)
    return train


def _classes(folder: Path, layout: str) -> tuple[str, ...]:
    if not folder.is_dir():
        raise DataError("is missing", file=folder, expected=layout)
    classes = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")))
    if not classes:
        raise DataError("has no class folders", file=folder, expected=layout)
    return classes


def _check_class(folder: Path) -> None:
    if not any(path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() for path in folder.iterdir()):
        raise DataError("has no image", file=folder, expected=f"a file ending in {', '.join(IMAGE_SUFFIXES)}")
