"""Why two losses differ, read off their gradients with respect to the outputs.

A sum in place of a mean scales the gradient by the number of samples, class weights scale each sample's part by a
factor of its own, an ignored sample's part is zero, smoothed targets shift every class but one by the same amount.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tipchain.parity.fake_inputs import softmax
from tipchain.parity.rounding import ROUGH

Array = Any
Pair = tuple[Array, Array]
FLOOR = 64.0
"""Paddle's softmax takes logits more than this below the largest for this much below."""


def explain_loss(expected: float, actual: float, gradients: Sequence[Pair], spread: float) -> str:
    """Return what the differing losses suggest, or "".

    Args:
        expected: the reference's loss.
        actual: the port's.
        gradients: for each output the reference's gradient and the port's, of one shape each.
        spread: largest minus smallest output of the reference.
    """
    pairs = [
        (e.astype(np.float64), a.astype(np.float64)) for e, a in gradients if e.shape == a.shape and e.size
    ]
    if not pairs or not all(np.isfinite(one).all() for pair in pairs for one in pair):
        return ""
    if all(_equal(e, a) for e, a in pairs):
        return _explain_value(expected, actual, spread)
    if len(pairs) > 1 or pairs[0][0].ndim < 2:
        return _explain_factor(pairs) or _explain_direction(pairs)
    e, a = (np.moveaxis(one, 1, -1).reshape(-1, one.shape[1]) for one in pairs[0])
    return (
        _explain_ignored(e, a)
        or _explain_factor(pairs)
        or _explain_weights(e, a)
        or _explain_smoothing(e, a)
        or _explain_softmax(e, a)
        or _explain_direction(pairs)
    )


def _equal(expected: Array, actual: Array) -> bool:
    return bool(np.abs(expected - actual).max() <= ROUGH * max(_rms(expected), 1e-30))


def _explain_value(expected: float, actual: float, spread: float) -> str:
    said = f"the gradients agree, so only a constant differs (by {actual - expected:.6g})"
    if spread > FLOOR:
        said += (
            f"; outputs lie {spread:.3g} apart, and Paddle's softmax clips outputs at 64 below the largest; "
            "tipchain.pairs.paddle_losses does not"
        )
    return said


def _explain_ignored(expected: Array, actual: Array) -> str:
    """Name samples whose gradient is zero on one side only."""
    zero = [np.abs(one).max(axis=1) <= 1e-6 * np.abs(one).max() for one in (expected, actual)]
    if any(rows.all() for rows in zero):
        return ""
    sides = (("port", zero[0] & ~zero[1]), ("reference", zero[1] & ~zero[0]))
    said = [
        f"samples {_listed(np.flatnonzero(rows))} count in the {side} only"
        for side, rows in sides
        if rows.any()
    ]
    return f"{' and '.join(said)}: is it another ignore_index?" if said else ""


def _explain_factor(pairs: Sequence[Pair]) -> str:
    """Name a factor that all gradients have in common."""
    e, a = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    factor = _factor(e, a)
    if factor is None or abs(factor - 1) <= ROUGH:
        return ""
    said = f"the port's gradient is {factor:.6g} times the reference's"
    shape = pairs[0][0].shape
    samples, places = shape[0], pairs[0][0].size // (shape[1] if len(shape) > 1 else 1)
    for count, what in ((samples, "samples"), (places, "places"), (pairs[0][0].size, "elements")):
        if count > 1 and abs(factor / count - 1) <= ROUGH:
            return f"{said}, the number of {what}: a sum in place of a mean?"
        if count > 1 and abs(factor * count - 1) <= ROUGH:
            return f"{said}, one over the number of {what}: a mean in place of a sum?"
    if len(shape) > 1 and shape[1] > 1 and abs(factor * shape[1] - 1) <= ROUGH:
        return f"{said}, one over the number of classes: a mean over elements in place of samples?"
    return said


def _explain_weights(expected: Array, actual: Array) -> str:
    """Name factors that each sample has for itself."""
    factors = [_factor(e, a) for e, a in zip(expected, actual, strict=True) if np.abs(e).max() > 0]
    found = [factor for factor in factors if factor is not None]
    if len(found) < 2 or len(found) < len(factors):
        return ""
    return (
        f"each sample's gradient has a factor of its own, {min(found):.4g} to {max(found):.4g}: "
        "do class weights differ?"
    )


def _explain_smoothing(expected: Array, actual: Array) -> str:
    """Name targets that are smoothed more or less: in every sample all classes but one are shifted alike."""
    count, classes = expected.shape
    shift = actual - expected
    usual = np.median(shift, axis=1)
    others = np.abs(shift - usual[:, None]) > ROUGH * np.abs(shift).max()
    more = -usual * classes * count
    if classes < 3 or not (others.sum(axis=1) == 1).all() or np.ptp(more) > ROUGH * np.abs(more).max():
        return ""
    return f"the port smooths targets by {more.mean():+.4g}: does label_smoothing differ?"


def _explain_softmax(expected: Array, actual: Array) -> str:
    """Recognize a port that hands softmax's output to a loss that takes logits."""
    count = len(expected)
    targets = np.eye(expected.shape[1])[expected.argmin(axis=1)]
    chances = expected * count + targets
    if chances.min() < -ROUGH or np.abs(chances.sum(axis=1) - 1).max() > ROUGH:
        return ""
    outer = (softmax(chances) - targets) / count
    twice = chances * (outer - (outer * chances).sum(axis=1, keepdims=True))
    return "softmax is applied twice: the loss takes logits" if _equal(twice, actual) else ""


def _explain_direction(pairs: Sequence[Pair]) -> str:
    e, a = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    sizes = np.linalg.norm(e) * np.linalg.norm(a)
    if not sizes > 0:
        return "the port's gradient is zero" if np.linalg.norm(e) > 0 else ""
    return (
        f"the gradients point elsewhere (cosine {float(e @ a) / sizes:.4f}, "
        f"size {np.linalg.norm(a) / np.linalg.norm(e):.4g} times the reference's)"
    )


def _factor(expected: Array, actual: Array) -> float | None:
    """Return f with ``actual = f * expected``, or None where there is none."""
    square = float(expected @ expected)
    if not square > 0:
        return None
    factor = float(expected @ actual) / square
    rest = np.linalg.norm(actual - factor * expected)
    return factor if factor and rest <= ROUGH * np.linalg.norm(actual) else None


def _rms(array: Array) -> float:
    return float(np.sqrt(np.mean(array**2)))


def _listed(numbers: Array) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
