"""Step 4 of the guide, the loss: its value, its gradient with respect to the outputs, and why two differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from tipchain.errors import Outcome
from tipchain.framework_types import Array, Nested, Options
from tipchain.frameworks.base import flatten_outputs, map_nested, scalar
from tipchain.numbers.dumps import Record
from tipchain.numbers.tolerance import LOGIT_FLOOR, REMAINDER, ROUGH
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.case import LABEL
from tipchain.parity.inputs import make_loss_label, softmax
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details, scaled


def record(bench: Bench) -> Recording:
    """``loss`` and ``gradient/<output>`` on the fake inputs and label, in eval mode; then those of every variant.

    The gradient stops at the model's outputs, so that no layer of the model takes part in it. Of a variant all keys
    begin with ``<variant>/``.
    """
    output = bench.eval_output()
    named = flatten_outputs(bench.framework, output, bench.case.outputs)
    values = {name: bench.framework.array(value) for name, value in named.items()}
    arrays: dict[str, Array] = {}
    for variant, args in bench.case.loss.all().items():
        found = _run(bench, output, args)
        arrays |= {f"{variant}/{key}" if variant else key: value for key, value in found.items()}
    return Recording(arrays=arrays, details={"outputs": {name: _facts(value) for name, value in values.items()}})


def _run(bench: Bench, output: Nested, args: Options) -> dict[str, Array]:
    """Return value and gradients of the loss that ``args`` build."""
    framework = bench.framework

    def leaf(value: object) -> Nested:
        array = framework.array(value) if framework.is_tensor(value) else None
        return value if array is None or array.dtype.kind != "f" else framework.leaf(array)

    leaves = map_nested(leaf, output)
    named = flatten_outputs(framework, leaves, bench.case.outputs)
    shape = framework.array(next(iter(named.values()))).shape
    seed = bench.case.inputs[LABEL].seed
    label = framework.tensor(make_loss_label(bench.inputs[LABEL], args, shape, seed))
    loss = bench.builder("loss")(**args)(leaves, label)
    loss.backward()
    gradients = {
        f"gradient/{name}": framework.array(tensor.grad) for name, tensor in named.items() if tensor.grad is not None
    }
    return {"loss": scalar(framework.array(loss)), **gradients}


def _facts(values: Array) -> dict[str, float]:
    """Return what judging says about outputs when losses differ: their size, and how far apart they lie."""
    wide = values.astype(np.float64)
    if not wide.size:
        return {"rms": 0.0, "spread": 0.0}
    return {"rms": float(np.sqrt(np.mean(wide**2))), "spread": float(wide.max() - wide.min())}


# Why two losses differ, read off their gradients with respect to the outputs.
#
# A sum in place of a mean scales the gradient by the number of samples, class weights scale each sample's part by a
# factor of its own, an ignored sample's part is zero, smoothed targets shift every class but one by the same amount.


Pair = tuple[Array, Array]


def explain_loss(expected: float, actual: float, gradients: Sequence[Pair], spread: float) -> str:
    """Return what the differing losses suggest, or "".

    Args:
        expected: the reference's loss.
        actual: the port's.
        gradients: for each output the reference's gradient and the port's, of one shape each.
        spread: largest minus smallest output of the reference.
    """
    pairs = [(e.astype(np.float64), a.astype(np.float64)) for e, a in gradients if e.shape == a.shape and e.size]
    if not pairs or not all(np.isfinite(one).all() for pair in pairs for one in pair):
        return ""
    if all(_equal(e, a) for e, a in pairs):
        said = f"the gradients agree, so only a constant differs (by {actual - expected:.6g})"
        if spread > LOGIT_FLOOR:
            said += (
                f"; outputs lie {spread:.3g} apart, and Paddle's softmax clips outputs at 64 below the largest; "
                "tipchain.pairs.paddle_losses does not"
            )
        return said
    if len(pairs) > 1 or pairs[0][0].ndim < 2:
        return _explain_factor(pairs) or _explain_direction(pairs)
    e, a = (np.moveaxis(one, 1, -1).reshape(-1, one.shape[1]) for one in pairs[0])
    return (
        _explain_ignored(e, a)
        or _explain_factor(pairs)
        or _explain_weights(e, a)
        or _explain_smoothing(e, a)
        or _explain_softmax(e, a)
        or _explain_direction(pairs)
    )


def _equal(expected: Array, actual: Array) -> bool:
    return bool(np.abs(expected - actual).max() <= ROUGH * max(float(np.sqrt(np.mean(expected**2))), 1e-30))


def _explain_ignored(expected: Array, actual: Array) -> str:
    """Name samples whose gradient is zero on one side only."""
    zero = [np.abs(one).max(axis=1) <= 1e-6 * np.abs(one).max() for one in (expected, actual)]
    if any(rows.all() for rows in zero):
        return ""
    sides = (("port", zero[0] & ~zero[1]), ("reference", zero[1] & ~zero[0]))
    said = [f"samples {_listed(np.flatnonzero(rows))} count in the {side} only" for side, rows in sides if rows.any()]
    return f"{' and '.join(said)}: is it another ignore_index?" if said else ""


def _explain_factor(pairs: Sequence[Pair]) -> str:
    """Name a factor that all gradients have in common."""
    e, a = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    factor = _factor(e, a)
    if factor is None or abs(factor - 1) <= ROUGH:
        return ""
    said = f"the port's gradient is {factor:.6g} times the reference's"
    shape = pairs[0][0].shape
    samples, places = shape[0], pairs[0][0].size // (shape[1] if len(shape) > 1 else 1)
    for count, what in ((samples, "samples"), (places, "places"), (pairs[0][0].size, "elements")):
        if count > 1 and abs(factor / count - 1) <= ROUGH:
            return f"{said}, the number of {what}: a sum in place of a mean?"
        if count > 1 and abs(factor * count - 1) <= ROUGH:
            return f"{said}, one over the number of {what}: a mean in place of a sum?"
    if len(shape) > 1 and shape[1] > 1 and abs(factor * shape[1] - 1) <= ROUGH:
        return f"{said}, one over the number of classes: a mean over elements in place of samples?"
    return said


def _explain_weights(expected: Array, actual: Array) -> str:
    """Name factors that each sample has for itself."""
    factors = [_factor(e, a) for e, a in zip(expected, actual, strict=True) if np.abs(e).max() > 0]
    found = [factor for factor in factors if factor is not None]
    if len(found) < 2 or len(found) < len(factors):
        return ""
    return (
        f"each sample's gradient has a factor of its own, {min(found):.4g} to {max(found):.4g}: "
        "do class weights differ?"
    )


def _explain_smoothing(expected: Array, actual: Array) -> str:
    """Name targets that are smoothed more or less: in every sample all classes but one are shifted alike."""
    count, classes = expected.shape
    shift = actual - expected
    usual = np.median(shift, axis=1)
    others = np.abs(shift - usual[:, None]) > ROUGH * np.abs(shift).max()
    more = -usual * classes * count
    if classes < 3 or not (others.sum(axis=1) == 1).all() or np.ptp(more) > ROUGH * np.abs(more).max():
        return ""
    return f"the port smooths targets by {more.mean():+.4g}: does label_smoothing differ?"


def _explain_softmax(expected: Array, actual: Array) -> str:
    """Recognize a port that hands softmax's output to a loss that takes logits."""
    count = len(expected)
    targets = np.eye(expected.shape[1])[expected.argmin(axis=1)]
    chances = expected * count + targets
    if chances.min() < -ROUGH or np.abs(chances.sum(axis=1) - 1).max() > ROUGH:
        return ""
    outer = (softmax(chances) - targets) / count
    twice = chances * (outer - (outer * chances).sum(axis=1, keepdims=True))
    return "softmax is applied twice: the loss takes logits" if _equal(twice, actual) else ""


def _explain_direction(pairs: Sequence[Pair]) -> str:
    e, a = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    sizes = np.linalg.norm(e) * np.linalg.norm(a)
    if not sizes > 0:
        return "the port's gradient is zero" if np.linalg.norm(e) > 0 else ""
    return (
        f"the gradients point elsewhere (cosine {float(e @ a) / sizes:.4f}, "
        f"size {np.linalg.norm(a) / np.linalg.norm(e):.4g} times the reference's)"
    )


def _factor(expected: Array, actual: Array) -> float | None:
    """Return f with ``actual = f * expected``, or None where there is none."""
    square = float(expected @ expected)
    if not square > 0:
        return None
    factor = float(expected @ actual) / square
    rest = np.linalg.norm(actual - factor * expected)
    return factor if factor and rest <= ROUGH * np.linalg.norm(actual) else None


def _listed(numbers: Array) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")


# Judge the loss: values as other arrays, gradients by their own size, and words for what makes them differ.


GRADIENT = "gradient/"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare values and gradients of the case's loss and of every variant."""
    values = _part(dumps, gradients=False)
    judged = judging.judge_arrays(values, rules) + _judge_gradients(_part(dumps, gradients=True), rules)
    # Words for what makes each failing loss differ.
    causes: dict[str, str] = {}
    for verdict in judged.verdicts:
        variant = variant_of(verdict.subject.removeprefix("loss/"))
        if verdict.outcome is Outcome.FAIL and variant not in causes:
            causes[variant] = _cause(dumps, variant)
    verdicts = []
    for verdict in judged.verdicts:
        cause = causes.get(variant_of(verdict.subject.removeprefix("loss/")), "")
        said = verdict.outcome is Outcome.FAIL and cause
        verdicts.append(replace(verdict, reason=f"{verdict.reason}; {cause}") if said else verdict)
    notes = (*judged.notes, *_outputs_differ(dumps)) if causes else judged.notes
    return replace(judged, verdicts=tuple(verdicts), notes=notes) + judging.judge_details(dumps)


def _part(dumps: Dumps, *, gradients: bool) -> Dumps:
    """Return the dumps with only the gradients, or only what is none."""

    def part(record: Record) -> Record:
        return replace(
            record, arrays={key: value for key, value in record.arrays.items() if _is_gradient(key) is gradients}
        )

    return replace(dumps, reference=part(dumps.reference), port=part(dumps.port))


def _is_gradient(key: str) -> bool:
    return key.startswith(GRADIENT) or f"/{GRADIENT}" in key


def variant_of(key: str) -> str:
    """Return the variant that a key of the dump belongs to; "" is the case's own loss."""
    head = key.partition(GRADIENT)[0] if _is_gradient(key) else key.removesuffix("loss")
    return head.rstrip("/")


def _judge_gradients(dumps: Dumps, rules: Rules) -> Judged:
    """Allow every gradient a share of the largest RMS among those of the same loss."""
    expected, actual = dumps.reference.arrays, dumps.port.arrays
    if not expected and not actual:
        return Judged(verdicts=())
    # The largest finite RMS among the gradients of each loss.
    scales: dict[str, float] = {}
    for key, array in expected.items():
        rms = float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0
        if isfinite(rms):
            scales[variant_of(key)] = max(rms, scales.get(variant_of(key), 0.0))
    tolerances = {
        key: scaled(rules.for_arrays("loss", {key: array})[key], scales.get(variant_of(key), 0.0), array)
        for key, array in {**actual, **expected}.items()
    }
    verdicts = [
        _unproven(verdict, scales.get(variant_of(verdict.subject), 0.0))
        for verdict in compare(expected, actual, tolerances)
    ]
    return Judged(
        verdicts=tuple(replace(verdict, subject=f"loss/{verdict.subject}") for verdict in verdicts),
        tolerances={f"loss/{key}": tolerance for key, tolerance in tolerances.items()},
    )


def _unproven(verdict: Verdict, scale: float) -> Verdict:
    """Return an ERROR in place of a pass where the loss has no gradient at all."""
    if verdict.outcome is not Outcome.PASS or scale > 0:
        return verdict
    reason = "proves nothing: the reference's loss has a gradient of zero"
    return replace(verdict, outcome=Outcome.ERROR, reason=reason)


def _cause(dumps: Dumps, variant: str) -> str:
    prefix = f"{variant}/" if variant else ""
    pairs = [
        (array, dumps.port.arrays[key])
        for key, array in dumps.reference.arrays.items()
        if key.startswith(f"{prefix}{GRADIENT}") and key in dumps.port.arrays
    ]
    losses = [record.arrays.get(f"{prefix}loss") for record in (dumps.reference, dumps.port)]
    if any(loss is None or loss.size != 1 for loss in losses):
        return ""
    outputs = details(dumps.reference).get("outputs")
    facts = outputs.values() if isinstance(outputs, Mapping) else ()
    spread = max((float(one.get("spread", 0.0)) for one in facts if isinstance(one, Mapping)), default=0.0)
    expected, actual = (float(loss.reshape(-1)[0]) for loss in losses if loss is not None)
    return explain_loss(expected, actual, pairs, spread)


def _outputs_differ(dumps: Dumps) -> list[str]:
    """Return a remark where the models' outputs differ already, so that the loss may not be to blame."""
    left, right = details(dumps.reference).get("outputs"), details(dumps.port).get("outputs")
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return []
    said = []
    for name in left:
        sizes = [facts[name].get("rms") for facts in (left, right) if isinstance(facts.get(name), Mapping)]
        if len(sizes) == 2 and all(isinstance(size, float) for size in sizes):
            expected, actual = sizes
            if not abs(actual - expected) <= REMAINDER * abs(expected):
                said.append(f"{name}: RMS {expected:.6g} expected, {actual:.6g} actual")
    return [f"the models' outputs differ already ({'; '.join(said)}): see the forward stage"] if said else []
