"""What two metrics do beside counting: pass over a label, go on counting, look along another axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tipchain.parity.findings import Diagnosis
from tipchain.parity.pieces.metric_causes import METRIC, Case, are_arrays, ways_apart, without
from tipchain.parity.pieces.metric_probes import Probe, square, with_ignored
from tipchain.parity.pieces.metric_values import Meter
from tipchain.parity.rounding import SAME_SINGLE

IGNORED = (255, -100, -1)
"""Labels that losses and metrics usually pass over."""
OTHER = 254
"""A label that nobody passes over on purpose."""
Same = Callable[[float | None, float | None], bool]


def ignored(case: Case) -> Diagnosis | None:
    """Return the cause of metrics of which one alone passes over a label on purpose, though none of the labels is such."""
    probe = next((one for one in case.probes if not one.given and all(are_arrays(batch) and batch[1].dtype.kind in "iu" for batch in one.batches)), None)  # fmt: skip
    if probe is None:
        return None
    for label in IGNORED:
        skips = [_skips(meter, probe, label) for meter in case.meters]
        if skips not in ([True, False], [False, True]):
            continue
        which, other = ("reference", "port") if skips[0] else ("port", "reference")
        return Diagnosis(
            code="ignored-label", port_path=METRIC, message=f"the {which} leaves out samples of label {label}, the {other} counts them",
            evidence="labels were replaced by it, and by another that is no class, which both count", explained=1.0,
            fix=f"{'leave out' if skips[0] else 'count'} samples of label {label}",
        )  # fmt: skip
    return None


def _skips(meter: Meter, probe: Probe, label: int) -> bool | None:
    """Tell whether a metric leaves out a label, and no other that is no class; None where it does not take it."""
    return _passes_over(meter, probe, label) if _passes_over(meter, probe, OTHER) is not True else None


def _passes_over(meter: Meter, probe: Probe, label: int) -> bool | None:
    changed = with_ignored(probe, label)
    if changed is None:
        return None
    rest = [made for batch in changed.batches for made in without(batch, label)]
    try:
        values, others = meter.values(changed.batches), meter.values(rest)
    except Exception:  # noqa: BLE001  (a metric that does not take such a label)
        return None
    return all(abs(values[name] - others.get(name, np.inf)) < SAME_SINGLE for name in values)


def not_reset(case: Case, same: Same) -> Diagnosis | None:
    """Return the cause of a metric that goes on counting where the other starts anew."""
    probes = [one.batches for one in case.probes]
    first, between = probes[0], probes[-1] if len(probes) > 1 else probes[0]
    lasting, after = [], []
    for meter in case.meters:
        try:
            before, again = meter.repeated(first, between)
        except Exception:  # noqa: BLE001  (as above)
            return None
        lasting.append(any(not same(before[name], again.get(name)) for name in before))
        after.append(again)
    if lasting[0] == lasting[1]:
        return None
    which, other = ("port", "reference") if lasting[1] else ("reference", "port")
    predicted = None
    try:
        predicted = case.meters[1 - int(lasting[1])].values([*first, *between, *first])
    except Exception:  # noqa: BLE001  (as above)
        predicted = None
    values = list(after[int(lasting[1])].values())
    exact = (
        predicted is not None and len(predicted) == len(values) and all(map(same, predicted.values(), values))
    )
    return Diagnosis(
        code="not-reset", port_path=METRIC, message=f"the {which}'s metric goes on counting from one evaluation to the next, the {other}'s starts anew",
        evidence="called for the same outputs again after others" + (": it gives what all of them together give" if exact else ""),
        explained=1.0 if exact else None, fix="reset the metric before each evaluation" if lasting[1] else "do not reset the metric, as the reference does not",
    )  # fmt: skip


def mistaken_axis(meters: tuple[Meter, Meter], outputs: Any, labels: Any) -> Diagnosis | None:
    """Return the cause of a port's metric that raises, if it looks for the largest output along another axis."""
    probe = square(
        outputs if isinstance(outputs, np.ndarray) else None,
        labels if isinstance(labels, np.ndarray) else None,
    )
    if probe is None:
        return None
    try:
        values = [meter.values(probe.batches) for meter in meters]
    except Exception:  # noqa: BLE001  (as above)
        return None
    case = Case(meters=meters, probes=[probe], values=[(values[0], values[1])])
    for name, other in zip(*values, strict=False):
        found = ways_apart(case, *case.vectors(name, other))
        axis = next((one for one in found if one.code == "argmax-axis"), None)
        if axis is not None:
            return axis
    return None
