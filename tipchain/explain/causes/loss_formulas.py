"""Usual losses, recognized by value and gradient with the settings they must have; and what makes one of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from tipchain.explain.causes.update_formulas import descend
from tipchain.explain.findings import Cause
from tipchain.explain.locate.trace import is_array, take_out
from tipchain.framework_types import Array, Nested, Options, Setting
from tipchain.numbers.tolerance import CONSTANT, NOISE, REMAINDER, ROUGH, SAME_DOUBLE, SAME_SINGLE, TINY


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A loss: its value, and its gradient with respect to each output."""

    value: float
    gradients: tuple[Array, ...]

    @property
    def flat(self) -> Array:
        """All gradients as one vector."""
        return np.concatenate([one.reshape(-1) for one in self.gradients] or [np.zeros(0)])

    def scaled(self, factor: float) -> Evaluated:
        """Return a multiple of the loss."""
        return Evaluated(value=self.value * factor, gradients=tuple(one * factor for one in self.gradients))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guess(Cause):
    """A hypothesis: what one loss would be if it held.

    Attributes:
        evidence: what was tried.
        found: the loss under the hypothesis.
        gradient_only: the value cannot be predicted.
    """

    evidence: str
    found: Evaluated
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
        arrays: list[Array] = take_out(self.labels, is_array)[1]
        return arrays

    def explained(self, guess: Guess) -> float:
        """Return the share of the difference that a hypothesis takes away, in value or gradient, where that is less."""
        target = self.actual
        shares = (
            []
            if guess.gradient_only
            else [_left(guess.found.value - target.value, target.value - self.expected.value, target.value)]
        )
        gaps = guess.found.flat - target.flat, target.flat - self.expected.flat, target.flat
        shares.append(_left(*(float(np.linalg.norm(one)) for one in gaps)))
        return max(0.0, 1 - max(shares)) if np.isfinite(shares).all() else 0.0


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
            if label.size * output.shape[1] == output.size:
                hot = np.moveaxis(
                    label.reshape(output.shape[0], *output.shape[2:])[..., None] == np.arange(output.shape[1]), -1, 1
                )
                yield from _binary(output, hot.astype(np.float64), gradient)
        if label.shape == output.shape or label.size == output.size:
            target = label.reshape(output.shape).astype(np.float64)
            yield from _regression(output, target, gradient)
            if target.min() >= 0 and target.max() <= 1:
                yield from _binary(output, target, gradient)
                yield from _binary_focal(output, target, gradient)


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
        return
    gamma, sizes = found
    each = np.array([sizes[int(one)] for one in bits])
    yield Recognized(
        family="binary focal loss",
        value=-float((each * (-np.expm1(logs)) ** gamma * logs).sum()),
        gradient=(each * _slope(logs, gamma) * hard).reshape(output.shape),
        knobs={"gamma": gamma, "alpha": sizes[1] / (sizes[0] + sizes[1]), "scale": (sizes[0] + sizes[1]) * len(x)},
    )


def _slope(logs: Array, gamma: float) -> Array:
    """Return how much steeper or flatter than a cross entropy's a focal loss's slope is, by the label's log-probability."""
    rest = np.maximum(-np.expm1(logs), TINY)
    return np.asarray(rest**gamma - gamma * np.exp(logs) * rest ** (gamma - 1) * logs)


def _focus(factors: Array, logs: Array, names: Array, weights: Array) -> tuple[float, dict[int, float]] | None:
    """Return gamma and the factor of each name, with which slopes are as found; None where none are."""
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

    gamma, _ = descend(lambda one: fit(one)[0], np.linspace(0, MOST_FOCUS, 41))
    short = float(f"{gamma:.4g}")
    gamma = short if fit(short)[0] <= 4 * fit(gamma)[0] + NOISE * float(((factors * weights) ** 2).sum()) else gamma
    left, sizes = fit(gamma)
    if left > REMAINDER**2 * float(((factors * weights) ** 2).sum()) or gamma < ROUGH or not all(sizes.values()):
        return None
    return gamma, sizes


def _binary(output: Array, target: Array, gradient: Array) -> Iterator[Recognized]:
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


BASES = {"2": log(2), "10": log(10)}
"""Logarithms to these bases instead of e."""


def factors(problem: Problem) -> Iterator[Guess]:
    """Yield the one factor between two losses, with what it may stand for."""
    one, other = problem.expected.flat, problem.actual.flat
    square = float(one @ one)
    factor = float(one @ other) / square if square else 0.0
    if not square and problem.expected.value:
        factor = problem.actual.value / problem.expected.value
    if not factor or abs(factor - 1) < SAME_DOUBLE:
        return
    meant = ((code, words) for size, code, words in _meanings(problem) if abs(factor / size - 1) < SAME_SINGLE)
    code, words = next(meant, ("loss-scale", ""))
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
    expected, actual = ours.knobs["scale"], theirs.knobs["scale"]
    if ours.knobs.get("weights") and abs(actual - expected) > REMAINDER:
        words = (
            f"both losses weigh classes alike, but the port's mean is {actual / expected:.6g} times "
            "the reference's: one divides by the sum of the weights, the other by the number of samples"
        )
        return made("reduction", words, "divide by the sum of the weights, as reduction='mean' does")
    if (
        ours.family.endswith(("focal cross entropy", "focal loss"))
        and max(abs(actual), abs(expected)) <= 1 + REMAINDER
        and abs(actual - expected) > REMAINDER
    ):
        # A mean of samples times a factor of at most 1, as alpha is; whole multiples are other reductions.
        return made(
            "focal-alpha",
            f"the port's focal loss has a factor (alpha) of {actual:.5g}, the reference's of {expected:.5g}",
            f"pass alpha={expected:.5g}",
        )
    beta = ours.knobs.get("beta")
    if beta and abs(actual / expected / beta - 1) < REMAINDER and abs(beta - 1) > REMAINDER:
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
    kinds = {one.family.partition(" of ")[0] for one in (ours, theirs)}
    return "logits" if len(kinds) == 1 else "loss-type", words, f"use the loss of the reference: {ours.family}"


def _setting_fix(knob: str, expected: Setting) -> str:
    if knob == "ignored":
        return (
            f"pass ignore_index={expected[0]}" if len(expected) == 1 else "ignore the labels that the reference ignores"
        )
    return FIXES[knob].format(expected)


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
            name = {"smoothing": "label smoothing", "pos_weight": "weight of positive labels"}.get(knob, knob)
            return f"the port's {name} is {actual:.5g}, the reference's {expected:.5g}"


def _weights(weights: Mapping[int, float]) -> str:
    if not weights:
        return "equally"
    shown = list(weights.items())[:6]
    return ", ".join(f"{label}: {one:.4g}" for label, one in shown) + (", …" if len(weights) > len(shown) else "")
