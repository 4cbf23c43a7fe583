"""What gradients tell by themselves: parameters that get none, and factors."""

from __future__ import annotations

import numpy as np

from tipchain.parity.diagnose.hypotheses import name_number
from tipchain.parity.diagnose.outcomes import Outcome
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.findings import Diagnosis
from tipchain.parity.locate.differences import arrange, relative, rms
from tipchain.parity.rounding import CONSTANT, SAME_DOUBLE


def told_by_gradients(piece: Piece, outcome: Outcome) -> Diagnosis | None:
    """Return the cause where some parameters get no gradient, or all gradients are one multiple of the truth's."""
    truth = {name: one for name, one in piece.truth.gradients.items() if rms(one)}
    scale = max((rms(one) for one in truth.values()), default=0.0)
    truth = {name: one for name, one in truth.items() if rms(one) > SAME_DOUBLE * scale}
    missing, factors = [], {}
    for name, expected in truth.items():
        actual = outcome.gradients.get(name)
        if actual is None or not rms(actual):
            missing.append(name)
            continue
        axes = arrange(expected, actual)
        if axes is None:
            return None
        turned = expected.transpose(axes)
        factor = float(np.sum(turned * actual) / np.sum(turned * turned))
        if relative(turned * factor, actual) > CONSTANT:
            return None
        factors[name] = factor
    values = list(factors.values())
    if missing and all(abs(one - 1) < CONSTANT for one in values):
        if len(missing) == len(truth) or any(name.startswith("input ") for name in missing):
            return None  # the code tells where
        names = ", ".join(missing)
        return Diagnosis(
            code="stop-gradient", port_path=piece.paths[1], message=f"{piece.shown}: {names} gets no gradient, the reference's does",
            evidence=f"the other {len(values)} gradients are the reference's", explained=1.0,
            fix=f"let {names} of {piece.shown} be trained: set `stop_gradient = False`",
        )  # fmt: skip
    if not missing and values and max(values) - min(values) < CONSTANT and abs(values[0] - 1) > CONSTANT:
        told = name_number(values[0], ())
        return Diagnosis(
            code="scaled-gradient", port_path=piece.paths[1], message=f"{piece.shown}: its gradients are {told} times the reference's",
            evidence=f"one factor, {values[0]:.9g}, explains all {len(values)} gradients", explained=1.0,
            fix=f"remove what multiplies the gradient by {told} in the forward or backward of {piece.shown}",
        )  # fmt: skip
    return None
