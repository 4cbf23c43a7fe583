"""A pair of the fourth zoo, what its files need to convert weights, and what a fault is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zoo.third import planting
from zoo.third.planting import Edits, ThirdPair

NETS = Path(__file__).parent / "nets"
FAMILIES = (
    "retina",
    "deeplab",
    "crnn",
    "tts",
    "pix2pix",
    "din",
    "diffusion",
    "vitrel",
    "retention",
    "vae",
    "arcface",
    "stereo",
)


def pair(family: str, **how: Any) -> ThirdPair:
    """Make a pair of a family, as `zoo.third.planting.pair` does."""
    return planting.pair(family, nets=NETS, **how)


def named_for_paddle(
    values: Mapping[str, np.ndarray], *, kept: Sequence[str] = (), renames: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """Return a state of torch with the names and shapes of Paddle.

    Args:
        values: the state.
        kept: parts of the names of matrices that are not transposed (embeddings, recurrent weights).
        renames: parts of names, and what the port calls them.
    """
    named = {}
    for name, value in values.items():
        if name.endswith("num_batches_tracked"):
            continue
        turned = value.ndim == 2 and name.endswith("weight") and not any(part in name for part in kept)
        title = name
        for old, new in ({"running_mean": "_mean", "running_var": "_variance"} | dict(renames or {})).items():
            title = title.replace(old, new)
        named[title] = value.T if turned else value
    return named


PARTS = ("layer", "code", "values", "training", "loss", "optimizer", "scheduler", "data", "metric")
"""Settings of layers, code between them, what they hold, what training does, and what is around the model."""
PLACED = ("layer", "code", "values", "training")
KINDS = ("default", "copied line", "setting", "order", "layout", "left out", "formula", "weights")
"""How it comes about: the other framework's default, a line copied, a setting mistaken or not passed on, things in another
order, axes mixed up, a step that is not there, another formula, weights that are converted wrongly."""


@dataclass(frozen=True, kw_only=True)
class FourthFault:
    """A port with one mistake.

    Attributes:
        id: the family, and what is wrong.
        part: one of `PARTS`.
        kind: one of `KINDS`.
        edits: what reads otherwise in the port.
        where: the port's layers that may be named, "" is the model; empty if it is not in a layer.
        says: patterns that all are in the text of a cause that names it: what is wrong, in whatever words.
        how: how the pair is run.
    """

    id: str
    part: str
    kind: str
    edits: Edits
    where: Sequence[str] = ()
    says: Sequence[str] = ()
    how: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, part: str, kind: str, name: str, where: str, says: Any, *edits: tuple[str, str], **how: Any
    ) -> FourthFault:
        """Make a fault; ``where`` holds the paths apart by spaces, a dot is the model."""
        paths = tuple("" if one == "." else one for one in where.split())
        patterns = (says,) if isinstance(says, str) else says
        return cls(id=name, part=part, kind=kind, edits=edits, where=paths, says=patterns, how=how)

    @property
    def family(self) -> str:
        """The net."""
        return self.id.split("-")[0]

    def is_named(self, cause: Any) -> bool:
        """Return whether a cause says what is wrong. An unknown cause does not, and names of files are no words."""
        if cause is None or str(cause.code) == "unknown":
            return False
        text = " ".join(str(part or "") for part in (cause.code, cause.message, cause.fix))
        text = re.sub(r"(fourth|fifth)_\w+\.py(:\d+)?", "", text)
        return all(re.search(pattern, text, re.IGNORECASE) for pattern in self.says)
