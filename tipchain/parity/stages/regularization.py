"""Step 7 of the guide, regularization: the part of weight decay in the updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tipchain.errors import Outcome
from tipchain.framework_types import Array
from tipchain.numbers.compare import diff_arrays
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import Verdict
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules
from tipchain.parity.stages.optimizer import build_subject, draw, multiplied, open_variant, sample, update, variants
from tipchain.weights.structure import group_by

GRADIENTS = (0.0, 1e-4, 1e-2, 1.0)
"""Sizes of the gradients. Without any, decay alone moves the parameters; optimizers that divide by the gradient's size
show how large a decay is only beside a gradient of about its own size, and decay before clipping only beside a large one."""
UPDATES = 2
"""Updates with each size: the second shows whether decay goes through the optimizer's state."""


def record(bench: Bench) -> Recording:
    """How far the parameters move, from values of size 1 and, with the same gradients, from zero, where nothing decays.

    The dump has ``start/NAME`` and ``gradient/NAME`` (of size 1), then ``moved/NAME`` and ``free/NAME``: shape
    ``[sizes, updates, elements]``, float64; those of a variant as ``moved/VARIANT/NAME``. Before each update the
    parameters are set back to where they started.
    """
    settings = bench.case.updates
    arrays: dict[str, Array] = {}
    for prefix, args in variants(bench).items():
        model = build_subject(bench)
        shapes = open_variant(bench, model, prefix, args, settings.decay_learning_rate).shapes()
        start = draw(shapes, settings.seed, UPDATES)
        gradients = [draw(shapes, settings.seed, number) for number in range(UPDATES)]
        for name in shapes:
            arrays[f"start/{name}"] = sample(start[name]).reshape(-1)
            arrays[f"gradient/{name}"] = np.stack([sample(one[name]).reshape(-1) for one in gradients])
        for kind, values in (("moved", start), ("free", multiplied(start, 0.0))):
            moved: dict[str, list[Array]] = {name: [] for name in shapes}
            for size in GRADIENTS:
                updates = open_variant(bench, model, prefix, args, settings.decay_learning_rate)
                for gradient in gradients:
                    update(updates, values, multiplied(gradient, size))
                    for name, rows in moved.items():
                        # The difference of two float32 is exact in float64.
                        difference = sample(updates.value(name)).astype(np.float64) - sample(values[name])
                        rows.append(difference.reshape(-1))
            sizes = (len(GRADIENTS), UPDATES, -1)
            arrays |= {f"{kind}/{prefix}{name}": np.stack(rows).reshape(sizes) for name, rows in moved.items()}
    return Recording(arrays=arrays, details={"learning_rate": settings.decay_learning_rate, "sizes": GRADIENTS})


# How each side moves a parameter.


EPSILON = float(np.finfo(np.float32).eps)
FREE_NOISE = 5e-5
"""Share of an update in which correct optimizers may differ without any decay; the optimizer stage's tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movements:
    """How one side moved one parameter.

    Attributes:
        start: where it began, ``[elements]``.
        moved: how far it moved, ``[sizes, updates, elements]``.
        free: how far it moved from zero, where nothing decays.
    """

    start: Array
    moved: Array
    free: Array

    @property
    def usable(self) -> bool:
        """Whether there are movements, and all are finite."""
        return bool(self.start.size and np.isfinite(self.moved).all() and np.isfinite(self.free).all())

    @property
    def decay(self) -> Array:
        """The part of the decay, ``[sizes, updates, elements]``."""
        difference: Array = self.moved - self.free
        return difference

    @property
    def rounding(self) -> Array:
        """The part of `decay` that may be rounding, per row, ``[sizes, updates]``."""
        weights = np.abs(self.start).max() + np.abs(self.moved).max(axis=2)
        noise: Array = 8 * EPSILON * weights + FREE_NOISE * np.abs(self.free).max(axis=2)
        return noise

    @property
    def visibility(self) -> float:
        """How many times larger than its rounding the decay is, in the row where it shows best."""
        shown: Array = np.abs(self.decay).max(axis=2) / self.rounding
        return float(shown.max())

    @property
    def decays(self) -> bool:
        """Whether there is any decay beyond rounding."""
        return not self.visibility <= 1.0


# Judge regularization: what decay adds to the updates, parameter by parameter, and which parameters it touches.


STAGE = "regularization"
VISIBLE = 30.0
"""How many times its rounding a decay must be for its comparison to prove something."""
MOVED, FREE, START, GRADIENT = "moved/", "free/", "start/", "gradient/"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the part of decay, then the parameters that it touches, for the case's optimizer and each variant."""
    reference, port = dumps.reference.arrays, dumps.port.arrays
    labels = [key.removeprefix(MOVED) for key in reference if key.startswith(MOVED)]
    extra = [key.removeprefix(MOVED) for key in port if key.startswith(MOVED) and key not in reference]
    if not labels:
        return Judged(verdicts=(Verdict(Outcome.ERROR, "dump", "nothing was compared: no parameters"),))
    judged = Judged(verdicts=[Verdict(Outcome.FAIL, label, "not in the reference") for label in extra])
    unequal = [
        key
        for key in reference
        if key.startswith((START, GRADIENT)) and key in port and not np.array_equal(reference[key], port[key])
    ]
    if unequal:
        reason = f"the sides did not start equal: {', '.join(unequal)}"
        return Judged(verdicts=[Verdict(Outcome.ERROR, "inputs", reason)])
    for variant, members in group_by(labels, lambda label: label.rpartition("/")[0]).items():
        judged += _judge_variant(variant, members, dumps, rules)
    return judged


def _judge_variant(variant: str, labels: list[str], dumps: Dumps, rules: Rules) -> Judged:
    verdicts: list[Verdict] = []
    tolerances: dict[str, Tolerance] = {}
    touched: dict[str, tuple[bool, bool]] = {}
    subject = f"{variant}/decayed" if variant else "decayed"
    for label in labels:
        shape, ported = dumps.reference.arrays[MOVED + label].shape, dumps.port.arrays
        shapes = [ported[key].shape for key in (MOVED + label, FREE + label) if key in ported]
        if len(shapes) < 2:
            verdicts.append(Verdict(Outcome.FAIL, label, "missing in the port"))
        elif {shape} != {*shapes}:
            verdicts.append(Verdict(Outcome.FAIL, label, f"shapes differ: expected {shape}, actual {shapes[0]}"))
        else:
            start = np.asarray(dumps.reference.arrays[START + label.rpartition("/")[2]], dtype=np.float64)
            left, right = (
                Movements(start=start, moved=record.arrays[MOVED + label], free=record.arrays[FREE + label])
                for record in (dumps.reference, dumps.port)
            )
            rule = rules.for_arrays(STAGE, {label: left.moved})[label]
            verdict, bound = _judge_parameter(label, left, right, rule)
            verdicts.append(verdict)
            tolerances[verdict.subject] = bound
            if left.usable and right.usable:
                touched[label.rpartition("/")[2]] = (left.decays, right.decays)
    if touched and not any(any(pair) for pair in touched.values()):
        reason = "neither side decays any parameter: without gradients none moves, however high the rate"
        return Judged(verdicts=[Verdict(Outcome.SKIP, subject, reason)])
    if touched:  # which parameters decay touches at all
        only = {
            "reference": [name for name, (left, right) in touched.items() if left and not right],
            "port": [name for name, (left, right) in touched.items() if right and not left],
        }
        words = [f"in the {side} only: {', '.join(names)}" for side, names in only.items() if names]
        spared = ", ".join(name for name, (left, _) in touched.items() if not left)
        reason = "; ".join(words) or f"{f'all but {spared}' if spared else 'every parameter'}, on both sides"
        verdicts.append(Verdict(Outcome.FAIL if words else Outcome.PASS, subject, reason))
    return Judged(verdicts=verdicts, tolerances=tolerances)


def _judge_parameter(label: str, left: Movements, right: Movements, rule: Tolerance) -> tuple[Verdict, Tolerance]:
    """Hold the movement that decay makes on one side against that on the other, row by row."""
    if not left.start.size:
        return Verdict(Outcome.ERROR, label, "nothing was compared: the parameter is empty"), rule
    strange = [side for side, one in (("reference", left), ("port", right)) if not one.usable]
    if strange:
        reason = f"NaN or Inf among the updates of the {' and the '.join(strange)}"
        return Verdict(Outcome.FAIL, label, reason, finite=False), rule
    bounds = (rule.rtol or 0.0) * np.abs(left.decay).max(axis=2) + left.rounding + (rule.atol or 0.0)
    if rule.threshold is not None:
        bounds = np.full(left.rounding.shape, rule.threshold)
    apart = np.abs(left.decay - right.decay).max(axis=2)
    shares = np.divide(apart, bounds, out=np.where(apart > 0, np.inf, 0.0), where=bounds > 0)
    size, number = np.unravel_index(int(np.argmax(shares)), apart.shape)
    bound = Tolerance(method="max", threshold=float(bounds[size, number]), reason=rule.reason)
    diff = diff_arrays(label, left.decay[size, number], right.decay[size, number])
    equal = bool((apart <= bounds).all())
    if equal and left.decays and left.visibility < VISIBLE:
        outcome = Outcome.ERROR
        reason = (
            f"proves nothing: decay moves it only {left.visibility:.2g} times as far as rounding; "
            "raise  updates: {decay_learning_rate: ...}"
        )
    elif equal:
        outcome, reason = Outcome.PASS, f"max {diff.max_abs:.3g} · allowed {bound}"
    elif not (np.abs(left.free - right.free).max(axis=2) <= left.rounding).all():
        outcome = Outcome.ERROR
        reason = "cannot be told apart: the updates differ without any decay too; the optimizer stage says how"
    else:
        words = "decayed otherwise"
        if left.decays != right.decays:
            words = f"decayed in the {'reference' if left.decays else 'port'} only"
        outcome = Outcome.FAIL
        reason = (
            f"{words} · worst in update {number + 1}, element {diff.worst_index[0]}: decay moves it by "
            f"{diff.worst_expected:.9g} expected, {diff.worst_actual:.9g} actual · allowed {bound}"
        )
    return Verdict(outcome, label, reason, diff=diff), bound
