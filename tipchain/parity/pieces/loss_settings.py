"""Hypotheses about two losses by recognizing both: one setting that differs, or another loss altogether."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.pieces.loss_formulas import Recognized, recognize
from tipchain.parity.pieces.loss_problem import Evaluated, Guess, Problem
from tipchain.parity.rounding import CONSTANT, REMAINDER

Array = npt.NDArray[Any]
CODES: Mapping[str, str] = {
    "axis": "axis", "ignored": "ignore-index", "weights": "class-weights", "pos_weight": "pos-weight", "beta": "beta",
    "smoothing": "label-smoothing", "form": "weight-form", "gamma": "focal-gamma", "gamma_neg": "focal-gamma", "alpha": "focal-alpha", "alphas": "focal-alpha",
}  # fmt: skip
"""What is told first where several differ: an ignored class changes the mean's divisor too."""
FIXES: Mapping[str, str] = {
    "axis": "take softmax over axis {0}, that of the classes", "weights": "pass the reference's weight=", "pos_weight": "pass pos_weight={0:.5g}",
    "beta": "pass beta={0:.5g} (delta=; Paddle's smooth_l1_loss is beta times as large as torch's)",
    "smoothing": "pass label_smoothing={0:.5g}", "gamma": "pass gamma={0:.5g}", "gamma_neg": "pass gamma={0:.5g} for negative labels", "alpha": "pass alpha={0:.5g}",
    "alphas": "pass the reference's alpha of each class",
    "form": "weigh each class's term before they are summed: -(weight * soft * log_softmax(x)).sum(1), over the sum of the labels' weights",
}  # fmt: skip


FOCAL = (
    {"cross entropy of logits", "focal cross entropy"},
    {"binary cross entropy of logits", "binary focal loss"},
)
"""Families of which the second is the first with a focus."""


def settings(problem: Problem) -> Iterator[Guess]:
    """Yield the setting of a usual loss that differs, for each output with each array of labels."""
    for number, output in enumerate(problem.outputs):
        one, other = problem.expected.gradients[number], problem.actual.gradients[number]
        if not output.ndim or output.dtype.kind != "f" or not one.any() or not other.any():
            continue
        given = output.astype(np.float64)
        for labels in problem.targets:
            for ours in _recognized(problem.expected, given, labels, one):
                for theirs in _recognized(problem.actual, given, labels, other):
                    guess = _guess(problem, number, ours, theirs)
                    if guess is not None:
                        yield guess


def _recognized(loss: Evaluated, output: Array, labels: Array, gradient: Array) -> list[Recognized]:
    """Return the formulas that give a side's gradient and its value too."""
    single = len(loss.gradients) == 1
    return [
        one for one in recognize(output, labels, gradient)
        if not single or abs(one.value - loss.value) <= REMAINDER * abs(loss.value)
    ]  # fmt: skip


def _guess(problem: Problem, number: int, ours: Recognized, theirs: Recognized) -> Guess | None:
    gradients = list(problem.expected.gradients)
    gradients[number] = theirs.gradient
    single = len(gradients) == 1
    found = Evaluated(value=theirs.value if single else problem.actual.value, gradients=tuple(gradients))

    def made(code: str, message: str, fix: str) -> Guess:
        evidence = f"both losses are recognized ({ours.family}; {theirs.family}), and the reference's with this change is the port's"
        return Guess(
            code=code, message=message, fix=fix, evidence=evidence, found=found, gradient_only=not single
        )

    if ours.family != theirs.family:
        return made(*_other_family(ours, theirs))
    for knob, code in CODES.items():
        if _differs(ours.knobs.get(knob), theirs.knobs.get(knob)):
            return made(
                code, _words(knob, ours.knobs[knob], theirs.knobs[knob]), _fix(knob, ours.knobs[knob])
            )
    weighted = ours.knobs.get("weights")
    if weighted and abs(theirs.knobs["scale"] - ours.knobs["scale"]) > REMAINDER:
        words = (
            f"both losses weigh classes alike, but the port's mean is {theirs.knobs['scale'] / ours.knobs['scale']:.6g} times "
            "the reference's: one divides by the sum of the weights, the other by the number of samples"
        )
        return made("reduction", words, "divide by the sum of the weights, as reduction='mean' does")
    sizes = theirs.knobs["scale"], ours.knobs["scale"]
    if (
        ours.family.endswith(("focal cross entropy", "focal loss"))
        and max(map(abs, sizes)) <= 1 + REMAINDER
        and abs(sizes[0] - sizes[1]) > REMAINDER
    ):
        # A mean of samples times a factor of at most 1, as alpha is; whole multiples are other reductions.
        return made("focal-alpha", f"the port's focal loss has a factor (alpha) of {sizes[0]:.5g}, the reference's of {sizes[1]:.5g}",
                    f"pass alpha={sizes[1]:.5g}")  # fmt: skip
    beta, scales = ours.knobs.get("beta"), (ours.knobs["scale"], theirs.knobs["scale"])
    if beta and abs(scales[1] / scales[0] / beta - 1) < REMAINDER and abs(beta - 1) > REMAINDER:
        words = f"the port's loss is Huber's, {beta:.6g} times the reference's smooth L1: beta times as large"
        return made("beta", words, f"divide Paddle's smooth_l1_loss by delta ({beta:.6g})")
    return None


def _other_family(ours: Recognized, theirs: Recognized) -> tuple[str, str, str]:
    """Return slug, words and fix of losses of different families."""
    if {ours.family, theirs.family} in FOCAL:
        expected, actual = (one.knobs.get("gamma", 0.0) for one in (ours, theirs))
        words = (
            f"the port's gamma is {actual:.5g}, the reference's {expected:.5g} (0 is a plain cross entropy)"
        )
        return "focal-gamma", words, f"pass gamma={expected:.5g}"
    words = f"the port's loss is {theirs.family}, the reference's {ours.family}"
    return _family_code(ours.family, theirs.family), words, f"use the loss of the reference: {ours.family}"


def _fix(knob: str, expected: Any) -> str:
    if knob == "ignored":
        return (
            f"pass ignore_index={expected[0]}"
            if len(expected) == 1
            else "ignore the labels that the reference ignores"
        )
    return FIXES[knob].format(expected)


def _family_code(expected: str, actual: str) -> str:
    if actual == f"reversed {expected}" or expected == f"reversed {actual}":
        return "kl-direction"
    one, other = (family.removeprefix("reversed ").partition(" of ")[0] for family in (expected, actual))
    return "logits" if one == other else "loss-type"


def _differs(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        # Labels that one side ignores have no weight there.
        return any(_differs(one.get(key, 1.0), other.get(key, 1.0)) for key in {*one, *other})
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) > max(REMAINDER * max(abs(one), abs(other)), CONSTANT)
    return bool(one != other)


def _words(knob: str, expected: Any, actual: Any) -> str:
    match knob:
        case "axis":
            return f"the port takes softmax over axis {actual}, the reference over axis {expected}"
        case "ignored":
            said = [f"{', '.join(map(str, one))}" if one else "none" for one in (actual, expected)]
            return f"the port ignores samples of label {said[0]}, the reference of {said[1]}"
        case "form":
            forms = {"": "alike", "terms": "each class's term", "samples": "each sample's whole loss"}
            return f"the port's weights multiply {forms[actual]}, the reference's {forms[expected]}: with soft or smoothed labels these differ"
        case "alphas":
            return f"the port's alpha is, by class, {_weights(actual)}, the reference's {_weights(expected)} (means are 1)"
        case "weights":
            return f"the port weighs classes {_weights(actual)}, the reference {_weights(expected)} (means are 1)"
        case _:
            name = {
                "smoothing": "label smoothing",
                "gamma_neg": "gamma of negative labels",
                "pos_weight": "weight of positive labels",
            }.get(knob, knob)
            return f"the port's {name} is {actual:.5g}, the reference's {expected:.5g}"


def _weights(weights: Mapping[int, float]) -> str:
    if not weights:
        return "equally"
    shown = list(weights.items())[:6]
    return ", ".join(f"{label}: {one:.4g}" for label, one in shown) + (
        ", …" if len(weights) > len(shown) else ""
    )
