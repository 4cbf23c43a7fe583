"""How far a loss curve may be from the reference's, measured on the reference itself.

    python -m tipchain.parity.envelope REFERENCE.log PORT.log --losses REGEX [--runs NUDGED.log ...] [--factor F]

holds losses that two trainings printed against each other step by step. The runs are the reference's, started a few units
in the last place away; how far they drift apart is the envelope. A printed loss is known to half a unit of its last digit
only, so two of them may be a whole unit apart whatever the envelope is. Exit code 0 where the port stays inside, 1 where it
leaves it, 2 where there is nothing to compare.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tipchain.errors import InputError
from tipchain.framework_types import Array

# Runs of the reference whose initial parameters are a few units in the last place apart show how rounding alone grows while
# a model trains. The largest ``|difference|`` of their losses from the unperturbed run's, up to and with each step, is
# the envelope; a port's losses stay within a few times it, those of a wrong port soon do not.
#
# Rounding does not only grow: now and then it carries a value over the kink of a ReLU, and the losses jump by ten or twenty
# times what they were apart. Runs that start one unit apart meet such a kink too rarely for three of them to tell (of six
# correct MobileNetV3 pairs, two left such an envelope by 8 and 20 times); from 16 units, each coin turned both ways, they
# meet as many as a port whose every operation rounds otherwise.


FACTOR = 10.0
"""How many times the envelope a port may be away, where the case does not say."""
FLOOR_ULPS = 8
"""The envelope is never less than these units in the last place of a float32 loss."""
BLUNT = 0.1
"""A step whose allowance is above this share of the largest loss tells nothing: rounding alone reaches that far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A port's losses beside the reference's.

    Attributes:
        differences: ``|port - reference|`` step by step.
        bounds: the envelope with its floor, before the factor.
        ratios: differences by bounds; infinite where a loss is not finite on one side only.
        told: steps that the envelope says something about, from the first on.
        outside: the first of them whose ratio is above the factor, or the first of all where the port alone is not finite.
    """

    differences: Array
    bounds: Array
    ratios: Array
    told: int
    outside: int | None

    @property
    def worst(self) -> int:
        """The step with the largest ratio, of those that tell something and the one outside."""
        return int(np.argmax(self.ratios[: max(self.told, 1 + (self.outside or 0))]))


def compare_curves(reference: Array, port: Array, runs: Array, factor: float) -> Curve:
    """Hold a port's losses against the reference's.

    Args:
        reference: losses of the unperturbed run, ``[steps]``, all finite.
        port: the port's, ``[steps]``.
        runs: losses of the perturbed runs, ``[runs, steps]``; of none the envelope is the least one.
        factor: how many times the bounds a loss may be away.
    """
    left, right = np.asarray(reference, np.float64), np.asarray(port, np.float64)
    # What is not finite where the reference is has left all bounds.
    drifts, apart = (
        np.nan_to_num(np.abs(one - left), nan=np.inf, posinf=np.inf) for one in (np.asarray(runs, np.float64), right)
    )
    floor = FLOOR_ULPS * np.finfo(np.float32).eps * np.abs(left)
    limits = np.maximum(np.maximum.accumulate(drifts.max(axis=0, initial=0.0)), floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(apart > 0, apart / limits, 0.0)
    ratios = np.where(np.isinf(apart), np.inf, ratios)
    blunt = ~(factor * limits <= BLUNT * np.abs(left).max())
    told = int(np.argmax(blunt)) if blunt.any() else len(left)
    # Rounding takes no run of the reference there, however far apart they are.
    lost = ~np.isfinite(right) & np.isfinite(np.asarray(runs, np.float64)).all(axis=0)
    beyond = ~(ratios <= factor) & (np.arange(len(left)) < told) | lost
    return Curve(
        differences=apart,
        bounds=limits,
        ratios=ratios,
        told=told,
        outside=int(np.argmax(beyond)) if beyond.any() else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The losses of a log.

    Attributes:
        values: float64 ``[steps]``.
        unit: one in the last digit that was printed, of the coarsest of them.
    """

    values: Array
    unit: float


def read_losses(text: str, pattern: str, name: str = "the log", first: int | None = None) -> Losses:
    """Return the losses that ``pattern``'s first group finds in the lines of a log, the ``first`` of them or all.

    Raises:
        InputError: there are none.
    """
    found = [match[1] for match in map(re.compile(pattern).search, text.splitlines()) if match][:first]
    if not found:
        raise InputError(f"{name}: no line has a loss like {pattern!r}")
    units = [0.0]
    for digits, _, exponent in (text.lower().partition("e") for text in found if np.isfinite(float(text))):
        units.append(10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])))
    return Losses(values=np.array([float(text) for text in found]), unit=max(units))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the logs of a command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("reference", type=Path)
    parser.add_argument("port", type=Path)
    parser.add_argument("--losses", required=True, metavar="REGEX", help="the first group is the loss")
    parser.add_argument("--runs", nargs="*", type=Path, default=[])
    parser.add_argument("--first", type=int, help="number of losses to compare, from the first")
    parser.add_argument("--factor", type=float, default=FACTOR)
    args = parser.parse_args(argv)
    try:
        first, port, *runs = logs = [
            read_losses(path.read_text(encoding="utf-8", errors="replace"), args.losses, str(path), args.first)
            for path in (args.reference, args.port, *args.runs)
        ]
    except (InputError, OSError) as error:
        print(f"nothing can be compared: {error}")
        return 2
    steps = len(first.values)
    lacking = [f"{len(one.values)} losses beside {steps}" for one in logs if len(one.values) != steps]
    lacking += [] if np.isfinite(first.values).all() else ["the reference's losses are not finite"]
    if lacking:
        print(f"nothing can be compared: {lacking[0]}")
        return 2
    drifts = np.array([one.values for one in runs] or [first.values])
    curve = compare_curves(first.values, port.values, drifts, args.factor)
    allowed = args.factor * curve.bounds + max(one.unit for one in logs) * (1 + 1e-9)
    # A step is outside where its part of what is allowed is above 1; where the envelope tells nothing, none is.
    parts = np.where(np.arange(steps) < curve.told, curve.differences / allowed, 0.0)
    parts = np.where(np.isfinite(port.values), parts, np.inf)
    worst = int(np.nanargmax(curve.differences))
    print(f"steps: {steps}")
    print(f"largest_difference: {curve.differences[worst]:.6g} (step {worst + 1})")
    print(f"difference_ratio: {parts.max():.6g} (step {int(parts.argmax()) + 1}; of what rounding explains)")
    if curve.told < steps:
        print(f"note: from step {curve.told + 1} on rounding alone moves the loss by a tenth of itself")
    if curve.told == 0:
        print("nothing can be compared: rounding alone moves the first loss by a tenth of itself")
        return 2
    if parts.max() > 1:
        step = int(np.argmax(parts > 1))
        print(
            f"losses failed: step {step + 1} has {port.values[step]:.8g} instead of {first.values[step]:.8g}, "
            f"{parts[step]:.3g} times what rounding explains"
        )
        return 1
    which = "all" if curve.told == steps else f"the first {curve.told} of"
    print(f"losses passed: {which} {steps} steps stay within {args.factor:g} times the envelope")
    return 0


if __name__ == "__main__":
    sys.exit(main())
