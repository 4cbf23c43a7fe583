"""What a fault of the fourth zoo changes, and what is off in its equal pairs, in plain numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.fourth import faults as fourth
from zoo.fourth.planting import NETS, FourthFault
from zoo.third.plain import FLOAT32, SEEN, distances, measure
from zoo.third.planting import load

SINGLE = 1e-6
"""What constants that Paddle keeps in float32 amount to: a slope, a smoothing, rates."""


def fault_gaps(fault: FourthFault, of: Any = fourth, nets: Path = NETS) -> dict[str, float]:
    """Return what a fault of a list changes in float64, by name, beyond what its sound pair is off."""
    convert = load(f"{fault.family}_paddle", nets=nets).convert
    allowed = distances(*measure(of.sound(fault), convert, double=True))
    faulty = distances(*measure(of.planted(fault, double=True), convert, double=True))
    return {name: gap for name, gap in faulty.items() if gap > max(SEEN, 2 * allowed.get(name, 0))}


def clean_gaps(clean: Any, nets: Path = NETS) -> dict[str, float]:
    """Return what is off in an equal pair beyond rounding; a batch's variance is divided by n in Paddle, by n - 1 in torch."""
    convert = load(f"{clean.family}_paddle", clean.port_edits, nets).convert
    gaps = distances(*measure(clean.build(double=True), convert, double=True))
    return {
        name: gap
        for name, gap in gaps.items()
        if not name.endswith("._variance")
        and not gap <= (FLOAT32 if name.endswith("._mean") or name.startswith("sample") else SINGLE)
    }
