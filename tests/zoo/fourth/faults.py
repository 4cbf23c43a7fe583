"""The faults of the fourth zoo, planted."""

from __future__ import annotations

from typing import Any

from zoo.fourth.around_faults import AROUND
from zoo.fourth.model_faults import MODELS
from zoo.fourth.planting import PARTS, PLACED, FourthFault, pair
from zoo.third.planting import ThirdPair

__all__ = ["FOURTH_FAULTS", "PARTS", "PLACED", "planted", "sound"]

FOURTH_FAULTS = (*MODELS, *AROUND)


def planted(fault: FourthFault, *, double: bool = False) -> ThirdPair:
    """Return the pair whose port has the fault."""
    loose = fault.kind == "weights"
    return pair(fault.family, port_edits=fault.edits, double=double, strict=not loose, **_run(fault))


def sound(fault: FourthFault) -> ThirdPair:
    """Return the fault's pair without it, in float64."""
    return pair(fault.family, double=True, **_run(fault))


def _run(fault: FourthFault) -> dict[str, Any]:
    """Return how a fault's pair is run: a recurrent layer of Paddle's has gradients in train mode alone."""
    needed = {
        "training": fault.part == "training" or fault.family == "crnn",
        "updates": fault.part in ("optimizer", "scheduler"),
        "data": fault.part == "data",
        "metrics": fault.part == "metric",
    }
    return needed | dict(fault.how)
