"""Why two losses differ: each hypothesis is tried, and the one that explains value and gradient is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.findings import Diagnosis
from tipchain.parity.judging.loss_causes import FLOOR
from tipchain.parity.pieces.loss_families import families
from tipchain.parity.pieces.loss_problem import Evaluated, Guess, Problem
from tipchain.parity.pieces.loss_reruns import reruns
from tipchain.parity.pieces.loss_settings import settings
from tipchain.parity.pieces.loss_terms import factors, functions, terms
from tipchain.parity.rounding import EXPLAINED, SAME_SINGLE, WHOLE

Array = npt.NDArray[Any]
LOSS = "loss"


def loss_causes(problem: Problem) -> tuple[Diagnosis, ...]:
    """Return what explains the difference of two losses; one of code ``unknown`` where nothing reaches 99 %."""
    best: tuple[float, Guess] | None = None
    for guess in chain(
        settings(problem),
        factors(problem),
        functions(problem),
        families(problem),
        reruns(problem),
        terms(problem),
    ):
        share = problem.explained(guess)
        if share >= WHOLE:
            return (_told(guess, share),)
        if best is None or share > best[0]:
            best = share, guess
    if best is not None and best[0] >= EXPLAINED:
        return (_told(best[1], best[0]),)
    return (_unknown(problem),)


def ignored_only(
    expected: Evaluated, outputs: Sequence[Array], labels: Any,
    port: Callable[[Sequence[Array], Any], Evaluated | None],
) -> Diagnosis | None:  # fmt: skip
    """Return the diagnosis of a port that cannot take a label which the reference ignores, None if that is not why."""
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.ndim < 1:
        return None
    for label in np.unique(labels):
        keep = (labels != label).reshape(len(labels), -1).all(axis=1)
        if not keep.any() or keep.all() or any(len(one) != len(labels) for one in outputs):
            continue
        found = port([one[keep] for one in outputs], labels[keep])
        if found is None or abs(found.value - expected.value) > SAME_SINGLE * abs(expected.value):
            continue
        return Diagnosis(
            code="ignore-index", port_path=LOSS,
            message=f"the reference ignores samples of label {label}, the port's loss cannot take them",
            evidence=f"without these samples the port's loss is {found.value:.9g}, the reference's {expected.value:.9g}",
            explained=1.0, fix=f"pass ignore_index={label}",
        )  # fmt: skip
    return None


def clamped(problem: Problem) -> bool:
    """Tell whether the losses differ only by Paddle's softmax, which takes low logits for 64 below the largest."""
    for axis in (1, -1):
        moved = []
        for one in problem.outputs:
            usable = one.ndim > 1 and one.dtype.kind == "f"
            moved.append(np.maximum(one, one.max(axis=axis, keepdims=True) - FLOOR) if usable else one)
        if all(np.array_equal(one, other) for one, other in zip(moved, problem.outputs, strict=True)):
            return False
        found = problem.run(0, moved, problem.labels)
        if found is not None and abs(found.value - problem.actual.value) <= SAME_SINGLE * abs(
            problem.actual.value
        ):
            return True
    return False


def _told(guess: Guess, explained: float) -> Diagnosis:
    what = "gradient's difference" if guess.gradient_only else "difference of value and gradient"
    return Diagnosis(
        code=guess.code, port_path=LOSS, message=guess.message,
        evidence=f"{guess.evidence}: {explained:.2%} of the {what} is gone", explained=explained, fix=guess.fix,
    )  # fmt: skip


def _unknown(problem: Problem) -> Diagnosis:
    one, other = (
        np.concatenate([gradient.reshape(-1) for gradient in loss.gradients] or [np.zeros(0)])
        for loss in (problem.expected, problem.actual)
    )
    sizes = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    words = "one gradient is zero"
    if sizes[0] and sizes[1]:
        cosine = float(one @ other) / (sizes[0] * sizes[1])
        words = (
            f"the port's gradient is {sizes[1] / sizes[0]:.4g} times as large, with a cosine of {cosine:.4f}"
        )
    return Diagnosis(
        code="unknown", port_path=LOSS, message=f"the losses differ, the cause is unknown: {words}",
        evidence="no factor, setting, missing step or term explains 99 % of the difference", explained=None,
        fix="compare the two losses' code and arguments",
    )  # fmt: skip
