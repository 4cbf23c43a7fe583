"""Losses with a setting of their own (a margin, a focus), recognized by value and gradient, and the setting that differs.

Sources: ``torch/nn/functional.py`` of triplet_margin_loss, cosine_embedding_loss, margin_ranking_loss,
hinge_embedding_loss and multi_margin_loss; Lin et al., Focal loss, arXiv:1708.02002; Milletari et al. (Dice),
arXiv:1606.04797.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.pieces.loss_problem import Evaluated, Guess, Problem
from tipchain.parity.rounding import NOISE

Array = npt.NDArray[Any]
FITS = 1e-5
"""Relative difference of value and gradient up to which a formula is a loss."""
MOST = 300_000
"""Elements of the outputs beyond which nothing is tried."""
REDUCTIONS = ("mean", "sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A formula with one knob.

    Attributes:
        name: what it is called.
        make: ``(outputs, labels, knob)`` returns the loss of each sample, torch tensors of float64 all.
        knob: what the knob is called; "" where there is none.
        code: the slug of another value of it.
        usual: values that are tried first; the knob is then fitted between the least and the largest.
    """

    name: str
    make: Callable[[Sequence[Any], Any, float], Any]
    knob: str = ""
    code: str = ""
    usual: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True)
class _Known:
    """A side's loss as a family with its knob."""

    family: Family
    knob: float
    reduction: str
    found: Evaluated


def families(problem: Problem) -> Iterator[Guess]:
    """Yield the one setting of a known family that differs, or the port's family where the reference's is another."""
    if sum(one.size for one in problem.outputs) > MOST:
        return
    ours = list(_recognized(problem, problem.expected))
    if not ours:
        return
    pairs = [(known, theirs) for theirs in _recognized(problem, problem.actual) for known in ours]
    # Several families may give one loss: a setting of the same one comes first.
    pairs.sort(key=lambda pair: pair[0].family.name != pair[1].family.name)
    yield from (guess for pair in pairs if (guess := _guess(*pair)) is not None)


def _guess(ours: _Known, theirs: _Known) -> Guess | None:
    evidence = f"both losses are recognized: {_named(ours)}; {_named(theirs)}"

    def made(code: str, message: str, fix: str) -> Guess:
        return Guess(code=code, message=message, fix=fix, evidence=evidence, found=theirs.found)

    if ours.family.name == theirs.family.name:
        if ours.knob != theirs.knob:
            words = f"the port's {ours.family.knob} is {theirs.knob:.6g}, the reference's {ours.knob:.6g}"
            return made(ours.family.code, words, f"pass {ours.family.knob}={ours.knob:.6g}")
        if ours.reduction != theirs.reduction:
            words = f"the port takes the {theirs.reduction} over samples, the reference the {ours.reduction}"
            return made("reduction", words, f"pass reduction={ours.reduction!r}")
        return None
    names = ours.family.name, theirs.family.name
    code = "output-order" if names[0].partition(" (")[0] == names[1].partition(" (")[0] else "loss-type"
    code = "missing-log" if names == (_focal_name, _probability_name) and not ours.knob else code
    return made(code, f"the port's loss is {_named(theirs)}, the reference's {_named(ours)}",
                f"use the loss of the reference: {_named(ours)}")  # fmt: skip


def _named(known: _Known) -> str:
    knob = f" with {known.family.knob} {known.knob:.6g}" if known.family.knob else ""
    return f"{known.family.name}{knob}"


def _recognized(problem: Problem, loss: Evaluated) -> Iterator[_Known]:
    targets = problem.targets
    for family in _families(problem.outputs, targets[0] if len(targets) == 1 else None):
        for reduction in REDUCTIONS:
            for knob in _knobs(problem, family, reduction, loss.value):
                found = _evaluated(problem, family, reduction, knob)
                if found is not None and _same(found, loss):
                    yield _Known(family, knob, reduction, found)
                    break


def _same(one: Evaluated, other: Evaluated) -> bool:
    if abs(one.value - other.value) > FITS * max(abs(other.value), NOISE):
        return False
    size = np.sqrt(sum(float((gradient**2).sum()) for gradient in other.gradients))
    apart = np.sqrt(
        sum(float(((a - b) ** 2).sum()) for a, b in zip(one.gradients, other.gradients, strict=True))
    )
    return bool(size > 0 and apart <= FITS * size)


def _knobs(problem: Problem, family: Family, reduction: str, wanted: float) -> Iterator[float]:
    """Yield the usual values, then the one with which the value, which rises or falls with the knob, is as wanted."""
    yield from family.usual
    if not family.knob:
        return
    low, high = min(family.usual), max(family.usual)

    def miss(knob: float) -> float:
        found = _evaluated(problem, family, reduction, knob)
        return float("nan") if found is None else found.value - wanted

    ends = miss(low), miss(high)
    if not ends[0] * ends[1] < 0:
        return
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if miss(middle) * ends[0] > 0 else (low, middle)
    exact = (low + high) / 2
    yield float(f"{exact:.6g}")


def _evaluated(problem: Problem, family: Family, reduction: str, knob: float) -> Evaluated | None:
    import torch

    given = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in problem.outputs]
    targets = problem.targets
    labels = torch.as_tensor(np.ascontiguousarray(targets[0])) if len(targets) == 1 else None
    if labels is not None and labels.is_floating_point():
        labels = labels.double()
    try:
        with torch.enable_grad():
            losses = family.make(given, labels, knob)
            value = losses.mean() if reduction == "mean" else losses.sum()
            slopes = torch.autograd.grad(value, given, allow_unused=True)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None  # the outputs' shapes or the labels are not such a loss's
    gradients = tuple(
        np.zeros(one.shape) if slope is None else slope.numpy()
        for one, slope in zip(problem.outputs, slopes, strict=True)
    )
    return Evaluated(value=float(value.detach()), gradients=gradients)


_MARGINS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 10.0)
"""Margins that are tried: the defaults of torch's losses (0, 0.5, 1), of ArcFace (0.5) and of triplets in papers; others are fitted."""
_FOCI = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Exponents of focal losses that are tried: those of the paper (Lin et al. 2017) and the largest that is looked for."""
_SMOOTH = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1.0, 100.0)
"""Smoothings of ratios that are tried: powers of ten as codes have them, 0: none, 1 and 100 as Dice losses have."""
_focal_name, _probability_name = "the focal cross entropy", "the negative probability of the label"


def _families(outputs: Sequence[Array], array: Array | None) -> Iterator[Family]:
    """Yield what outputs and labels of such numbers, shapes and kinds may be given to."""
    first = outputs[0]
    alike = all(one.shape == first.shape and one.dtype.kind == "f" for one in outputs)
    if not alike or not first.ndim:
        return
    if len(outputs) == 3 and first.ndim == 2:
        yield from _triplets()
    elif len(outputs) == 2 and array is not None and set(np.unique(array)) <= {-1, 1}:
        yield from _pairs()
    elif len(outputs) == 1 and array is not None and array.dtype.kind in "iu":
        if first.ndim > 1 and array.size * first.shape[1] == first.size:
            yield from _of_classes(first.shape[1])
    elif len(outputs) == 1 and array is not None and array.shape == first.shape:
        yield from _of_targets(array)


def _triplets() -> Iterator[Family]:
    from torch.nn import functional

    def distance(one: Any, other: Any) -> Any:
        return functional.pairwise_distance(one, other)

    def squared(one: Any, other: Any) -> Any:
        return ((one - other) ** 2).sum(1)

    for name, far in (
        ("the triplet margin loss", distance),
        ("the triplet margin loss of squared distances", squared),
    ):
        for order in permutations(range(3)):
            words = ", ".join(f"output {one}" for one in order)

            def make(given: Any, _: Any, margin: float, far: Any = far, order: Any = order) -> Any:
                anchor, near, other = (given[one] for one in order)
                return (far(anchor, near) - far(anchor, other) + margin).relu()

            yield Family(name=f"{name} (of {words})", make=make, knob="margin", code="margin", usual=_MARGINS)


def _pairs() -> Iterator[Family]:
    from torch.nn import functional

    def cosine(given: Any, labels: Any, margin: float) -> Any:
        one, other = given
        return functional.cosine_embedding_loss(
            one, other, labels.reshape(-1), margin=margin, reduction="none"
        )

    def ranking(given: Any, labels: Any, margin: float) -> Any:
        signs = labels.reshape(-1)
        one, other = (each.reshape(-1) if each.numel() == signs.numel() else each[:, 0] for each in given)
        return functional.margin_ranking_loss(one, other, signs, margin=margin, reduction="none")

    margins = (-1.0, -0.5, *_MARGINS)
    yield Family(name="the cosine embedding loss", make=cosine, knob="margin", code="margin", usual=margins)
    yield Family(name="the margin ranking loss", make=ranking, knob="margin", code="margin", usual=margins)


def _of_classes(classes: int) -> Iterator[Family]:
    from torch.nn import functional

    def focal(given: Any, labels: Any, gamma: float) -> Any:
        entropy = functional.cross_entropy(given[0], labels.long(), reduction="none")
        return (1 - (-entropy).exp()) ** gamma * entropy if gamma else entropy

    def probability(given: Any, labels: Any, _: float) -> Any:
        return functional.nll_loss(given[0].softmax(1), labels.long(), reduction="none")

    def binary(given: Any, labels: Any, _: float) -> Any:
        hot = functional.one_hot(labels.long(), classes).movedim(-1, 1).double()
        return functional.binary_cross_entropy_with_logits(given[0], hot, reduction="none")

    yield Family(name=_focal_name, make=focal, knob="gamma", code="focal-gamma", usual=_FOCI)
    yield Family(name=_probability_name, make=probability)
    yield Family(name="the binary cross entropy of each class", make=binary)
    for power in (1, 2):

        def hinge(given: Any, labels: Any, margin: float, power: int = power) -> Any:
            return functional.multi_margin_loss(
                given[0], labels.long(), p=power, margin=margin, reduction="none"
            )

        yield Family(
            name=f"the multi margin loss of power {power}",
            make=hinge,
            knob="margin",
            code="margin",
            usual=_MARGINS,
        )


def _of_targets(labels: Array) -> Iterator[Family]:
    from torch.nn import functional

    if set(np.unique(labels)[:3]) <= {-1, 1}:

        def hinge(given: Any, signs: Any, margin: float) -> Any:
            return functional.hinge_embedding_loss(given[0], signs, margin=margin, reduction="none")

        yield Family(
            name="the hinge embedding loss", make=hinge, knob="margin", code="margin", usual=_MARGINS
        )
    if labels.min() < 0 or labels.max() > 1:
        return

    def focused(given: Any, bits: Any, alpha: float, gamma: float) -> Any:
        entropy = functional.binary_cross_entropy_with_logits(given[0], bits.double(), reduction="none")
        chance = given[0].sigmoid()
        right = chance * bits + (1 - chance) * (1 - bits)
        share = alpha * bits + (1 - alpha) * (1 - bits) if alpha >= 0 else 1.0
        return share * ((1 - right) ** gamma if gamma else 1.0) * entropy

    def dice(given: Any, bits: Any, smooth: float) -> Any:
        chance = given[0].sigmoid()
        return 1 - (2 * (chance * bits).sum() + smooth) / (chance.sum() + bits.sum() + smooth)

    for alpha in (0.25, 0.5, 0.75, -1.0):

        def of_gamma(given: Any, bits: Any, gamma: float, alpha: float = alpha) -> Any:
            return focused(given, bits, alpha, gamma)

        yield Family(
            name=f"the focal loss of alpha {alpha:g}",
            make=of_gamma,
            knob="gamma",
            code="focal-gamma",
            usual=_FOCI,
        )
    for gamma in _FOCI[:-1]:

        def of_alpha(given: Any, bits: Any, alpha: float, gamma: float = gamma) -> Any:
            return focused(given, bits, alpha, gamma)

        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        yield Family(
            name=f"the focal loss of gamma {gamma:g}",
            make=of_alpha,
            knob="alpha",
            code="focal-alpha",
            usual=shares,
        )
    yield Family(
        name="the Dice loss", make=dice, knob="smoothing constant", code="smoothing-constant", usual=_SMOOTH
    )
