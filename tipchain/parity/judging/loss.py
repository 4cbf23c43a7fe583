"""Judge the loss: values as other arrays, gradients by their own size, and words for what makes them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite

import numpy as np

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare
from tipchain.parity.judging import plain
from tipchain.parity.judging.base import Dumps, Judged, Rules, details, scaled
from tipchain.parity.judging.loss_causes import explain_loss
from tipchain.parity.record import Record
from tipchain.parity.rounding import REMAINDER

GRADIENT = "gradient/"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare values and gradients of the case's loss and of every variant."""
    values = _part(dumps, gradients=False)
    judged = plain.judge_arrays(values, rules) + _judge_gradients(_part(dumps, gradients=True), rules)
    return _explained(dumps, judged) + plain.judge_details(dumps)


def _part(dumps: Dumps, *, gradients: bool) -> Dumps:
    """Return the dumps with only the gradients, or only what is none."""

    def part(record: Record) -> Record:
        return replace(
            record,
            arrays={key: value for key, value in record.arrays.items() if _is_gradient(key) is gradients},
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
    scales = _scales(expected)
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


def _scales(gradients: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the largest finite RMS among the gradients of each loss."""
    scales: dict[str, float] = {}
    for key, array in gradients.items():
        rms = float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0
        if isfinite(rms):
            scales[variant_of(key)] = max(rms, scales.get(variant_of(key), 0.0))
    return scales


def _unproven(verdict: Verdict, scale: float) -> Verdict:
    """Return an ERROR in place of a pass where the loss has no gradient at all."""
    if verdict.outcome is not Outcome.PASS or scale > 0:
        return verdict
    reason = "proves nothing: the reference's loss has a gradient of zero"
    return replace(verdict, outcome=Outcome.ERROR, reason=reason)


def _explained(dumps: Dumps, judged: Judged) -> Judged:
    """Return ``judged`` with words for what makes each failing loss differ."""
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
    return replace(judged, verdicts=tuple(verdicts), notes=notes)


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
