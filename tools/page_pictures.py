"""Take the pictures of the tutorial anew: its pages in headless Chromium (``TIPCHAIN_CHROMIUM``, else one that is installed).

    python tools/page_pictures.py

It follows docs/tutorial.md in a temporary folder, as its test does, and writes docs/pictures/NAME.png of each NAME.html that the page
makes. Tests compare no pictures: fonts differ from machine to machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
SIZES = {"right": (900, 345), "wrong": (900, 545)}
"""Width and height of each picture, in pixels."""


def main() -> int:
    """Follow the tutorial and photograph its pages."""
    sys.path.insert(0, str(ROOT / "tests"))
    from chromium import find
    from page_blocks import follow

    browser = find()
    if browser is None:
        print("error: no Chromium is installed; name one in TIPCHAIN_CHROMIUM", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        follow(ROOT / "docs" / "tutorial.md", folder)
        for page, (width, height) in SIZES.items():
            picture = PICTURES / f"{page}.png"
            subprocess.run(
                [
                    browser,
                    "--headless",
                    "--no-sandbox",
                    "--hide-scrollbars",
                    f"--window-size={width},{height}",
                    f"--screenshot={picture}",
                    f"file://{folder}/{page}.html",
                ],
                check=True,
                stderr=subprocess.DEVNULL,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
