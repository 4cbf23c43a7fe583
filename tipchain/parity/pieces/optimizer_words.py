"""Knobs of optimizers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tipchain.parity.pieces.formulas import Formula

CODES: Mapping[str, str] = {
    "lr": "learning-rate", "decay": "weight-decay", "form": "weight-decay-form", "momentum": "momentum",
    "dampening": "dampening", "first": "momentum-start", "nesterov": "nesterov", "rate_inside": "rate-inside-momentum",
    "beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon", "place": "epsilon-placement",
    "correction": "bias-correction", "amsgrad": "amsgrad", "centered": "centered", "initial": "initial-accumulator",
    "rate_decay": "learning-rate-decay", "kept": "accumulated-gradients", "scale": "gradient-scale", "maximize": "maximize",
    "clip": "gradient-clipping", "limit": "gradient-clipping", "frozen": "frozen-parameters",
    "algorithm": "optimizer-type",
}  # fmt: skip
PLACES = {
    "outside": "outside the root (sqrt(v) + eps)", "inside": "inside the root (sqrt(v + eps))",
    "unscaled": "beside the root of the uncorrected moment",
}  # fmt: skip
FORMS = {
    "l2": "coupled (L2, added to the gradient)",
    "l1": "L1 (its sign is added)",
    "decoupled": "decoupled (AdamW's)",
    "free": "decoupled and not multiplied by the learning rate",
}
CLIPS = {
    "": "no clipping",
    "value": "by value",
    "norm": "by each gradient's norm",
    "global": "by the global norm",
    "group": "by the global norm of each parameter group",
}


PLAIN: Mapping[str, str] = {
    "form": "the port's weight decay is {actual}, the reference's {expected}",
    "place": "the port adds epsilon {actual}, the reference {expected}",
    "clip": "the port's optimizer clips gradients: {actual}; the reference's: {expected}",
    "algorithm": "the port's updates are those of {actual}, the reference's of {expected}",
    "kept": "the port's gradients are cleared {actual}, the reference's {expected}: until then they add up",
    "scale": "the port's gradients are {actual:.6g} times those that it was given, the reference's {expected:.6g} times",
    "first": "the port's momentum starts as {actual}, the reference's as {expected}",
}
SWITCHES: Mapping[str, tuple[str, str]] = {
    "frozen": (
        "the port does not move what the reference trains",
        "the port trains what the reference has frozen",
    ),
    "maximize": (
        "the port's steps go uphill, the reference's downhill",
        "the port's steps go downhill, the reference's uphill",
    ),
    "correction": (
        "the port corrects the moments' bias, the reference does not",
        "the port does not correct the moments' bias, the reference does",
    ),
    "rate_inside": (
        "the port multiplies the learning rate in before the momentum, the reference after it: they differ once the rate changes",
        "the port multiplies the learning rate in after the momentum, the reference before it: they differ once the rate changes",
    ),
}
"""What is said of a knob that the port has on, and off."""
STARTS = {"gradient": "the first gradient", "zero": "zero, to which the dampened gradient is added"}
FIXES: Mapping[str, str] = {
    "lr": "give the port's optimizer learning_rate={} (parameters' own factors included)",
    "decay": "pass weight_decay={} for these parameters",
    "form": "use AdamW for decoupled decay, Adam with weight_decay for coupled, L1Decay only where the reference has it",
    "nesterov": "pass use_nesterov={}",
    "place": "take torch's formula (tipchain.pairs.paddle_optimizers has it), or accept the difference knowingly",
    "algorithm": "use the optimizer of the reference: {}",
    "frozen": "set stop_gradient of these parameters as the reference sets requires_grad, and hand the others to the optimizer",
    "maximize": "let steps go the way that the reference's go",
    "scale": "divide (or multiply) the gradients and the loss as the reference does",
    "kept": "clear the gradients after each step, as the reference does",
    "correction": "correct the moments' bias as the reference does",
    "initial": "pass initial_accumulator_value={}",
    "beta2": "pass beta2={} (rho of RMSProp and Adadelta)",
    "rate_inside": "take torch's formula (tipchain.pairs.paddle_optimizers has it), or keep the rate constant",
}
NAMES = {"initial": "initial accumulator value", "rate_decay": "learning-rate decay"}


def message_of(knob: str, expected: Any, actual: Any, form: str) -> str:
    """Return a sentence about a knob with both values; ``form`` is the port's form of weight decay."""
    knob = "clip" if knob == "limit" else knob
    if knob in SWITCHES:
        return SWITCHES[knob][0 if actual else 1]
    if knob in PLAIN:
        tables: Mapping[str, Mapping[str, str]] = {"form": FORMS, "place": PLACES, "first": STARTS}
        table = tables.get(knob, {})
        told = (_cleared(one) if knob == "kept" else table.get(one, one) for one in (actual, expected))
        return PLAIN[knob].format(**dict(zip(("actual", "expected"), told, strict=True)))
    if isinstance(actual, bool):
        return f"the port {'uses' if actual else 'does not use'} {knob}, the reference {'does' if expected else 'does not'}"
    if knob == "lr":
        factor = f", {actual / expected:.6g} times" if expected else ""
        return f"the port's learning rate is {actual:.6g}{factor} the reference's {expected:.6g}"
    if knob == "decay":
        kind = {"l1": " (L1)", "decoupled": " (decoupled)"}.get(form, "")
        return f"the port's weight decay is {actual:.6g}{kind}, the reference's {expected:.6g}"
    return f"the port's {NAMES.get(knob, knob)} is {actual:.6g}, the reference's {expected:.6g}"


def _cleared(steps: int) -> str:
    return {0: "never", 1: "after each step"}.get(steps, f"every {steps} steps")


CLIPPED: Mapping[str, str] = {
    "value": "pass grad_clip=paddle.nn.ClipGradByValue({:.6g})",
    "norm": "pass grad_clip=paddle.nn.ClipGradByNorm({:.6g})",
    "global": "pass grad_clip=paddle.nn.ClipGradByGlobalNorm({:.6g}), to an optimizer without parameter groups",
    "group": "pass grad_clip=paddle.nn.ClipGradByGlobalNorm({:.6g}) in each parameter group",
    "": "leave grad_clip out; if the reference clips in its training loop, tell it: clip=",
}
"""What to write by the reference's clipping."""


def fix_of(knob: str, reference: Formula) -> str:
    """Return what to write in the port, given what the reference does."""
    if knob in ("clip", "limit"):
        return CLIPPED[reference.clip].format(reference.limit)
    expected = getattr(reference, knob)
    shown = expected if not isinstance(expected, float) else float(f"{expected:.5g}")
    return FIXES.get(knob, f"pass {knob}={shown}").format(shown)
