"""Hypotheses about two losses that differ: a factor, a term, a setting, other outputs or labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np

from tipchain.explain.causes.loss_formulas import Evaluated, Guess, Problem, Recognized, log_softmax, recognize
from tipchain.framework_types import Array, Setting
from tipchain.numbers.tolerance import CONSTANT, REMAINDER, SAME_DOUBLE, SAME_SINGLE

# Hypotheses about two losses by arithmetic alone: a factor, a term too much or too few.


BASES = {"2": log(2), "10": log(10)}
"""Logarithms to these bases instead of e."""


def factors(problem: Problem) -> Iterator[Guess]:
    """Yield the one factor between two losses, with what it may stand for."""
    one, other = (_flat(loss) for loss in (problem.expected, problem.actual))
    square = float(one @ one)
    factor = float(one @ other) / square if square else 0.0
    if not square and problem.expected.value:
        factor = problem.actual.value / problem.expected.value
    if not factor or abs(factor - 1) < SAME_DOUBLE:
        return
    code, words = _meaning(problem, factor)
    scaled = problem.expected.scaled(factor)
    if abs(problem.actual.value - problem.expected.value) <= SAME_SINGLE * abs(problem.expected.value):
        yield Guess(
            code="scaled-gradient",
            message=f"the port's loss has the reference's value, but {factor:.6g} times its gradient{words}",
            fix="look for what scales gradients alone: an argument (`norm_by_times`), a hook, a part that is detached",
            evidence="the reference's value with its gradient times this factor is the port's",
            found=replace(scaled, value=problem.expected.value),
        )
        return
    yield Guess(
        code=code,
        message=f"the port's loss is {factor:.6g} times the reference's{words}",
        fix=_reduction_fix(words) if code == "reduction" else f"multiply the port's loss by {1 / factor:.6g}",
        evidence="the reference's loss times this factor is the port's",
        found=scaled,
    )


def _reduction_fix(words: str) -> str:
    """Return what to do about another reduction; a mean over another number is divided by the reference's."""
    wanted = words.rpartition(" in place of ")[2]
    return (
        f"divide by the number of {wanted}, as the reference does"
        if words.startswith(": a mean over")
        else "use the reference's reduction"
    )


def _meaning(problem: Problem, factor: float) -> tuple[str, str]:
    """Return the slug of a factor, and what to say of it."""
    for meaning, code, words in _meanings(problem):
        if abs(factor / meaning - 1) < SAME_SINGLE:
            return code, words
    return "loss-scale", ""


def _meanings(problem: Problem) -> Iterator[tuple[float, str, str]]:
    """Yield factors that stand for something, with a slug and what to say."""
    yield -1.0, "sign", ": its sign is the other one"
    for base, size in BASES.items():
        yield 1 / size, "log-base", f": logarithms to base {base} in place of natural ones"
        yield size, "log-base", f": natural logarithms in place of those to base {base}"
    counts = {name: count for name, count in _counts(problem).items() if count > 1}
    for name, count in counts.items():
        yield count, "reduction", f", the number of {name}: a sum in place of a mean"
        yield 1 / count, "reduction", f", one over the number of {name}: a mean in place of a sum"
    for name, count in counts.items():
        for other, divisor in counts.items():
            if count > divisor:
                yield divisor / count, "reduction", f": a mean over {name} in place of {other}"
                yield count / divisor, "reduction", f": a mean over {other} in place of {name}"


def _counts(problem: Problem) -> dict[str, int]:
    """Return what losses are divided by."""
    shape = next((one.shape for one in problem.outputs if one.ndim), (1,))
    found = {"samples": shape[0], "elements": int(np.prod(shape))}
    if len(shape) > 1:
        found |= {"classes": shape[1], "entries of the last axis": shape[-1], "places": int(np.prod(shape)) // shape[1]}
    for labels in problem.targets[:1]:
        found["labels"] = labels.size
        if labels.dtype.kind in "iub":
            values, times = np.unique(labels, return_counts=True)
            classes = shape[1] if len(shape) > 1 else 0
            counted = sorted(zip(values, times, strict=True), key=lambda one: 0 <= one[0] < classes)
            # What is no class is left out on purpose; the number of a class is told last.
            found |= {f"labels other than {value}": labels.size - int(count) for value, count in counted}
            found["labels above 0"] = int((labels > 0).sum())
    return {name: int(count) for name, count in found.items()}


FUNCTIONS: Mapping[str, tuple[str, Callable[[float], float], Callable[[float], float]]] = {
    "missing-sqrt": ("is the square of the reference's: no root is taken", lambda x: x**2, lambda x: 2 * x),
    "extra-sqrt": ("is the root of the reference's", lambda x: x**0.5, lambda x: 0.5 * x**-0.5),
    "missing-log": ("is the exponential of the reference's: no logarithm is taken", exp, exp),
    "extra-log": ("is the logarithm of the reference's", log, lambda x: 1 / x),
    "one-minus": ("is 1 less the reference's", lambda x: 1 - x, lambda _: -1.0),
}
"""What one loss may be of the other: what is said of it, the function and its derivative."""


def functions(problem: Problem) -> Iterator[Guess]:
    """Yield a function of the whole reference's loss that the port's may be."""
    for code, (words, function, slope) in FUNCTIONS.items():
        with suppress(ValueError, ZeroDivisionError, OverflowError):
            value, factor = function(problem.expected.value), slope(problem.expected.value)
            if isinstance(value, float) and isinstance(factor, float):
                gradients = problem.expected.scaled(factor).gradients
                yield Guess(
                    code=code,
                    message=f"the port's loss {words}",
                    fix="take the same function of the mean as the reference does",
                    evidence="this function of the reference's loss is the port's",
                    found=Evaluated(value=value, gradients=gradients),
                )


def terms(problem: Problem) -> Iterator[Guess]:
    """Yield terms that one side has and the other lacks, and weights of outputs that differ."""
    yield from _constants(problem)
    yield from _weights_of_outputs(problem)
    for number, (output, one, other) in enumerate(
        zip(problem.outputs, problem.expected.gradients, problem.actual.gradients, strict=True)
    ):
        if output.dtype.kind == "f":
            yield from _penalties(problem, number, output.astype(np.float64), other - one)


def _constants(problem: Problem) -> Iterator[Guess]:
    """Yield a constant, or a gradient that is cut."""
    expected, actual = problem.expected, problem.actual
    gap = actual.value - expected.value
    if not _flat(actual).any() and _flat(expected).any():
        found = Evaluated(value=expected.value, gradients=tuple(np.zeros_like(one) for one in expected.gradients))
        alone = abs(gap) > SAME_SINGLE * abs(expected.value)
        yield Guess(
            code="cut-gradient",
            message="the port's loss has no gradient with respect to the outputs",
            fix="compute the loss from the output tensors themselves: no detach(), numpy() or stop_gradient",
            evidence="the reference's value without its gradient is the port's",
            found=found,
            gradient_only=alone,
        )
    if gap:
        more = "adds" if gap > 0 else "lacks"
        yield Guess(
            code="missing-term" if gap < 0 else "extra-term",
            message=f"the port's loss {more} {abs(gap):.6g} that does not depend on the outputs "
            "(a penalty on the parameters, an entropy of the labels)",
            fix=f"{'leave out' if gap > 0 else 'add'} the term",
            evidence="the reference's loss with this constant is the port's",
            found=Evaluated(value=actual.value, gradients=expected.gradients),
        )


def _weights_of_outputs(problem: Problem) -> Iterator[Guess]:
    """Yield the factor that each output's part of the loss has, where they are several."""
    pairs = list(zip(problem.expected.gradients, problem.actual.gradients, strict=True))
    if len(pairs) < 2:
        return
    found, words, codes = [], [], set()
    for number, (one, other) in enumerate(pairs):
        size = float((one * one).sum())
        factor = float((one * other).sum()) / size if size else 1.0
        if not size and other.any():
            yield from _lacking(problem, pairs)
            return
        found.append(one * factor)
        if abs(factor - 1) > SAME_SINGLE:
            codes.add("missing-term" if not factor else "term-weight")
            words.append(
                f"does not use output {number}" if not factor else f"weighs output {number} {factor:.6g} times as much"
            )
    if (
        words
        and "missing-term" in codes
        and abs(problem.actual.value - problem.expected.value) <= SAME_SINGLE * abs(problem.expected.value)
    ):
        yield Guess(
            code="cut-gradient",
            message=f"the port's loss has the reference's value, but its gradient {' and '.join(words)}",
            fix="compute this part from the output tensor itself: no detach(), numpy() or stop_gradient",
            evidence="the reference's value with the gradient of the other outputs is the port's",
            found=Evaluated(value=problem.expected.value, gradients=tuple(found)),
            gradient_only=True,
        )
    elif words:
        yield Guess(
            code="missing-term" if "missing-term" in codes else "term-weight",
            message=f"the port's loss {' and '.join(words)}",
            fix="weigh the outputs' losses as the reference does",
            evidence="the reference's gradient with these weights of outputs is the port's",
            found=Evaluated(value=problem.actual.value, gradients=tuple(found)),
            gradient_only=True,
        )


def _lacking(problem: Problem, pairs: list[tuple[Array, Array]]) -> Iterator[Guess]:
    """Yield an output that the port uses and the reference does not."""
    extra = [number for number, (one, other) in enumerate(pairs) if not one.any() and other.any()]
    if extra:
        gradients = tuple(other if number in extra else one for number, (one, other) in enumerate(pairs))
        yield Guess(
            code="extra-term",
            message=f"the port's loss uses output {extra[0]}, the reference's does not",
            fix="leave this output out of the loss",
            evidence="the other outputs' gradients are the reference's",
            found=Evaluated(value=problem.actual.value, gradients=gradients),
            gradient_only=True,
        )


def _penalties(problem: Problem, number: int, output: Array, gap: Array) -> Iterator[Guess]:
    """Yield usual terms in an output that make up the difference."""
    value_gap = problem.actual.value - problem.expected.value
    logs = log_softmax(output) if output.ndim > 1 else np.zeros_like(output)
    chances = np.exp(logs)
    centred = logs - (chances * logs).sum(axis=1, keepdims=True) if output.ndim > 1 else logs
    forms = [
        ("the squares of the outputs (L2)", output, 0.5 * float((output**2).sum())),
        ("the outputs' absolute values (L1)", np.sign(output), float(np.abs(output).sum())),
        ("the outputs themselves", np.ones_like(output), float(output.sum())),
        ("the negative entropy of softmax", chances * centred, float((chances * logs).sum())),
    ]
    for name, slope, height in forms:
        size = float((slope * slope).sum())
        share = float((slope * gap).sum()) / size if size else 0.0
        if not share or not value_gap:
            continue
        gradients = list(problem.expected.gradients)
        gradients[number] = gradients[number] + share * slope
        extra = share > 0
        yield Guess(
            code="extra-term" if extra else "missing-term",
            message=f"the port's loss {'adds' if extra else 'lacks'} a term in {name}, with a factor of {abs(share):.6g}",
            fix=f"{'leave out' if extra else 'add'} the term",
            evidence="the reference's loss with this term is the port's",
            found=Evaluated(value=problem.expected.value + share * height, gradients=tuple(gradients)),
        )


def _flat(loss: Evaluated) -> Array:
    return np.concatenate([one.reshape(-1) for one in loss.gradients] or [np.zeros(0)])


# Hypotheses about two losses by recognizing both: one setting that differs, or another loss altogether.


CODES: Mapping[str, str] = {
    "axis": "axis",
    "ignored": "ignore-index",
    "weights": "class-weights",
    "pos_weight": "pos-weight",
    "beta": "beta",
    "smoothing": "label-smoothing",
    "form": "weight-form",
    "gamma": "focal-gamma",
    "gamma_neg": "focal-gamma",
    "alpha": "focal-alpha",
    "alphas": "focal-alpha",
}
"""What is told first where several differ: an ignored class changes the mean's divisor too."""
FIXES: Mapping[str, str] = {
    "axis": "take softmax over axis {0}, that of the classes",
    "weights": "pass the reference's weight=",
    "pos_weight": "pass pos_weight={0:.5g}",
    "beta": "pass beta={0:.5g} (delta=; Paddle's smooth_l1_loss is beta times as large as torch's)",
    "smoothing": "pass label_smoothing={0:.5g}",
    "gamma": "pass gamma={0:.5g}",
    "gamma_neg": "pass gamma={0:.5g} for negative labels",
    "alpha": "pass alpha={0:.5g}",
    "alphas": "pass the reference's alpha of each class",
    "form": "weigh each class's term before they are summed: -(weight * soft * log_softmax(x)).sum(1), over the sum of the labels' weights",
}


FOCAL = ({"cross entropy of logits", "focal cross entropy"}, {"binary cross entropy of logits", "binary focal loss"})
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
        one
        for one in recognize(output, labels, gradient)
        if not single or abs(one.value - loss.value) <= REMAINDER * abs(loss.value)
    ]


def _guess(problem: Problem, number: int, ours: Recognized, theirs: Recognized) -> Guess | None:
    gradients = list(problem.expected.gradients)
    gradients[number] = theirs.gradient
    single = len(gradients) == 1
    found = Evaluated(value=theirs.value if single else problem.actual.value, gradients=tuple(gradients))

    def made(code: str, message: str, fix: str) -> Guess:
        evidence = f"both losses are recognized ({ours.family}; {theirs.family}), and the reference's with this change is the port's"
        return Guess(code=code, message=message, fix=fix, evidence=evidence, found=found, gradient_only=not single)

    if ours.family != theirs.family:
        return made(*_other_family(ours, theirs))
    for knob, code in CODES.items():
        if _differs(ours.knobs.get(knob), theirs.knobs.get(knob)):
            return made(code, _words(knob, ours.knobs[knob], theirs.knobs[knob]), _setting_fix(knob, ours.knobs[knob]))
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
        return made(
            "focal-alpha",
            f"the port's focal loss has a factor (alpha) of {sizes[0]:.5g}, the reference's of {sizes[1]:.5g}",
            f"pass alpha={sizes[1]:.5g}",
        )
    beta, scales = ours.knobs.get("beta"), (ours.knobs["scale"], theirs.knobs["scale"])
    if beta and abs(scales[1] / scales[0] / beta - 1) < REMAINDER and abs(beta - 1) > REMAINDER:
        words = f"the port's loss is Huber's, {beta:.6g} times the reference's smooth L1: beta times as large"
        return made("beta", words, f"divide Paddle's smooth_l1_loss by delta ({beta:.6g})")
    return None


def _other_family(ours: Recognized, theirs: Recognized) -> tuple[str, str, str]:
    """Return slug, words and fix of losses of different families."""
    if {ours.family, theirs.family} in FOCAL:
        expected, actual = (one.knobs.get("gamma", 0.0) for one in (ours, theirs))
        words = f"the port's gamma is {actual:.5g}, the reference's {expected:.5g} (0 is a plain cross entropy)"
        return "focal-gamma", words, f"pass gamma={expected:.5g}"
    words = f"the port's loss is {theirs.family}, the reference's {ours.family}"
    return _family_code(ours.family, theirs.family), words, f"use the loss of the reference: {ours.family}"


def _setting_fix(knob: str, expected: Setting) -> str:
    if knob == "ignored":
        return (
            f"pass ignore_index={expected[0]}" if len(expected) == 1 else "ignore the labels that the reference ignores"
        )
    return FIXES[knob].format(expected)


def _family_code(expected: str, actual: str) -> str:
    if actual == f"reversed {expected}" or expected == f"reversed {actual}":
        return "kl-direction"
    one, other = (family.removeprefix("reversed ").partition(" of ")[0] for family in (expected, actual))
    return "logits" if one == other else "loss-type"


def _differs(one: object, other: object) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        # Labels that one side ignores have no weight there.
        return any(_differs(one.get(key, 1.0), other.get(key, 1.0)) for key in {*one, *other})
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) > max(REMAINDER * max(abs(one), abs(other)), CONSTANT)
    return bool(one != other)


def _words(knob: str, expected: Setting, actual: Setting) -> str:
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
            return (
                f"the port's alpha is, by class, {_weights(actual)}, the reference's {_weights(expected)} (means are 1)"
            )
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
    return ", ".join(f"{label}: {one:.4g}" for label, one in shown) + (", …" if len(weights) > len(shown) else "")


# Hypotheses about two losses by running one of them on changed outputs or labels.


SCALES = np.logspace(-2, 2, 41)
"""Temperatures that are tried before the best is refined."""
WHO = ("reference", "port")


@dataclass(frozen=True, slots=True)
class _Step:
    """Something done to outputs before a loss: its name, the function, and its vector-Jacobian product."""

    name: str
    code: str
    apply: Callable[[Array], Array]
    back: Callable[[Array, Array], Array]


def reruns(problem: Problem) -> Iterator[Guess]:
    """Yield a step that one loss does and the other does not, other labels, ignored samples, a temperature."""
    yield from _steps(problem)
    yield from _labels(problem)
    yield from _ignored(problem)
    yield from _temperatures(problem)


def _steps(problem: Problem) -> Iterator[Guess]:
    axes = {1, max((one.ndim for one in problem.outputs), default=1) - 1, 0}
    known = [_Step("sigmoid", "sigmoid", _sigmoid, lambda x, g: g * _sigmoid(x) * (1 - _sigmoid(x)))]
    known += [_softmax_step(axis) for axis in sorted(axes, key=lambda one: (one != 1, one))]
    known += [_log_softmax_step(axis) for axis in sorted(axes, key=lambda one: (one != 1, one))]
    known.append(_Step("exp", "exp", np.exp, lambda x, g: g * np.exp(x)))
    known.append(_Step("log", "log", np.log, lambda x, g: g / x))
    for step in known:
        for side in (1, 0):
            found = _stepped(problem, step, 1 - side)
            if found is None:
                continue
            extra = side == 1
            code = f"{step.code}-twice" if extra else f"missing-{step.code}"
            what = "applies {} once more than the reference" if extra else "does not apply {}, the reference does"
            yield Guess(
                code=code,
                side=side,
                found=found,
                message=f"the port {what.format(f'{step.name} to the outputs')}",
                fix=f"{'leave out' if extra else 'apply'} {step.name} before the loss"
                + (": it takes logits" if extra and "log" not in step.code else ""),
                evidence=f"the {WHO[1 - side]}'s loss of {step.name}(outputs) is the {WHO[side]}'s",
            )


def _stepped(problem: Problem, step: _Step, side: int) -> Evaluated | None:
    """Return a side's loss of changed outputs, its gradients with respect to the unchanged ones."""
    used = [
        bool(one.any() or other.any())
        for one, other in zip(problem.expected.gradients, problem.actual.gradients, strict=True)
    ]
    with np.errstate(all="ignore"):
        try:
            moved = [
                step.apply(one.astype(np.float64)) if use else one
                for one, use in zip(problem.outputs, used, strict=True)
            ]
        except np.exceptions.AxisError:
            return None
        if not all(np.isfinite(one).all() for one in moved if one.dtype.kind == "f"):
            return None
        found = problem.run(side, moved, problem.labels)
        if found is None or not all(np.isfinite(one).all() for one in found.gradients):
            return None
        gradients = tuple(
            step.back(output.astype(np.float64), gradient) if use else gradient
            for output, gradient, use in zip(problem.outputs, found.gradients, used, strict=True)
        )
    return Evaluated(value=found.value, gradients=gradients)


def _softmax_step(axis: int) -> _Step:
    def back(x: Array, g: Array) -> Array:
        p = np.exp(log_softmax(x, axis))
        return np.asarray(p * (g - (g * p).sum(axis=axis, keepdims=True)))

    name = "softmax" if axis == 1 else f"softmax over axis {axis}"
    return _Step(name, "softmax", lambda x: np.exp(log_softmax(x, axis)), back)


def _log_softmax_step(axis: int) -> _Step:
    def back(x: Array, g: Array) -> Array:
        return np.asarray(g - np.exp(log_softmax(x, axis)) * g.sum(axis=axis, keepdims=True))

    name = "log_softmax" if axis == 1 else f"log_softmax over axis {axis}"
    return _Step(name, "log-softmax", lambda x: log_softmax(x, axis), back)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _labels(problem: Problem) -> Iterator[Guess]:
    """Yield labels that one side changes, one array of them at a time; by sample where they are of as many samples."""
    targets = problem.targets
    for number, labels in enumerate(targets):
        which = f" (array {number} of the labels)" if len(targets) > 1 else ""
        for code, words, fix, changed in _changed(problem, labels):
            given = problem.relabelled(number, np.ascontiguousarray(changed))
            for side in (1, 0):
                found = problem.run(1 - side, problem.outputs, given)
                if found is not None:
                    yield Guess(
                        code=code,
                        message=f"the {WHO[side]}'s loss {words}{which}",
                        fix=fix,
                        side=side,
                        found=found,
                        evidence=f"the {WHO[1 - side]}'s loss of such labels is the {WHO[side]}'s",
                    )


def _changed(problem: Problem, labels: Array) -> Iterator[tuple[str, str, str, Array]]:
    """Yield what may be done to labels: a slug, words, the fix, and the labels so changed."""
    if labels.dtype.kind in "iu":
        top = max((one.shape[1] for one in problem.outputs if one.ndim > 1), default=int(labels.max()) + 1)
        for step in (1, -1):
            for shifted in (labels + step, np.clip(labels + step, 0, top - 1), (labels + step) % top):
                yield (
                    "label-shift",
                    f"takes labels {step:+d}: they are off by one",
                    "count labels as the reference does",
                    shifted,
                )
    if labels.ndim and len(labels) > 1:
        for words, moved in (
            ("the labels of others: they are reversed", labels[::-1]),
            ("the labels of the sample before", np.roll(labels, 1, axis=0)),
            ("the labels of the sample after", np.roll(labels, -1, axis=0)),
        ):
            yield "label-order", f"pairs samples with {words}", "keep the samples' order", moved
    if labels.ndim > 1 and labels.shape[-1] == labels.shape[-2]:
        yield (
            "label-axes",
            "takes labels with two axes exchanged",
            "do not transpose the labels",
            labels.swapaxes(-1, -2),
        )
    if labels.dtype.kind == "f":
        words = "takes the most probable label in place of soft labels"
        yield "label-form", words, "pass soft_label=True", _hardened(labels)
        yield from _transformed(labels)


def _hardened(labels: Array) -> Array:
    axis = 1 if labels.ndim > 1 else 0
    return np.asarray((labels == labels.max(axis=axis, keepdims=True)).astype(labels.dtype))


def _transformed(labels: Array) -> Iterator[tuple[str, str, str, Array]]:
    with np.errstate(all="ignore"):
        for name, changed in (
            ("log", np.log(labels)),
            ("exp", np.exp(labels)),
            ("1 -", 1 - labels),
            ("2 x - 1 of", 2 * labels - 1),
            ("(x + 1) / 2 of", (labels + 1) / 2),
            *(
                (
                    ("softmax of", np.exp(log_softmax(labels))),
                    ("sharpened (squared)", labels**2 / (labels**2).sum(axis=1, keepdims=True)),
                )
                if labels.ndim > 1
                else ()
            ),
        ):
            if np.isfinite(changed).all():
                yield ("label-form", f"takes {name} labels", "give the loss the labels as the reference does", changed)


def _ignored(problem: Problem) -> Iterator[Guess]:
    """Yield a label whose samples do not count on one side."""
    labels = problem.labels
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iub" or not labels.ndim:
        return
    if any(len(one) != len(labels) for one in problem.outputs if one.ndim):
        return
    for label in np.unique(labels)[:64]:
        keep = (labels != label).reshape(len(labels), -1).all(axis=1)
        if not keep.any() or keep.all():
            continue
        for side in (1, 0):
            found = problem.run(1 - side, [one[keep] for one in problem.outputs], labels[keep])
            if found is None:
                continue
            full = tuple(
                _spread(gradient, keep, output)
                for gradient, output in zip(found.gradients, problem.outputs, strict=True)
            )
            for share, words in ((1.0, ""), (float(keep.mean()), ", but divides by the number of all samples")):
                yield Guess(
                    code="ignore-index",
                    side=side,
                    found=Evaluated(value=found.value, gradients=full).scaled(share),
                    message=f"the {WHO[side]} ignores samples of label {label}{words}, the {WHO[1 - side]} does not",
                    fix=f"{'leave out' if side else 'pass'} ignore_index={label}",
                    evidence=f"the {WHO[1 - side]}'s loss without these samples is the {WHO[side]}'s",
                )


def _spread(gradient: Array, keep: Array, output: Array) -> Array:
    full = np.zeros(output.shape)
    full[keep] = gradient
    return full


def _temperatures(problem: Problem) -> Iterator[Guess]:
    """Yield the factor of the outputs with which the reference's loss is the port's."""
    known: dict[float, Evaluated | None] = {}

    def scaled(factor: float) -> Evaluated | None:
        if factor not in known:
            moved: Sequence[Array] = [one * factor if one.dtype.kind == "f" else one for one in problem.outputs]
            found = problem.run(0, moved, problem.labels)
            known[factor] = found and Evaluated(
                value=found.value, gradients=tuple(one * factor for one in found.gradients)
            )
        return known[factor]

    def guess(factor: float, power: int) -> Guess | None:
        found = scaled(factor)
        return None if found is None else _temperature(factor, power, found)

    for power in (0, 2):
        best = _best(lambda at, power=power: _share(problem, guess(at, power)))  # type: ignore[misc]
        made = None if best is None else guess(best, power)
        if made is not None:
            yield made


def _temperature(factor: float, power: int, found: Evaluated) -> Guess:
    who, whom, by = ("port", "reference", 1 / factor) if factor < 1 else ("reference", "port", factor)
    words = f", and the port's loss is {factor**-power:.6g} times as large" if power else ""
    return Guess(
        code="temperature",
        found=found.scaled(factor**-power),
        message=f"the {who} divides the outputs by {by:.6g}, the {whom} does not{words}",
        fix=f"{'leave out the division' if who == 'port' else 'divide the outputs'} by {by:.6g}",
        evidence=f"the reference's loss of outputs times {factor:.6g} is the port's",
    )


def _share(problem: Problem, guess: Guess | None) -> float:
    return -1e9 if guess is None else problem.closeness(guess)


def _best(share: Callable[[float], float]) -> float | None:
    """Return the factor with the largest share, refined where there is a peak; None where nothing comes closer."""
    found = [share(float(at)) for at in SCALES]
    number = int(np.argmax(found))
    if found[number] <= 0:
        return None
    low, high = (float(np.log(SCALES[min(max(number + step, 0), len(SCALES) - 1)])) for step in (-1, 1))
    for _ in range(40):
        third = (high - low) / 3
        if share(float(np.exp(low + third))) >= share(float(np.exp(high - third))):
            high -= third
        else:
            low += third
    factor = float(np.exp((low + high) / 2))
    for rounded in (1 / float(f"{1 / factor:.4g}"), float(f"{factor:.4g}")):
        if share(rounded) >= share(factor) - SAME_SINGLE:
            return rounded
    return factor
