"""Build the wheel and the sdist, and try the wheel in an empty environment of each Python.

    python tools/check_package.py PYTHON [PYTHON ...] [--extras]      e.g. python3.10 python3.13

What is tried is what a user does first: the version, the doctor, a plan and a check of a shipped parameter file, a
comparison of two dumps, from a folder that is not the project's. With ``--extras``, pip also resolves each extra
(``--dry-run``: nothing of it is fetched but metadata). A package index is needed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARAMS = "test_tipc/configs/alexnet/train_infer_python.txt"
DUMPS = """
import numpy
numpy.save("torch.npy", {"logits": numpy.ones((2, 3), dtype="float32")}, allow_pickle=True)
numpy.save("paddle.npy", {"logits": numpy.ones((2, 3), dtype="float32")}, allow_pickle=True)
"""
EXTRAS = """
from importlib.metadata import metadata
print(*metadata("tipchain").get_all("Provides-Extra"))
"""


def build(folder: Path) -> tuple[Path, Path]:
    """Return the wheel, built from the sdist, and the sdist."""
    sdist = "import os, sys; os.chdir(sys.argv[1]); from hatchling.build import build_sdist; build_sdist(sys.argv[2])"
    tools = folder / "build"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    python = tools / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "hatchling>=1.27"], check=True)
    subprocess.run([python, "-c", sdist, ROOT, folder], check=True)
    archive = next(folder.glob("*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    source = next((folder / "unpacked").iterdir())
    pip = [python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", folder, source], check=True)
    return next(folder.glob("*.whl")), archive


def modules(archive: Path) -> set[str]:
    """Return the package's files in a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            return {name for name in file.namelist() if name.startswith("tipchain/")}
    with tarfile.open(archive) as tar:
        names = (one.name.partition("/")[2] for one in tar.getmembers() if one.isfile())
        return {name for name in names if name.startswith("tipchain/")}


def try_wheel(python: str, wheel: Path, folder: Path, *, extras: bool) -> None:
    """Install a wheel into an empty environment, run what a user runs first, and resolve its extras if asked to."""
    environment, elsewhere = folder / f"env-{Path(python).name}", folder / "elsewhere"
    subprocess.run([python, "-m", "venv", "--clear", environment], check=True)
    elsewhere.mkdir(exist_ok=True)
    inside = environment / "bin"
    subprocess.run([inside / "python", "-m", "pip", "install", "-q", wheel], check=True)
    subprocess.run([inside / "python", "-m", "pip", "check"], check=True)
    subprocess.run([inside / "python", "-c", DUMPS], cwd=elsewhere, check=True)
    for words in (
        ("--version",),
        ("doctor",),
        ("plan", ROOT / PARAMS, "lite_train_lite_infer"),
        ("lint", ROOT / PARAMS),
        ("diff", "torch.npy", "paddle.npy"),
    ):
        subprocess.run([inside / "tipchain", *words], cwd=elsewhere, check=True, stdout=subprocess.DEVNULL)
    if not extras:
        return
    told = subprocess.run([inside / "python", "-c", EXTRAS], check=True, capture_output=True, text=True, cwd=elsewhere)
    for extra in told.stdout.split():
        pip = [inside / "python", "-m", "pip", "install", "-q", "--dry-run"]
        subprocess.run([*pip, f"{wheel}[{extra}]"], check=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Build once, then try each Python; the first thing that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--extras", action="store_true", help="resolve each extra, too")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = build(folder)
        if modules(wheel) != modules(sdist):
            print(f"wheel and sdist differ: {sorted(modules(wheel) ^ modules(sdist))}", file=sys.stderr)
            return 1
        for python in args.pythons:
            try_wheel(python, wheel, folder, extras=args.extras)
            print(f"{python}: {wheel.name} installs and works")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
