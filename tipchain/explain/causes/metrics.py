"""Two metrics, called with equal outputs and labels; and why they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from tipchain.core.blame import one_line, placed
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.metric_ways import (
    Batch,
    MetricMeter,
    Probe,
    Values,
    given_probe,
    join,
    kinds_of,
    make_probes,
    square,
    with_ignored,
)
from tipchain.explain.causes.walk import glimpse
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck, failed_to_run
from tipchain.explain.locate.trace import is_array, put_back, take_out
from tipchain.framework_types import Metric, Nested
from tipchain.frameworks.live_models import Sides
from tipchain.numbers.compare import common_factor
from tipchain.numbers.tolerance import SAME_ENLARGED, SAME_SINGLE

METRIC = "metric"
MOST_TRIED = 64
"""Sets of outputs and labels on which a difference is looked for in a smaller one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricPair:
    """Two metrics and what they say.

    Attributes:
        refused: what the port's raised for a probe that the reference's takes; empty where there is none.
    """

    meters: tuple[Meter, Meter]
    probes: Sequence[Probe]
    values: Sequence[tuple[Values, Values]]
    refused: str = ""


def why(case: MetricPair, at: int, name: str, other: str) -> Diagnosis:
    """Show two metrics on the smallest outputs and labels that are found on which a value of them differs."""
    batches = _smallest(case, case.probes[at].batches, name, other)
    ours, theirs = (meter.values(batches) for meter in case.meters)
    which = f"{name}: " if name else ""
    shown = f"{which}expected {_shown(ours.get(name))}, actual {_shown(theirs.get(other))} for {_told(batches)}"
    pairs = [(one[name], two[other]) for one, two in case.values if name in one and other in two]
    factor = common_factor(*(np.array(side) for side in zip(*pairs, strict=True))) if len(pairs) > 1 else None
    words = "" if factor is None else f"; the port's value is {factor:.6g} times the reference's everywhere"
    places = [placed(meter.metric).rpartition("/")[2] for meter in case.meters]
    return Diagnosis(
        code="other-metric",
        port_path=METRIC,
        message=f"{shown}{words}",
        evidence=f"the reference is {places[0]}, the port {places[1]}; both were called on {len(case.probes)} sets of outputs",
        fix=f"let {places[1]} count as {places[0]} does",
    )


def _smallest(case: MetricPair, batches: Sequence[Batch], name: str, other: str) -> Sequence[Batch]:
    """Return one sample on which both differ, else as few samples as are found; batches as they are where one alone does not."""

    def differs(tried: Sequence[Batch]) -> bool:
        try:
            ours, theirs = (meter.values(tried) for meter in case.meters)
        except Exception:  # noqa: BLE001  (a user's metric)
            return False
        return not same(ours.get(name), theirs.get(other))

    whole = join(batches)
    if not differs([whole]) or not are_arrays(whole) or not whole[0].ndim or len(whole[0]) != len(whole[1]):
        return batches
    count = len(whole[0])
    for number in range(min(count, MOST_TRIED)):
        if differs([_samples(whole, [number])]):
            return [_samples(whole, [number])]
    kept = list(range(count))
    for number in range(count - 1, max(count - 1 - MOST_TRIED, -1), -1):
        fewer = [one for one in kept if one != number]
        if fewer and differs([_samples(whole, fewer)]):
            kept = fewer
    return [_samples(whole, kept)]


def _samples(batch: Batch, numbers: Sequence[int]) -> Batch:
    return batch[0][numbers], batch[1][numbers]


def _told(batches: Sequence[Batch]) -> str:
    said = []
    for batch in batches:
        outputs, labels = (take_out(one, is_array)[1] for one in batch)
        said.append(f"outputs {', '.join(map(glimpse, outputs))} with labels {', '.join(map(glimpse, labels))}")
    return "; then ".join(said)


def are_arrays(batch: Batch) -> bool:
    """Tell whether outputs and labels are single arrays."""
    return all(isinstance(one, np.ndarray) for one in batch)


def without(batch: Batch, label: int) -> Sequence[Batch]:
    """Return a batch without its samples (or places) of one label; nothing where no other is left."""
    outputs, labels = batch
    if labels.ndim == outputs.ndim - 1 and outputs.ndim > 2:  # one output for each place
        last = outputs.ndim - 1
        axis = next((one for one in (1, last) if np.delete(outputs.shape, one).tolist() == list(labels.shape)), None)
        if axis is None:
            return [batch]
        flat = np.moveaxis(outputs, axis, -1).reshape(-1, outputs.shape[axis])
        keep = labels.reshape(-1) != label
        return [(flat[keep], labels.reshape(-1)[keep])]
    keep = (labels != label).reshape(len(labels), -1).all(axis=1)
    return [(outputs[keep], labels[keep])] if keep.any() else []


# What two metrics do beside counting: pass over a label, go on counting, take other outputs.


IGNORED = (255, -100, -1)
"""Labels that losses and metrics usually pass over."""
OTHER = 254
"""A label that nobody passes over on purpose."""
Same = Callable[[float | None, float | None], bool]


def ignored(case: MetricPair) -> Diagnosis | None:
    """Return the cause of metrics of which one alone passes over a label on purpose, though none of the labels is such."""
    probe = next(
        (
            one
            for one in case.probes
            if not one.given and all(are_arrays(batch) and batch[1].dtype.kind in "iu" for batch in one.batches)
        ),
        None,
    )
    if probe is None:
        return None
    for label in IGNORED:
        ours, theirs = (_skips(meter, probe, label) for meter in case.meters)
        if ours is None or theirs is None or ours is theirs:
            continue
        which, other = ("reference", "port") if ours else ("port", "reference")
        return Diagnosis(
            code="ignored-label",
            port_path=METRIC,
            message=f"the {which} leaves out samples of label {label}, the {other} counts them",
            evidence="labels were replaced by it, and by another that is no class, which both count",
            explained=1.0,
            fix=f"{'leave out' if ours else 'count'} samples of label {label}",
        )
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


def not_reset(case: MetricPair, same: Same) -> Diagnosis | None:
    """Return the cause of a metric that goes on counting where the other starts anew."""
    probes = [one.batches for one in case.probes]
    first, between = probes[0], probes[-1] if len(probes) > 1 else probes[0]
    try:
        runs = [meter.repeated(first, between) for meter in case.meters]
    except Exception:  # noqa: BLE001  (as above)
        return None
    ours, theirs = (any(not same(before[name], after.get(name)) for name in before) for before, after in runs)
    if ours == theirs:
        return None
    (_, after), (_, port_after) = runs
    meter, port_meter = case.meters
    which, other = ("port", "reference") if theirs else ("reference", "port")
    try:
        predicted = (meter if theirs else port_meter).values([*first, *between, *first])
    except Exception:  # noqa: BLE001  (as above)
        predicted = None
    values = list((port_after if theirs else after).values())
    exact = predicted is not None and len(predicted) == len(values) and all(map(same, predicted.values(), values))
    return Diagnosis(
        code="not-reset",
        port_path=METRIC,
        message=f"the {which}'s metric goes on counting from one evaluation to the next, the {other}'s starts anew",
        evidence="called for the same outputs again after others"
        + (": it gives what all of them together give" if exact else ""),
        explained=1.0 if exact else None,
        fix="reset the metric before each evaluation"
        if theirs
        else "do not reset the metric, as the reference does not",
    )


def raises_alone(meters: tuple[Meter, Meter], outputs: Nested, labels: Nested) -> Diagnosis | None:
    """Show a port's metric that raises where it says something else of as many samples as classes: axes are mistaken there."""
    arrays = [one if isinstance(one, np.ndarray) else None for one in (outputs, labels)]
    probe = square(*arrays)
    pair, _ = (None, {}) if probe is None else _both(meters, probe)
    if pair is None or probe is None:
        return None
    ours, theirs = pair
    case = MetricPair(meters=meters, probes=[probe], values=[pair])
    for name, other in zip(ours, theirs, strict=False):
        if not same(ours[name], theirs[other]):
            return why(case, 0, name, other)
    return None


RELATIVE, ABSOLUTE = SAME_ENLARGED, SAME_SINGLE
"""Differences of two values that are rounding: a metric in float32 has as much."""


def check_metrics(
    sides: Sides, metrics: tuple[object, object], outputs: object = None, labels: object = None
) -> PieceCheck:
    """Give both metrics equal outputs and labels: the models' own, and such as tell ways of counting apart.

    Args:
        sides: torch's and Paddle's.
        metrics: of each side a callable ``(outputs, labels) -> number`` (or numbers by name, or a sequence), which is given
            numpy arrays, and its framework's tensors if it does not take them; or an object with the protocol of
            `paddle.metric.Metric` (compute, update, accumulate, reset) or of torchmetrics (update, compute, reset), which is
            given tensors batch by batch; or a class of these. They are copied, not changed.
        outputs: the reference's: an array, or arrays in tuples, lists and mappings; None if there are none.
        labels: likewise.

    Returns:
        FAIL with both values and the causes; ERROR where a metric does not run.
    """
    try:
        reference, port = metrics
        meters = MetricMeter.of(sides.reference, reference), MetricMeter.of(sides.port, port)
    except UsageError as error:
        return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a class of the user's)
        return failed_to_run("a metric", error)
    case = _measure(meters, outputs, labels)
    return case if isinstance(case, PieceCheck) else _judge(_measure_inside(meters, case, outputs, labels))


@dataclass(frozen=True, slots=True)
class _Inside:
    """A metric of several outputs or labels, as one of one of each: the others are the models' own, as often as it takes."""

    meter: MetricMeter
    whole: Batch
    places: tuple[int, int]

    @property
    def metric(self) -> Metric:
        """The metric itself."""
        return self.meter.metric

    def values(self, batches: Sequence[Batch]) -> Values:
        return self.meter.values([self._put(one) for one in batches])

    def repeated(self, first: Sequence[Batch], between: Sequence[Batch]) -> tuple[Values, Values]:
        return self.meter.repeated(*([self._put(one) for one in batches] for batches in (first, between)))

    def _put(self, batch: Batch) -> Batch:
        made = []
        for given, whole, place in zip(batch, self.whole, self.places, strict=True):
            structure, arrays, _ = take_out(whole, is_array)
            count, size = len(given), len(arrays[place])
            others = [np.take(one, np.arange(count) % size, 0) if one.shape[:1] == (size,) else one for one in arrays]
            others[place] = given
            made.append(put_back(structure, others))
        return made[0], made[1]


Meter = MetricMeter | _Inside


def _measure_inside(
    meters: tuple[MetricMeter, MetricMeter], case: MetricPair, outputs: Nested, labels: Nested
) -> MetricPair:
    """Return what metrics of several outputs or labels say of others of one of each, the first that counts; else what is known."""
    if outputs is None or labels is None or len(case.probes) > 1 or are_arrays((outputs, labels)):
        return case
    every, targets = (take_out(one, is_array)[1] for one in (outputs, labels))
    for (number, output), (place, label) in product(enumerate(every), enumerate(targets)):
        if not (output.ndim and label.ndim and kinds_of(output, label)):
            continue
        reference, port = (_Inside(one, (outputs, labels), (number, place)) for one in meters)
        turned, _ = _both((reference, port), Probe(name="the models' outputs, turned", batches=[(-output, label)]))
        if turned is None or turned[0] == case.values[0][0]:
            continue  # it looks at another output
        found = _measure((reference, port), output, label)
        if isinstance(found, MetricPair) and len({tuple(one.values()) for one, _ in found.values[1:]}) > 1:
            whole = replace(found.probes[0], batches=[(output, label)])
            return replace(found, probes=[whole, *found.probes[1:]], values=[*case.values, *found.values[1:]])
    return case


def _measure(meters: tuple[Meter, Meter], outputs: Nested, labels: Nested) -> MetricPair | PieceCheck:
    probes: list[Probe] = []
    found: list[tuple[Values, Values]] = []
    errors: dict[str, Exception] = {}
    refused = ""
    if outputs is not None and labels is not None:
        probe = given_probe(outputs, labels)
        pair, raised = _both(meters, probe)
        if pair is None:
            side, error = next(iter(raised.items()))
            if side == "port" and "reference" not in raised:
                cause = raises_alone(meters, outputs, labels)
                if cause is not None:
                    return PieceCheck(
                        outcome=Outcome.FAIL,
                        reason=f"the port's metric raised {type(error).__name__}: {cause.message}",
                        diagnoses=(cause,),
                    )
            return failed_to_run(f"the {side}'s metric", error)
        probes.append(probe)
        found.append(pair)
    for kind in kinds_of(outputs, labels):
        for probe in make_probes(kind, outputs, labels):
            pair, raised = _both(meters, probe)
            errors |= raised
            if "port" in raised and "reference" not in raised:
                told = one_line(raised["port"])
                refused = refused or f"; the port's metric raises for {probe.name}, the reference's does not: {told}"
            if pair is not None:
                probes.append(probe)
                found.append(pair)
        if probes:
            break
    if not probes:
        side, error = next(iter(errors.items()), ("reference", ValueError("nothing to call it with")))
        return failed_to_run(f"the {side}'s metric", error)
    return MetricPair(meters=meters, probes=probes, values=found, refused=refused)


def _both(meters: tuple[Meter, Meter], probe: Probe) -> tuple[tuple[Values, Values] | None, dict[str, Exception]]:
    found: list[Values] = []
    raised: dict[str, Exception] = {}
    for side, meter in zip(SIDE_NAMES, meters, strict=True):
        try:
            found.append(meter.values(probe.batches))
        except Exception as error:  # noqa: BLE001, PERF203  (user code)
            raised[side] = error
    return ((found[0], found[1]) if not raised else None), raised


def _judge(case: MetricPair) -> PieceCheck:
    ours, theirs = case.values[0]
    try:
        names = pair_names(ours, theirs)
    except ValueError as error:
        return PieceCheck(outcome=Outcome.FAIL, reason=str(error))
    numbers = {
        f"{METRIC}/{name}".removesuffix("/") + f"/{side}": value
        for name, other in names.items()
        for side, value in (("reference", ours[name]), ("port", theirs[other]))
    }
    lasting = not_reset(case, same)
    off = [
        (name, other)
        for name, other in names.items()
        if any(not same(one.get(name), two.get(other)) for one, two in case.values)
    ]
    if lasting is not None and not off:
        return PieceCheck(outcome=Outcome.FAIL, reason=lasting.message, numbers=numbers, diagnoses=(lasting,))
    if not off:
        hidden = ignored(case)
        if hidden is not None:
            return PieceCheck(outcome=Outcome.FAIL, reason=hidden.message, numbers=numbers, diagnoses=(hidden,))
        shown = ", ".join(f"{name or 'value'} {value:.6g}" for name, value in list(ours.items())[:3])
        return PieceCheck(
            outcome=Outcome.PASS,
            numbers=numbers,
            reason=f"equal on {len(case.probes)} sets of outputs and labels; of the first: {shown}{case.refused}",
        )
    name, other = off[0]
    at = next(n for n, (one, two) in enumerate(case.values) if not same(one.get(name), two.get(other)))
    ours, theirs = case.values[at]
    one, two = ours.get(name), theirs.get(other)
    which = f" {name}" if name else ""
    reason = f"the metrics differ{which}: expected {_shown(one)}, actual {_shown(two)} for {case.probes[at].name}"
    causes = [] if lasting is None else [lasting]
    for pair in off:
        at = next(n for n, (one, two) in enumerate(case.values) if not same(one.get(pair[0]), two.get(pair[1])))
        causes.append(why(case, at, *pair))
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=tuple(causes))


def pair_names(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, str]:
    """Return the port's value by the reference's: by name, or by place where no name is alike.

    Raises:
        ValueError: one side has values that the other has not.
    """
    if len(ours) == len(theirs) and (set(ours) == set(theirs) or not set(ours) & set(theirs)):
        return {name: name for name in ours} if set(ours) == set(theirs) else dict(zip(ours, theirs, strict=True))
    left, right = ([name or "one number" for name in side] for side in (ours, theirs))
    raise ValueError(f"the metrics have other values: {', '.join(left)} expected, {', '.join(right)} actual")


def same(one: float | None, other: float | None) -> bool:
    """Tell whether two values are equal but for rounding; NaN equals NaN."""
    if one is None or other is None:
        return one is other
    if np.isnan(one) or np.isnan(other) or np.isinf(one) or np.isinf(other):
        return bool(one == other or (np.isnan(one) and np.isnan(other)))
    return bool(abs(one - other) <= RELATIVE * max(abs(one), abs(other)) + ABSOLUTE)


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.9g}"
