"""Image files as the Paddle side's programs read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read_image(path: str | Path) -> Image.Image:
    """Return the image in ``path`` as RGB.

    Raises:
        DataError: it is missing, damaged or no image.
    """
    from PIL import Image

    try:
        with Image.open(path) as file:
            return file.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow raises all of them
        raise DataError("cannot be read as an image", file=path, found=error) from error


def find_images(path: Path) -> list[Path]:
    """Return ``path`` itself if it is a file, else the images below it, sorted.

    Raises:
        DataError: there is no such file or folder, or the folder holds no image.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError("no such file or folder", file=path, expected="an image, or a folder with images")
    found = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
    if not found:
        raise DataError("has no image", file=path, expected=f"files ending in {', '.join(SUFFIXES)}")
    return found
