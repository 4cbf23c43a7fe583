"""Hypotheses about two losses by running one of them on changed outputs or labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.pieces.loss_formulas import log_softmax
from tipchain.parity.pieces.loss_problem import Evaluated, Guess, Problem
from tipchain.parity.rounding import SAME_SINGLE

Array = npt.NDArray[Any]
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
            what = (
                "applies {} once more than the reference"
                if extra
                else "does not apply {}, the reference does"
            )
            yield Guess(
                code=code, side=side, found=found,
                message=f"the port {what.format(f'{step.name} to the outputs')}",
                fix=f"{'leave out' if extra else 'apply'} {step.name} before the loss"
                + (": it takes logits" if extra and "log" not in step.code else ""),
                evidence=f"the {WHO[1 - side]}'s loss of {step.name}(outputs) is the {WHO[side]}'s",
            )  # fmt: skip


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
                    yield Guess(code=code, message=f"the {WHO[side]}'s loss {words}{which}", fix=fix, side=side, found=found,
                                evidence=f"the {WHO[1 - side]}'s loss of such labels is the {WHO[side]}'s")  # fmt: skip


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
                yield (
                    "label-form",
                    f"takes {name} labels",
                    "give the loss the labels as the reference does",
                    changed,
                )


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
            for share, words in (
                (1.0, ""),
                (float(keep.mean()), ", but divides by the number of all samples"),
            ):
                yield Guess(
                    code="ignore-index", side=side, found=Evaluated(value=found.value, gradients=full).scaled(share),
                    message=f"the {WHO[side]} ignores samples of label {label}{words}, the {WHO[1 - side]} does not",
                    fix=f"{'leave out' if side else 'pass'} ignore_index={label}",
                    evidence=f"the {WHO[1 - side]}'s loss without these samples is the {WHO[side]}'s",
                )  # fmt: skip


def _spread(gradient: Array, keep: Array, output: Array) -> Array:
    full = np.zeros(output.shape)
    full[keep] = gradient
    return full


def _temperatures(problem: Problem) -> Iterator[Guess]:
    """Yield the factor of the outputs with which the reference's loss is the port's."""
    known: dict[float, Evaluated | None] = {}

    def scaled(factor: float) -> Evaluated | None:
        if factor not in known:
            moved: Sequence[Array] = [
                one * factor if one.dtype.kind == "f" else one for one in problem.outputs
            ]
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
        code="temperature", found=found.scaled(factor**-power),
        message=f"the {who} divides the outputs by {by:.6g}, the {whom} does not{words}",
        fix=f"{'leave out the division' if who == 'port' else 'divide the outputs'} by {by:.6g}",
        evidence=f"the reference's loss of outputs times {factor:.6g} is the port's",
    )  # fmt: skip


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
