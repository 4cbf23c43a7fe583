"""Usual losses, recognized by value and gradient with the settings they must have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from tipchain.explain.locate.trace import put_back, take_out
from tipchain.framework_types import Array, Function, Nested, Options, Tensor
from tipchain.numbers.tolerance import NOISE, REMAINDER, ROUGH, SAME_DOUBLE, SAME_ENLARGED, SAME_SINGLE, TINY

# Two losses that differ, and what hypotheses about them are held against.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A loss: its value, and its gradient with respect to each output."""

    value: float
    gradients: tuple[Array, ...]

    def scaled(self, factor: float) -> Evaluated:
        """Return a multiple of the loss."""
        return Evaluated(value=self.value * factor, gradients=tuple(one * factor for one in self.gradients))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guess:
    """A hypothesis: what one loss would be if it held.

    Attributes:
        code: a slug.
        message: one sentence.
        fix: the line to change.
        evidence: what was tried.
        found: the loss under the hypothesis.
        side: which loss it should be: 1 the port's, made of the reference's; 0 the other way round.
        gradient_only: the value cannot be predicted.
    """

    code: str
    message: str
    fix: str
    evidence: str
    found: Evaluated
    side: int = 1
    gradient_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Two losses of the same outputs.

    Attributes:
        expected: the reference's.
        actual: the port's.
        outputs: what both were given.
        labels: likewise: an array, or arrays in tuples, lists and mappings.
        run: ``(side, outputs, labels)`` returns a loss of others, None where it raises; side 0 is the reference.
    """

    expected: Evaluated
    actual: Evaluated
    outputs: tuple[Array, ...]
    labels: Nested
    run: Callable[[int, Sequence[Array], Nested], Evaluated | None]

    @property
    def targets(self) -> list[Array]:
        """The arrays of the labels: one, or several."""
        arrays: list[Array] = take_out(self.labels, _is_array)[1]
        return arrays

    def relabelled(self, number: int, array: Array) -> object:
        """Return the labels with another array in place of one."""
        structure, arrays, _ = take_out(self.labels, _is_array)
        return put_back(structure, [*arrays[:number], array, *arrays[number + 1 :]])

    def explained(self, guess: Guess) -> float:
        """Return the share of the difference that a hypothesis takes away, in value or gradient, where that is less."""
        return max(0.0, self.closeness(guess))

    def closeness(self, guess: Guess) -> float:
        """Return that share, negative where a hypothesis makes the difference larger."""
        target = (self.expected, self.actual)[guess.side]
        shares = (
            []
            if guess.gradient_only
            else [_left(guess.found.value - target.value, self.actual.value - self.expected.value, target.value)]
        )
        one, other, found, wanted = (
            np.concatenate([gradient.reshape(-1) for gradient in loss.gradients] or [np.zeros(0)])
            for loss in (self.expected, self.actual, guess.found, target)
        )
        shares.append(
            _left(
                float(np.linalg.norm(found - wanted)), float(np.linalg.norm(other - one)), float(np.linalg.norm(wanted))
            )
        )
        return 1 - max(shares) if np.isfinite(shares).all() else -1e9


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _left(residual: float, apart: float, size: float) -> float:
    """Return what is left of a difference; one that is none, or NaN, counts as a ten-thousandth of the size."""
    scale = max(abs(apart) if np.isfinite(apart) else 0.0, REMAINDER * abs(size))
    return abs(residual) / scale if scale else (1.0 if residual else 0.0)


# Usual losses recognized by their gradients, with the settings they must have.
#
# Sources: https://docs.pytorch.org/docs/stable/nn.functional.html#loss-functions and
# https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/Overview_en.html#loss-layers.


MOST_CLASSES, MOST_ENTRIES = 64, 200_000
"""Classes and entries of an output up to which weights by class are solved for along with smoothing: a dense system."""
MOST_FOCUS = 10.0
"""Largest gamma that is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognized:
    """A loss as a formula.

    Attributes:
        family: its name: ``cross entropy of logits``, ``squared error``, ``Huber``.
        knobs: its settings.
        value: the value that the formula gives.
        gradient: its gradient with respect to the output.
    """

    family: str
    knobs: Options
    value: float
    gradient: Array


def recognize(output: Array, label: Array, gradient: Array) -> Iterator[Recognized]:
    """Yield the formulas that have a gradient with respect to an output, the simplest first."""
    if not np.isfinite(gradient).all() or not gradient.any():
        return
    with np.errstate(all="ignore"):
        if label.dtype.kind in "iub" and output.ndim > 1 and label.size < output.size:
            yield from _cross_entropy(output, label, gradient)
            yield from _focal(output, label, gradient)
        if label.shape == output.shape or label.size == output.size:
            target = label.reshape(output.shape).astype(np.float64)
            yield from _regression(output, target, gradient)
            if target.min() >= 0 and target.max() <= 1:
                yield from _binary(output, target, gradient)
                yield from _binary_focal(output, target, gradient)
            if output.ndim > 1 and target.min() >= 0:
                yield from _divergence(output, target, gradient)


def log_softmax(logits: Array, axis: int = 1) -> Array:
    """Return the logarithm of softmax along an axis."""
    shifted = logits - logits.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def rows_of(array: Array) -> Array:
    """Return ``[n, classes, ...]`` as ``[places, classes]``."""
    return np.moveaxis(array, 1, -1).reshape(-1, array.shape[1])


def _cross_entropy(output: Array, label: Array, gradient: Array) -> Iterator[Recognized]:
    axes = [axis for axis in range(output.ndim) if output.size // output.shape[axis] == label.size]
    for axis in sorted(axes, key=lambda one: one != 1):
        order = [one for one in range(output.ndim) if one != axis]
        logits, rows = (np.transpose(one, (*order, axis)).reshape(-1, output.shape[axis]) for one in (output, gradient))
        labels = label.reshape(-1).astype(np.int64)
        yield from _normalized_elsewhere(output, label, gradient, axis)
        logs = log_softmax(logits)
        for name, given, chances in (
            ("logits", logs, np.exp(logs)),
            ("log-probabilities", logits, np.zeros_like(logs)),
        ):
            found = _weighted(given, labels, rows, chances)
            if found is not None:
                shape = [output.shape[one] for one in (*order, axis)]
                fitted = found[2].reshape(shape).transpose(np.argsort((*order, axis)))
                yield Recognized(
                    family=f"cross entropy of {name}", knobs={**found[0], "axis": axis}, value=found[1], gradient=fitted
                )


def _normalized_elsewhere(output: Array, label: Array, gradient: Array, axis: int) -> Iterator[Recognized]:
    """Recognize a cross entropy whose softmax runs over another axis than the classes'."""
    classes = output.shape[axis]
    labels = np.expand_dims(label.reshape([size for at, size in enumerate(output.shape) if at != axis]), axis)
    if labels.min() < 0 or labels.max() >= classes:
        return
    hot = (labels == np.arange(classes).reshape([-1 if at == axis else 1 for at in range(output.ndim)])).astype(
        np.float64
    )
    for other in range(output.ndim):
        if other == axis:
            continue
        logs = log_softmax(output, other)
        slope = np.exp(logs) * hot.sum(axis=other, keepdims=True) - hot
        scale = float((slope * gradient).sum() / max(float((slope**2).sum()), TINY))
        if scale and np.linalg.norm(scale * slope - gradient) <= REMAINDER * np.linalg.norm(gradient):
            knobs = {
                "smoothing": 0.0,
                "weights": {},
                "form": "",
                "ignored": (),
                "scale": scale * label.size,
                "axis": other,
            }
            yield Recognized(
                family="cross entropy of logits",
                knobs=knobs,
                value=-scale * float((hot * logs).sum()),
                gradient=scale * slope,
            )


def _weighted(logs: Array, labels: Array, rows: Array, chances: Array) -> tuple[dict[str, object], float, Array] | None:
    """Return the settings of a cross entropy that has a gradient, its value, and the fitted gradient.

    The settings are ``smoothing``, ``weights`` by label (their mean over the samples that count is 1), ``ignored`` labels
    and ``scale``: what the mean or sum of the samples' losses is multiplied by.
    """
    classes = rows.shape[1]
    valid = (labels >= 0) & (labels < classes)
    hard = chances.copy()
    hard[valid] -= np.eye(classes)[labels[valid]]
    sizes = np.linalg.norm(hard, axis=1)
    zero = (np.abs(rows).max(axis=1) <= SAME_DOUBLE * np.abs(rows).max()) & (sizes > SAME_SINGLE * sizes.max())
    ignored = {int(one) for one in labels[zero]} | {int(one) for one in labels[~valid]}
    counts = ~np.isin(labels, sorted(ignored))
    if not counts.any() or rows[~counts].any():
        return None
    part, given, chosen, seen = hard[counts], rows[counts], labels[counts], logs[counts]
    picked = -seen[np.arange(len(chosen)), chosen]
    limit = REMAINDER * float(np.linalg.norm(given))
    # The loss is (1 - e) times that of the hard labels, and e times that of even ones.
    even = chances[counts] - 1 / classes
    (one, other), *_ = np.linalg.lstsq(np.stack([part.ravel(), even.ravel()], axis=1), given.ravel(), rcond=None)
    fitted, weights, scale = one * part + other * even, dict[int, float](), float(one + other)
    value = float(one * picked.sum() - other * seen.mean(axis=1).sum())
    smoothing = float(other / scale) if scale and abs(other / scale) > SAME_SINGLE else 0.0
    if np.linalg.norm(fitted - given) > limit:
        factors = (given * part).sum(axis=1) / np.maximum((part**2).sum(axis=1), TINY)
        weights = {int(label): float(np.median(factors[chosen == label])) for label in np.unique(chosen)}
        per_row = np.array([weights[int(label)] for label in chosen])
        fitted, value, smoothing = per_row[:, None] * part, float((per_row * picked).sum()), 0.0
        scale = float(per_row.mean())
        weights = {label: factor / (scale or 1.0) for label, factor in weights.items()}
    form = ""
    if np.linalg.norm(fitted - given) > limit or not scale:
        hot = np.eye(classes)[chosen]
        both = _soft_weighted(chances[counts], hot, given, seen)
        if both is None:
            return None
        smoothing, weights, form, scale, value, fitted = both
        weights = {label: weights[label] for label in map(int, np.unique(chosen))}
        mean = float(np.mean([weights[int(label)] for label in chosen])) or 1.0
        weights, scale = {label: one / mean for label, one in weights.items()}, scale * mean
    whole = np.zeros_like(rows)
    whole[counts] = fitted
    knobs = {
        "smoothing": smoothing,
        "weights": weights,
        "form": form,
        "ignored": tuple(sorted(ignored)),
        "scale": scale * len(chosen),
    }
    return knobs, value, whole


def _soft_weighted(
    chances: Array, soft: Array, given: Array, logs: Array
) -> tuple[float, dict[int, float], str, float, float, Array] | None:
    """Return smoothing, weights by class, their form, scale, value and fitted gradient of a cross entropy of soft labels.

    The forms: ``"terms"`` weigh each class's term of a sample, as torch does; ``"samples"`` each sample's whole loss by the
    mean of its labels' weights, as Paddle does.
    """
    count, classes = soft.shape
    if classes > MOST_CLASSES or count * classes > MOST_ENTRIES:
        return None
    limit = REMAINDER * float(np.linalg.norm(given))
    # Each class's term is linear in its weight, once for its share of the labels and once for that of even ones.
    terms = chances[:, None, :] - np.eye(classes)[None]
    columns = np.concatenate([soft[:, :, None] * terms, terms / classes], axis=1)
    used = np.flatnonzero(np.abs(columns).sum(axis=(0, 2)))
    basis = np.moveaxis(columns[:, used], 1, -1).reshape(-1, len(used))
    solved, *_ = np.linalg.lstsq(basis, given.ravel(), rcond=None)
    fitted = (basis @ solved).reshape(given.shape)
    if np.linalg.norm(fitted - given) <= limit:
        both = np.zeros(2 * classes)
        both[used] = solved
        own, even = both[:classes], both[classes:]
        total = own + even
        seen = soft.sum(axis=0) > 0
        smoothing = float(np.median(even[seen] / np.where(total[seen], total[seen], 1.0)))
        if np.abs(even[seen] - smoothing * total[seen]).max() <= ROUGH * np.abs(total[seen]).max():
            weights = np.where(seen, total, even / smoothing if smoothing else 0.0)
            scale = float(weights[seen].mean())
            value = -float((logs * (soft * own + even / classes)).sum())
            return (
                _small(smoothing),
                dict(enumerate((weights / (scale or 1.0)).tolist())),
                "terms",
                scale,
                value,
                fitted,
            )
    return _weighted_samples(chances, soft, given, logs)


def _weighted_samples(
    chances: Array, soft: Array, given: Array, logs: Array
) -> tuple[float, dict[int, float], str, float, float, Array] | None:
    classes = soft.shape[1]
    one, other = chances - soft, chances - 1 / classes
    dots = [[(a * b).sum(axis=1) for b in (one, other)] for a in (one, other)]
    wanted = (one * given).sum(axis=1), (other * given).sum(axis=1)
    square = dots[0][0] * dots[1][1] - dots[0][1] ** 2
    told = square > SAME_DOUBLE * dots[0][0] * dots[1][1]
    if not told.any():
        return None
    own = np.where(told, (wanted[0] * dots[1][1] - wanted[1] * dots[0][1]) / np.where(told, square, 1.0), 0.0)
    even = np.where(told, (wanted[1] * dots[0][0] - wanted[0] * dots[0][1]) / np.where(told, square, 1.0), 0.0)
    smoothing = float(np.median((even / np.where(own + even, own + even, 1.0))[told]))
    mixed = (1 - smoothing) * one + smoothing * other
    factors = (mixed * given).sum(axis=1) / (mixed**2).sum(axis=1)
    fitted = factors[:, None] * mixed
    smooth = (1 - smoothing) * soft + smoothing / classes
    weights, *_ = np.linalg.lstsq(smooth, factors, rcond=None)
    unlike = np.abs(smooth @ weights - factors).max() > ROUGH * np.abs(factors).max()
    if np.linalg.norm(fitted - given) > REMAINDER * float(np.linalg.norm(given)) or unlike:
        return None
    scale = float(weights[soft.sum(axis=0) > 0].mean())
    value = -float((factors * (smooth * logs).sum(axis=1)).sum())
    return (_small(smoothing), dict(enumerate((weights / (scale or 1.0)).tolist())), "samples", scale, value, fitted)


def _small(share: float) -> float:
    return share if abs(share) > SAME_SINGLE else 0.0


def _focal(output: Array, label: Array, gradient: Array) -> Iterator[Recognized]:
    """Recognize a focal cross entropy of classes: its focus, and its factor, one for all or one for each class."""
    if output.size != label.size * output.shape[1]:
        return
    labels = label.reshape(-1).astype(np.int64)
    if labels.min() < 0 or labels.max() >= output.shape[1]:
        return
    logs = log_softmax(rows_of(output))
    hard = np.exp(logs) - np.eye(output.shape[1])[labels]
    rows = rows_of(gradient)
    factors = (rows * hard).sum(axis=1) / np.maximum((hard**2).sum(axis=1), TINY)
    if np.linalg.norm(factors[:, None] * hard - rows) > REMAINDER * np.linalg.norm(rows):
        return
    picked = logs[np.arange(len(labels)), labels]
    weights = np.abs(hard).sum(axis=1)
    for names in (np.zeros_like(labels), labels):
        found = _focus(factors, picked, names, weights)
        if found is None:
            continue
        gamma, sizes = found
        scale = float(np.mean([sizes[int(one)] for one in names]))
        each = np.array([sizes[int(one)] for one in names])
        value = -float((each * (1 - np.exp(picked)) ** gamma * picked).sum())
        fitted = (each * _slope(picked, gamma))[:, None] * hard
        shape = (output.shape[0], *output.shape[2:], output.shape[1])
        alphas = {} if len(sizes) == 1 else {one: size / scale for one, size in sizes.items()}
        yield Recognized(
            family="focal cross entropy",
            value=value,
            gradient=np.moveaxis(fitted.reshape(shape), -1, 1),
            knobs={"gamma": gamma, "alphas": alphas, "scale": scale * len(labels)},
        )
        return


def _binary_focal(output: Array, target: Array, gradient: Array) -> Iterator[Recognized]:
    """Recognize a focal loss of yes and no: its focus, and the share alpha of the positive."""
    if not np.isin(target, (0, 1)).all():
        return
    x, bits = output.reshape(-1), target.reshape(-1).astype(np.int64)
    signs = 2.0 * bits - 1
    logs = -np.logaddexp(0, -signs * x)
    hard = -signs * -np.expm1(logs)
    factors = gradient.reshape(-1) / np.where(hard, hard, 1.0)
    found = _focus(factors, logs, bits, np.abs(hard))
    if found is None or len(found[1]) != 2:
        yield from _asymmetric(output, bits, factors, logs, hard)
        return
    gamma, sizes = found
    each = np.array([sizes[int(one)] for one in bits])
    yield Recognized(
        family="binary focal loss",
        value=-float((each * (-np.expm1(logs)) ** gamma * logs).sum()),
        gradient=(each * _slope(logs, gamma) * hard).reshape(output.shape),
        knobs={
            "gamma": gamma,
            "gamma_neg": gamma,
            "alpha": sizes[1] / (sizes[0] + sizes[1]),
            "scale": (sizes[0] + sizes[1]) * len(x),
        },
    )


def _asymmetric(output: Array, bits: Array, factors: Array, logs: Array, hard: Array) -> Iterator[Recognized]:
    """Recognize a focal loss of yes and no with a focus of its own for each."""
    parts = [
        (
            bits == kind,
            _focus(
                factors[bits == kind], logs[bits == kind], bits[bits == kind], np.abs(hard[bits == kind]), plain=True
            ),
        )
        for kind in (0, 1)
    ]
    value, fitted, known = 0.0, np.zeros(len(bits)), []
    for at, found in parts:
        if found is None:
            return
        gamma, size = found[0], next(iter(found[1].values()))
        value -= float((size * (-np.expm1(logs[at])) ** gamma * logs[at]).sum())
        fitted[at] = size * _slope(logs[at], gamma) * hard[at]
        known.append((gamma, size))
    if max(known[0][0], known[1][0]) < ROUGH:
        return  # a plain one, with weights
    total = known[0][1] + known[1][1]
    yield Recognized(
        family="binary focal loss",
        value=value,
        gradient=fitted.reshape(output.shape),
        knobs={
            "gamma": known[1][0],
            "gamma_neg": known[0][0],
            "alpha": known[1][1] / total,
            "scale": total * len(bits),
        },
    )


def _slope(logs: Array, gamma: float) -> Array:
    """Return how much steeper or flatter than a cross entropy's a focal loss's slope is, by the label's log-probability."""
    rest = np.maximum(-np.expm1(logs), TINY)
    return np.asarray(rest**gamma - gamma * np.exp(logs) * rest ** (gamma - 1) * logs)


def _focus(
    factors: Array, logs: Array, names: Array, weights: Array, *, plain: bool = False
) -> tuple[float, dict[int, float]] | None:
    """Return gamma and the factor of each name, with which slopes are as found; None where none are; gamma 0 if ``plain``."""
    kinds = np.unique(names)
    if len(factors) < len(kinds) + 2:
        return None

    def fit(gamma: float) -> tuple[float, dict[int, float]]:
        slope = _slope(logs, gamma) * weights
        wanted = factors * weights
        sizes, left = {}, 0.0
        for kind in kinds:
            at = names == kind
            sizes[int(kind)] = float(slope[at] @ wanted[at] / max(float(slope[at] @ slope[at]), TINY))
            left += float(((wanted[at] - sizes[int(kind)] * slope[at]) ** 2).sum())
        return left, sizes

    grid = np.linspace(0, MOST_FOCUS, 41)
    at = int(np.argmin([fit(float(gamma))[0] for gamma in grid]))
    low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, len(grid) - 1)])
    for _ in range(60):
        third = (high - low) / 3
        low, high = (low, high - third) if fit(low + third)[0] <= fit(high - third)[0] else (low + third, high)
    gamma = (low + high) / 2
    short = float(f"{gamma:.4g}")
    gamma = short if fit(short)[0] <= 4 * fit(gamma)[0] + NOISE * float(((factors * weights) ** 2).sum()) else gamma
    left, sizes = fit(gamma)
    if (
        left > REMAINDER**2 * float(((factors * weights) ** 2).sum())
        or (gamma < ROUGH and not plain)
        or not all(sizes.values())
    ):
        return None
    return gamma, sizes


def _binary(output: Array, target: Array, gradient: Array) -> Iterator[Recognized]:
    """Recognize binary cross entropy of logits, or of probabilities."""
    bounded = output.min() > 0 and output.max() < 1
    for name in ("logits", "probabilities") if bounded else ("logits",):
        if name == "logits":
            chance = 1 / (1 + np.exp(-output))
            positive, negative = -target * (1 - chance), (1 - target) * chance
            logs = -np.logaddexp(0, -output), -np.logaddexp(0, output)
        else:
            positive, negative = -target / output, (1 - target) / (1 - output)
            logs = np.log(output), np.log1p(-output)
        basis = np.stack([positive.ravel(), negative.ravel()], axis=1)
        (one, other), *_ = np.linalg.lstsq(basis, gradient.ravel(), rcond=None)
        fitted = (basis @ [one, other]).reshape(gradient.shape)
        if other and np.linalg.norm(fitted - gradient) <= REMAINDER * np.linalg.norm(gradient):
            value = -float((one * target * logs[0] + other * (1 - target) * logs[1]).sum())
            yield Recognized(
                family=f"binary cross entropy of {name}",
                value=value,
                gradient=fitted,
                knobs={"scale": float(other), "pos_weight": float(one / other)},
            )


def _regression(output: Array, target: Array, gradient: Array) -> Iterator[Recognized]:
    apart = output - target
    forms: list[tuple[str, dict[str, float], Array, Array]] = [
        ("squared error", {}, apart, apart**2 / 2),
        ("absolute error", {}, np.sign(apart), np.abs(apart)),
        ("log-cosh", {}, np.tanh(apart), np.log(np.cosh(apart))),
    ]
    beta = _knee(apart, gradient)
    if beta is not None:
        inside = np.abs(apart) < beta
        forms.append(
            (
                "Huber",
                {"beta": beta},
                np.where(inside, apart / beta, np.sign(apart)),
                np.where(inside, apart**2 / (2 * beta), np.abs(apart) - beta / 2),
            )
        )
    for name, knobs, slope, height in forms:
        scale = float((slope * gradient).sum() / max(float((slope**2).sum()), TINY))
        if scale and np.linalg.norm(scale * slope - gradient) <= REMAINDER * np.linalg.norm(gradient):
            yield Recognized(
                family=name, knobs={**knobs, "scale": scale}, value=float(scale * height.sum()), gradient=scale * slope
            )


def _knee(apart: Array, gradient: Array) -> float | None:
    """Return where a gradient that is linear near zero stops to grow, None where it does neither."""
    size, slope = np.abs(gradient).ravel(), np.abs(apart).ravel()
    top = size.max()
    flat, inner = size >= top * (1 - SAME_SINGLE), size < top * (1 - SAME_SINGLE)
    if not inner.any() or flat.sum() < 2:
        return None
    beta = float(top / np.median(size[inner] / np.maximum(slope[inner], TINY)))
    return beta if np.isfinite(beta) and beta > 0 else None


def _divergence(output: Array, target: Array, gradient: Array) -> Iterator[Recognized]:
    """Recognize the divergence of labels from softmax of logits, or from log-probabilities, and the reversed ones."""
    logs = log_softmax(output)
    chances = np.exp(logs)
    total = target.sum(axis=1, keepdims=True)
    wanted = np.log(np.maximum(target, TINY))
    entropy = float(np.where(target > 0, target * wanted, 0.0).sum())
    gap = logs - wanted
    forms: list[tuple[str, Array, float]] = [
        ("soft cross entropy of logits", chances * total - target, -float((target * logs).sum())),
        ("Kullback-Leibler of logits", chances * total - target, entropy - float((target * logs).sum())),
        (
            "reversed Kullback-Leibler of logits",
            chances * (gap - (chances * gap).sum(axis=1, keepdims=True)),
            float((chances * gap).sum()),
        ),
        ("Kullback-Leibler of log-probabilities", -target, entropy - float((target * output).sum())),
    ]
    if output.max() <= 0:
        forms.append(
            (
                "reversed Kullback-Leibler of log-probabilities",
                np.exp(output) * (output - wanted + 1),
                float((np.exp(output) * (output - wanted)).sum()),
            )
        )
    plain = {"smoothing": 0.0, "weights": {}, "form": ""}
    found = False
    for name, slope, height in forms:
        scale = float((slope * gradient).sum() / max(float((slope**2).sum()), TINY))
        if scale and np.linalg.norm(scale * slope - gradient) <= REMAINDER * np.linalg.norm(gradient):
            found = True
            knobs = {**(plain if name.startswith("soft") else {}), "scale": scale}
            yield Recognized(family=name, knobs=knobs, value=scale * height, gradient=scale * slope)
    if not found and np.allclose(total, 1, atol=SAME_ENLARGED):
        both = _soft_weighted(*(rows_of(one) for one in (chances, target, gradient, logs)))
        if both is not None:
            smoothing, weights, form, scale, value, fitted = both
            shape = (output.shape[0], *output.shape[2:], output.shape[1])
            alike = np.ptp(list(weights.values())) <= ROUGH
            yield Recognized(
                family="soft cross entropy of logits",
                value=value,
                gradient=np.moveaxis(fitted.reshape(shape), -1, 1),
                knobs={
                    "smoothing": smoothing,
                    "weights": {} if alike else weights,
                    "form": "" if alike else form,
                    "scale": scale,
                },
            )


# Losses with a setting of their own (a margin, a focus), recognized by value and gradient, and the setting that differs.
#
# Sources: ``torch/nn/functional.py`` of triplet_margin_loss, cosine_embedding_loss, margin_ranking_loss,
# hinge_embedding_loss and multi_margin_loss; Lin et al., Focal loss, arXiv:1708.02002; Milletari et al. (Dice),
# arXiv:1606.04797.


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
    make: Callable[[Sequence[Tensor], Tensor, float], Tensor]
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
    return made(
        code,
        f"the port's loss is {_named(theirs)}, the reference's {_named(ours)}",
        f"use the loss of the reference: {_named(ours)}",
    )


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
    apart = np.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(one.gradients, other.gradients, strict=True)))
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

    def distance(one: object, other: object) -> object:
        return functional.pairwise_distance(one, other)

    def squared(one: Tensor, other: Tensor) -> object:
        return ((one - other) ** 2).sum(1)

    for name, far in (("the triplet margin loss", distance), ("the triplet margin loss of squared distances", squared)):
        for order in permutations(range(3)):
            words = ", ".join(f"output {one}" for one in order)

            def make(
                given: Sequence[Tensor], _: object, margin: float, far: Function = far, order: Sequence[int] = order
            ) -> Tensor:
                anchor, near, other = (given[one] for one in order)
                return (far(anchor, near) - far(anchor, other) + margin).relu()

            yield Family(name=f"{name} (of {words})", make=make, knob="margin", code="margin", usual=_MARGINS)


def _pairs() -> Iterator[Family]:
    from torch.nn import functional

    def cosine(given: Sequence[Tensor], labels: Tensor, margin: float) -> object:
        one, other = given
        return functional.cosine_embedding_loss(one, other, labels.reshape(-1), margin=margin, reduction="none")

    def ranking(given: Sequence[Tensor], labels: Tensor, margin: float) -> object:
        signs = labels.reshape(-1)
        one, other = (each.reshape(-1) if each.numel() == signs.numel() else each[:, 0] for each in given)
        return functional.margin_ranking_loss(one, other, signs, margin=margin, reduction="none")

    margins = (-1.0, -0.5, *_MARGINS)
    yield Family(name="the cosine embedding loss", make=cosine, knob="margin", code="margin", usual=margins)
    yield Family(name="the margin ranking loss", make=ranking, knob="margin", code="margin", usual=margins)


def _of_classes(classes: int) -> Iterator[Family]:
    from torch.nn import functional

    def focal(given: Sequence[Tensor], labels: Tensor, gamma: float) -> object:
        entropy = functional.cross_entropy(given[0], labels.long(), reduction="none")
        return (1 - (-entropy).exp()) ** gamma * entropy if gamma else entropy

    def probability(given: Sequence[Tensor], labels: Tensor, _: float) -> Tensor:
        return functional.nll_loss(given[0].softmax(1), labels.long(), reduction="none")

    def binary(given: Sequence[Tensor], labels: Tensor, _: float) -> object:
        hot = functional.one_hot(labels.long(), classes).movedim(-1, 1).double()
        return functional.binary_cross_entropy_with_logits(given[0], hot, reduction="none")

    yield Family(name=_focal_name, make=focal, knob="gamma", code="focal-gamma", usual=_FOCI)
    yield Family(name=_probability_name, make=probability)
    yield Family(name="the binary cross entropy of each class", make=binary)
    for power in (1, 2):

        def hinge(given: Sequence[Tensor], labels: Tensor, margin: float, power: int = power) -> object:
            return functional.multi_margin_loss(given[0], labels.long(), p=power, margin=margin, reduction="none")

        yield Family(
            name=f"the multi margin loss of power {power}", make=hinge, knob="margin", code="margin", usual=_MARGINS
        )


def _of_targets(labels: Array) -> Iterator[Family]:
    from torch.nn import functional

    if set(np.unique(labels)[:3]) <= {-1, 1}:

        def hinge(given: Sequence[Tensor], signs: Tensor, margin: float) -> object:
            return functional.hinge_embedding_loss(given[0], signs, margin=margin, reduction="none")

        yield Family(name="the hinge embedding loss", make=hinge, knob="margin", code="margin", usual=_MARGINS)
    if labels.min() < 0 or labels.max() > 1:
        return

    def focused(given: Sequence[Tensor], bits: Tensor, alpha: float, gamma: float) -> object:
        entropy = functional.binary_cross_entropy_with_logits(given[0], bits.double(), reduction="none")
        chance = given[0].sigmoid()
        right = chance * bits + (1 - chance) * (1 - bits)
        share = alpha * bits + (1 - alpha) * (1 - bits) if alpha >= 0 else 1.0
        return share * ((1 - right) ** gamma if gamma else 1.0) * entropy

    def dice(given: Sequence[Tensor], bits: Tensor, smooth: float) -> object:
        chance = given[0].sigmoid()
        return 1 - (2 * (chance * bits).sum() + smooth) / (chance.sum() + bits.sum() + smooth)

    for alpha in (0.25, 0.5, 0.75, -1.0):

        def of_gamma(given: Sequence[Tensor], bits: Tensor, gamma: float, alpha: float = alpha) -> object:
            return focused(given, bits, alpha, gamma)

        yield Family(
            name=f"the focal loss of alpha {alpha:g}", make=of_gamma, knob="gamma", code="focal-gamma", usual=_FOCI
        )
    for gamma in _FOCI[:-1]:

        def of_alpha(given: Sequence[Tensor], bits: Tensor, alpha: float, gamma: float = gamma) -> object:
            return focused(given, bits, alpha, gamma)

        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        yield Family(
            name=f"the focal loss of gamma {gamma:g}", make=of_alpha, knob="alpha", code="focal-alpha", usual=shares
        )
    yield Family(name="the Dice loss", make=dice, knob="smoothing constant", code="smoothing-constant", usual=_SMOOTH)
