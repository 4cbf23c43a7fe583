"""The data sets that are made here: what is in them, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tipchain.errors import UsageError
from tipchain.modes import DATA_SETS, DIGITS, MINI_UCF
from tipchain.prepare import digits, motions

SOURCE = "scikit-learn load_digits"
PARAMS: Mapping[str, str] = {
    DIGITS: "test_tipc/configs/alexnet/train_infer_python.txt",
    MINI_UCF: "test_tipc/configs/mvf/train_infer_python.txt",
}
"""A parameter file that uses the data set, by its name."""
KINDS = ("lite", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the folder of one kind of a data set is made.

    Attributes:
        facts: what the folder's manifest says about it.
        names: the files that it holds, besides the manifest.
        make: yields name and content of each of them, always the same.
        said: what there is in it, for messages.
        packed: whether an archive is kept beside the folder.
    """

    facts: Mapping[str, Any]
    names: frozenset[str]
    make: Callable[[], Iterator[tuple[str, bytes]]]
    said: str
    packed: bool = False


def recipe_of(data_set: str, kind: str) -> Recipe:
    """Return how the ``"lite"`` or ``"whole"`` data of a data set are made.

    Raises:
        UsageError: no such kind, or a data set that is not made here.
        DataError: scikit-learn is missing.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown data {kind!r}, expected one of: {', '.join(KINDS)}")
    if data_set not in PARAMS:
        raise UsageError(f"the data set {data_set!r} is not made here, only {', '.join(PARAMS)}")
    folder = DATA_SETS[data_set][kind]
    return (_digits if data_set == DIGITS else _motions)(kind, folder)


def way_out(folder: str) -> str:
    """Return the command that makes the data folder called ``folder``."""
    data_set, kind = next(
        ((name, kind) for name in PARAMS for kind, known in DATA_SETS[name].items() if known == folder),
        (DIGITS, "lite"),
    )
    return f"bash prepare.sh {PARAMS[data_set]} {kind}_train_{kind}_infer --data-only"


def _digits(kind: str, folder: str) -> Recipe:
    scans, labels = digits.load_scans()
    images = digits.choose(kind, labels)
    listing = f"{folder}.txt"

    def make() -> Iterator[tuple[str, bytes]]:
        for image in images:
            yield image.path, digits.encode_png(scans[image.number])
        yield listing, "".join(f"{image.path} {image.label}\n" for image in images).encode()

    facts = {
        "source": SOURCE,
        "kind": kind,
        "seed": digits.SEED,
        "image": "8x8 grayscale PNG, 0..16 scaled to 0..255",
        "train": sum(image.path.startswith("train/") for image in images),
        "val": sum(image.path.startswith("val/") for image in images),
    }
    names = frozenset({image.path for image in images} | {listing})
    return Recipe(facts=facts, names=names, make=make, said=f"{len(images)} images")


def _motions(kind: str, folder: str) -> Recipe:
    scans, _ = digits.load_scans()
    clips = motions.choose(kind)
    facts = {
        "source": SOURCE,
        "kind": kind,
        "seed": motions.SEED,
        "frame": f"{motions.SIDE}x{motions.SIDE} RGB JPEG of quality {motions.QUALITY}",
        "classes": list(motions.MOTIONS),
        "train": sum(clip.split == "train" for clip in clips),
        "val": sum(clip.split == "val" for clip in clips),
    }
    return Recipe(
        facts=facts,
        names=motions.file_names(kind, folder, len(scans)),
        make=lambda: motions.make_files(kind, folder, scans),
        said=f"{len(clips)} videos",
        packed=True,
    )
