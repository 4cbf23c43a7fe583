"""Hypotheses about two losses by arithmetic alone: a factor, a term too much or too few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from math import exp, log
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.pieces.loss_formulas import log_softmax
from tipchain.parity.pieces.loss_problem import Evaluated, Guess, Problem
from tipchain.parity.rounding import SAME_DOUBLE, SAME_SINGLE

Array = npt.NDArray[Any]
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
    yield Guess(
        code=code, message=f"the port's loss is {factor:.6g} times the reference's{words}",
        fix=_fix(words) if code == "reduction" else f"multiply the port's loss by {1 / factor:.6g}",
        evidence="the reference's loss times this factor is the port's", found=problem.expected.scaled(factor),
    )  # fmt: skip


def _fix(words: str) -> str:
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
        found |= {
            "classes": shape[1],
            "entries of the last axis": shape[-1],
            "places": int(np.prod(shape)) // shape[1],
        }
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
                    code=code, message=f"the port's loss {words}", fix="take the same function of the mean as the reference does",
                    evidence="this function of the reference's loss is the port's", found=Evaluated(value=value, gradients=gradients),
                )  # fmt: skip


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
        found = Evaluated(
            value=expected.value, gradients=tuple(np.zeros_like(one) for one in expected.gradients)
        )
        alone = abs(gap) > SAME_SINGLE * abs(expected.value)
        yield Guess(
            code="cut-gradient", message="the port's loss has no gradient with respect to the outputs",
            fix="compute the loss from the output tensors themselves: no detach(), numpy() or stop_gradient",
            evidence="the reference's value without its gradient is the port's", found=found, gradient_only=alone,
        )  # fmt: skip
    if gap:
        more = "adds" if gap > 0 else "lacks"
        yield Guess(
            code="missing-term" if gap < 0 else "extra-term",
            message=f"the port's loss {more} {abs(gap):.6g} that does not depend on the outputs "
            "(a penalty on the parameters, an entropy of the labels)",
            fix=f"{'leave out' if gap > 0 else 'add'} the term",
            evidence="the reference's loss with this constant is the port's",
            found=Evaluated(value=actual.value, gradients=expected.gradients),
        )  # fmt: skip


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
                f"does not use output {number}"
                if not factor
                else f"weighs output {number} {factor:.6g} times as much"
            )
    if (
        words
        and "missing-term" in codes
        and abs(problem.actual.value - problem.expected.value) <= SAME_SINGLE * abs(problem.expected.value)
    ):
        yield Guess(
            code="cut-gradient", message=f"the port's loss has the reference's value, but its gradient {' and '.join(words)}",
            fix="compute this part from the output tensor itself: no detach(), numpy() or stop_gradient",
            evidence="the reference's value with the gradient of the other outputs is the port's",
            found=Evaluated(value=problem.expected.value, gradients=tuple(found)), gradient_only=True,
        )  # fmt: skip
    elif words:
        yield Guess(
            code="missing-term" if "missing-term" in codes else "term-weight",
            message=f"the port's loss {' and '.join(words)}", fix="weigh the outputs' losses as the reference does",
            evidence="the reference's gradient with these weights of outputs is the port's",
            found=Evaluated(value=problem.actual.value, gradients=tuple(found)), gradient_only=True,
        )  # fmt: skip


def _lacking(problem: Problem, pairs: list[tuple[Array, Array]]) -> Iterator[Guess]:
    """Yield an output that the port uses and the reference does not."""
    extra = [number for number, (one, other) in enumerate(pairs) if not one.any() and other.any()]
    if extra:
        gradients = tuple(other if number in extra else one for number, (one, other) in enumerate(pairs))
        yield Guess(
            code="extra-term", message=f"the port's loss uses output {extra[0]}, the reference's does not",
            fix="leave this output out of the loss", evidence="the other outputs' gradients are the reference's",
            found=Evaluated(value=problem.actual.value, gradients=gradients), gradient_only=True,
        )  # fmt: skip


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
        )  # fmt: skip


def _flat(loss: Evaluated) -> Array:
    return np.concatenate([one.reshape(-1) for one in loss.gradients] or [np.zeros(0)])
