"""The formulas of optimizers with every knob, in float64.

Sources: ``torch/optim/*.py``; ``paddle/optimizer/*.py`` and the kernels they name. Kingma & Ba, Adam, arXiv:1412.6980;
Loshchilov & Hutter, Decoupled weight decay, arXiv:1711.05101; Reddi et al., AMSGrad, arXiv:1904.09237; Duchi et al.,
Adagrad, JMLR 12 (2011); Zeiler, Adadelta, arXiv:1212.5701; Hinton, RMSProp, Coursera lecture 6e.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One optimizer's arithmetic for one parameter.

    Attributes:
        algorithm: ``sgd``, ``adam``, ``rmsprop``, ``adagrad``, ``adadelta`` or ``adamax``.
        lr: learning rate.
        decay: weight decay's coefficient.
        form: ``l2`` (added to the gradient), ``l1`` (its sign is), ``decoupled`` (taken off the parameter),
            ``free`` (the same, not multiplied by the learning rate).
        momentum: of sgd and rmsprop.
        dampening: of sgd: the share of the gradient that does not enter the momentum.
        first: whether the momentum starts as the first gradient (``gradient``) or is dampened from zero (``zero``).
        nesterov: Nesterov's look-ahead.
        rate_inside: whether the learning rate is multiplied in before the momentum, which counts once it changes.
        beta1: decay of the first moment.
        beta2: decay of the second moment; rho of rmsprop and adadelta.
        epsilon: added to the denominator.
        place: where epsilon stands: ``outside`` the root, ``inside`` it, or ``unscaled``, beside the root of a second
            moment that is not corrected.
        correction: whether Adam's moments are corrected for their start at zero.
        amsgrad: the largest second moment so far divides.
        centered: rmsprop's variance in place of the second moment.
        initial: adagrad's accumulator at the start.
        rate_decay: adagrad's decay of the rate.
        kept: steps after which gradients are cleared; 0: never.
        scale: factor of the gradients, before anything else is done with them.
        maximize: steps go uphill.
        clip: ``""``, ``value``, ``norm`` of each gradient, ``global`` norm of all, ``group``: that of
            each parameter group.
        limit: what clipping leaves.
        frozen: it does not move.
    """

    algorithm: str = "sgd"
    lr: float = 0.01
    decay: float = 0.0
    form: str = "l2"
    momentum: float = 0.0
    dampening: float = 0.0
    first: str = "gradient"
    nesterov: bool = False
    rate_inside: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    place: str = "outside"
    correction: bool = True
    amsgrad: bool = False
    centered: bool = False
    initial: float = 0.0
    rate_decay: float = 0.0
    kept: int = 1
    scale: float = 1.0
    maximize: bool = False
    clip: str = ""
    limit: float = 0.0
    frozen: bool = False


KNOBS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sgd": ("momentum", "dampening", "first", "nesterov", "rate_inside"),
        "adam": ("beta1", "beta2", "epsilon", "place", "correction", "amsgrad"),
        "rmsprop": ("beta2", "epsilon", "place", "momentum", "centered", "rate_inside"),
        "adagrad": ("epsilon", "place", "initial", "rate_decay"),
        "adadelta": ("beta2", "epsilon"),
        "adamax": ("beta1", "beta2", "epsilon", "place"),
    }
)
"""What each algorithm has of its own."""
COMMON = ("lr", "decay", "form", "maximize", "clip", "limit", "frozen", "kept", "scale")
"""What all have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """A parameter's way under given gradients; some of its elements.

    Attributes:
        name: torch's name of the parameter.
        start: where it began, ``[elements]``.
        gradients: ``[steps, elements]``.
        norms: the L2 norm of the whole gradient of this parameter, ``[steps]``.
        global_norms: that of all parameters' gradients together, ``[steps]``.
        group_norms: that of the gradients in the port's parameter group, ``[steps]``.
        shares: factors of the learning rate, ``[steps]``.
        reference: the reference's updates, ``[steps, elements]``.
        port: the port's.
    """

    name: str
    start: Array
    gradients: Array
    norms: Array
    global_norms: Array
    group_norms: Array
    shares: Array
    reference: Array
    port: Array


def simulate(formula: Formula, course: Course) -> Array:
    """Return the updates that a formula makes, ``[steps, elements]``; they begin from ``course.start``."""
    if formula.frozen:
        return np.zeros_like(course.gradients)
    value, updates, total = course.start.astype(np.float64), [], np.zeros_like(course.start)
    rule = _RULES[formula.algorithm](formula, value.shape)
    with np.errstate(all="ignore"):
        for step, raw in enumerate(course.gradients):
            fresh = step % formula.kept == 0 if formula.kept else step == 0
            total = formula.scale * raw if fresh else total + formula.scale * raw
            gradient = _clipped(formula, total, course, step) * (-1.0 if formula.maximize else 1.0)
            rate = formula.lr * float(course.shares[step]) / (1 + step * formula.rate_decay)
            if formula.form == "l1":
                gradient = gradient + formula.decay * np.sign(value)
            elif formula.form == "l2":
                gradient = gradient + formula.decay * value
            update = -rule.move(gradient, rate)
            if formula.form == "decoupled":
                update = update - rate * formula.decay * value
            elif formula.form == "free":
                update = update - formula.decay * value
            updates.append(update)
            value = value + update
    return np.array(updates)


def _clipped(formula: Formula, gradient: Array, course: Course, step: int) -> Array:
    if not formula.clip:
        return gradient
    if formula.clip == "value":
        return np.clip(gradient, -formula.limit, formula.limit)
    norms = {"norm": course.norms, "group": course.group_norms, "global": course.global_norms}
    norm = float(norms[formula.clip][step])
    return gradient * min(1.0, formula.limit / norm) if norm > 0 else gradient


class _Moments:
    def __init__(self, formula: Formula, shape: tuple[int, ...]) -> None:
        self.formula, self.step = formula, 0
        self.first, self.second, self.third = np.zeros(shape), np.zeros(shape), np.zeros(shape)

    def move(self, gradient: Array, rate: float) -> Array:
        """Return the step downhill for a gradient, and remember the moments."""
        raise NotImplementedError

    def root(self, square: Array) -> Array:
        """Return the denominator."""
        epsilon = self.formula.epsilon
        return np.sqrt(square + epsilon) if self.formula.place == "inside" else np.sqrt(square) + epsilon

    def carried(self, step: Array, rate: float) -> Array:
        """Return the movement with momentum, whose buffer is the first moment."""
        knobs = self.formula
        if not knobs.momentum:
            return rate * step
        given = rate * step if knobs.rate_inside else step
        if self.step == 1 and knobs.first == "gradient":
            self.first = given
        else:
            self.first = knobs.momentum * self.first + (1 - knobs.dampening) * given
        moved = given + knobs.momentum * self.first if knobs.nesterov else self.first
        return moved if knobs.rate_inside else rate * moved


class _Sgd(_Moments):
    def move(self, gradient: Array, rate: float) -> Array:
        self.step += 1
        return self.carried(gradient, rate)


class _Adam(_Moments):
    def move(self, gradient: Array, rate: float) -> Array:
        knobs = self.formula
        self.step += 1
        self.first = knobs.beta1 * self.first + (1 - knobs.beta1) * gradient
        self.second = knobs.beta2 * self.second + (1 - knobs.beta2) * gradient**2
        self.third = np.maximum(self.third, self.second)
        square = self.third if knobs.amsgrad else self.second
        one = two = 1.0
        if knobs.correction:
            one, two = 1 - knobs.beta1**self.step, 1 - knobs.beta2**self.step
        if knobs.place == "unscaled":
            return np.asarray(rate * np.sqrt(two) / one * self.first / (np.sqrt(square) + knobs.epsilon))
        return rate / one * self.first / self.root(square / two)


class _RmsProp(_Moments):
    def move(self, gradient: Array, rate: float) -> Array:
        knobs = self.formula
        self.step += 1
        self.second = knobs.beta2 * self.second + (1 - knobs.beta2) * gradient**2
        square = self.second
        if knobs.centered:
            self.third = knobs.beta2 * self.third + (1 - knobs.beta2) * gradient
            square = square - self.third**2
        return self.carried(gradient / self.root(square), rate)


class _Adagrad(_Moments):
    def move(self, gradient: Array, rate: float) -> Array:
        self.step += 1
        if self.step == 1:
            self.second = self.second + self.formula.initial
        self.second = self.second + gradient**2
        return rate * gradient / self.root(self.second)


class _Adadelta(_Moments):
    def move(self, gradient: Array, rate: float) -> Array:
        rho, epsilon = self.formula.beta2, self.formula.epsilon
        self.second = rho * self.second + (1 - rho) * gradient**2
        step = np.sqrt(self.first + epsilon) / np.sqrt(self.second + epsilon) * gradient
        self.first = rho * self.first + (1 - rho) * step**2
        return rate * step


class _Adamax(_Moments):
    def move(self, gradient: Array, rate: float) -> Array:
        knobs = self.formula
        self.step += 1
        self.first = knobs.beta1 * self.first + (1 - knobs.beta1) * gradient
        grown = knobs.beta2 * self.second
        if knobs.place == "inside":
            self.second = np.maximum(grown + knobs.epsilon, np.abs(gradient))
        else:
            self.second = np.maximum(grown, np.abs(gradient) + knobs.epsilon)
        return rate / (1 - knobs.beta1**self.step) * self.first / self.second


_RULES: Mapping[str, type[_Moments]] = {
    "sgd": _Sgd, "adam": _Adam, "rmsprop": _RmsProp, "adagrad": _Adagrad, "adadelta": _Adadelta, "adamax": _Adamax,
}  # fmt: skip
