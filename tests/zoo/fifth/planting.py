"""A pair of the fifth zoo, and what its faults are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.third import planting
from zoo.third.planting import ThirdPair

NETS = Path(__file__).parent / "nets"
FAMILIES = ("efficient", "bert", "translate", "fcos", "gan", "dlrm")
PARTS = ("layer", "code", "values", "training", "loss", "optimizer", "scheduler", "data", "metric", "step")
PLACED = PARTS[:4]


def pair(family: str, **how: Any) -> ThirdPair:
    """Make a pair of a family, as `zoo.third.planting.pair` does."""
    return planting.pair(family, nets=NETS, **how)
