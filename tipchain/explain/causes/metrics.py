"""Two metrics, called with equal outputs and labels; and why they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from operator import itemgetter

import numpy as np

from tipchain.core.blame import one_line
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.metric_ways import (
    UNITS,
    Batch,
    MetricMeter,
    Probe,
    Values,
    Way,
    differences,
    given_probe,
    in_unit,
    join,
    kinds_of,
    make_probes,
    square,
    ways,
    with_ignored,
)
from tipchain.explain.findings import SIDE_NAMES, Cause, Diagnosis, PieceCheck, failed_to_run
from tipchain.explain.locate.trace import is_array, put_back, take_out
from tipchain.framework_types import Array, Nested
from tipchain.frameworks.live_models import Sides
from tipchain.numbers.tolerance import EXPLAINED, SAME_ENLARGED, SAME_SINGLE

METRIC = "metric"
CHUNKS = 16
"""Batches of up to so many samples that a callable may have made by itself are tried."""
_USUAL_BINS = (
    "9 10 15 16 19 20 25 31 32 49 50 63 64 99 100 127 128 199 200 255 256 499 500 511 512 999 1000 1023 1024 4095"
)
BINS = tuple(map(int, _USUAL_BINS.split()))
"""Numbers of bins that are usual, and those of as many thresholds from 0 to 1."""
TINY = 1e-12
"""What a share of 0 is taken for where its logit is wanted."""
CODES = {
    "metric": "other-metric",
    "k": "top-k",
    "average": "class-average",
    "over": "batch-average",
    "threshold": "threshold",
    "axis": "argmax-axis",
}


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

    def vectors(self, name: str, other: str) -> tuple[Array, Array]:
        """Return one value of both sides over all probes; NaN where there is none."""
        return (
            np.array([one.get(name, np.nan) for one, _ in self.values]),
            np.array([two.get(other, np.nan) for _, two in self.values]),
        )


def why(case: MetricPair, name: str, other: str) -> list[Diagnosis]:
    """Return what makes one value of the port's metric of the reference's; one of code ``unknown`` where nothing does."""
    ours, theirs = case.vectors(name, other)
    which = f"{name}: " if name else ""
    found = ways_apart(case, ours, theirs)
    if len(found) != 1:  # one thing called otherwise explains more than two ways of counting that only look alike
        guesses = chain(_related(ours), _called_otherwise(case, (name, other)))
        found = _first(case, ours, theirs, guesses) or _counted_as_class(case, (name, other), (ours, theirs)) or found
    if not found:
        values = f"reference {_shown_values(ours)}, port {_shown_values(theirs)}"
        found = [
            Diagnosis(
                code="unknown",
                port_path=METRIC,
                message="the metrics differ, the cause is unknown",
                evidence=f"{values}: no way of counting, unit, batch or label explains 99 % of the difference",
                fix="compare the two metrics' code and arguments",
            )
        ]
    return [replace(one, message=f"{which}{one.message}") for one in found]


def _explained(expected: Array, actual: Array, predicted: Array) -> float:
    """Return the share of the difference that is gone if ``predicted`` stands in place of what was expected."""
    known = np.isfinite(expected) & np.isfinite(actual)
    if (
        not known.any()
        or not np.isfinite(predicted[known]).all()
        or not np.array_equal(np.isnan(predicted), np.isnan(actual))
    ):
        return 0.0
    off, left = np.abs(expected - actual)[known], np.abs(predicted - actual)[known]
    left = np.where(left <= SAME_ENLARGED * np.abs(actual[known]) + SAME_SINGLE, 0.0, left)
    return float(max(0.0, 1 - left.sum() / off.sum())) if off.sum() else 0.0


def ways_apart(case: MetricPair, ours: Array, theirs: Array) -> list[Diagnosis]:
    """Recognize both sides' ways of counting, and name what sets them apart."""
    known = ([way for way, values in _table(case) if _fits(values, side)] for side in (ours, theirs))
    pairs = list(product(*known))
    if not pairs:
        return []
    one, other = min(pairs, key=lambda pair: (len(differences(*pair)), sum(map(_oddity, pair))))
    names = differences(one, other)
    if "metric" in names:  # of another metric the rest is another too
        names = [one for one in names if one in ("metric", "over", "unit")]
    evidence = f"on {len(case.probes)} sets of outputs the reference is {one.words}, the port {other.words}"
    return [
        Cause(
            _code(name, one, other),
            f"{_what(name, one, other)}: expected {one.words}, actual {other.words}",
            _fix(name, one),
        ).told(METRIC, evidence, 1.0)
        for name in names
    ]


def _table(case: MetricPair) -> list[tuple[Way, Array]]:
    """Return every way with what it gives over the probes, NaN where it cannot be counted so."""
    plain = [probe.batches if all(are_arrays(one) for one in probe.batches) else None for probe in case.probes]
    classes = next((batches[0][0].shape[1] for batches in plain if batches is not None and batches[0][0].ndim > 1), 2)
    table = []
    for way in ways(classes):
        given = [None if batches is None else way.value([_squeezed(one) for one in batches]) for batches in plain]
        values = np.array([np.nan if one is None else one for one in given], dtype=float)
        if np.isnan(values).all():
            continue
        for unit in UNITS:
            if unit and way.metric in ("mse", "rmse", "mae"):
                continue
            table.append((replace(way, unit=unit), in_unit(values, unit)))
    return table


def are_arrays(batch: Batch) -> bool:
    """Tell whether outputs and labels are single arrays."""
    return all(isinstance(one, np.ndarray) for one in batch)


def _squeezed(batch: Batch) -> Batch:
    outputs, labels = batch
    column = labels.ndim == 2 and labels.shape[1] == 1 and outputs.ndim == 2 and outputs.shape[1] > 1
    return outputs, labels[:, 0] if column else labels


def _fits(values: Array, wanted: Array) -> bool:
    known = np.isfinite(values)
    if known.sum() < min(2, len(values)):
        return False
    return bool((np.abs(values - wanted)[known] <= SAME_ENLARGED * np.abs(wanted[known]) + SAME_SINGLE).all())


def _oddity(way: Way) -> int:
    """Return how unusual a way is, to choose among several that give the same."""
    odd = {"accuracy": 0, "f1": 1, "precision": 2, "recall": 2, "iou": 2}.get(way.metric, 1)
    return odd + (way.average in ("all classes", "but the first")) + (way.threshold == 0.5)


def _code(name: str, one: Way, other: Way) -> str:
    if name != "unit":
        return CODES[name]
    kinds = {unit.partition(" ")[0] for unit in (one.unit, other.unit)}
    return (
        "error-rate"
        if "error" in one.unit + other.unit and ("percent" in one.unit) == ("percent" in other.unit) and kinds
        else "percentage"
    )


def _what(name: str, one: Way, other: Way) -> str:
    return {
        "metric": "another metric",
        "k": f"top-{other.k} in place of top-{one.k}",
        "average": "another average over classes",
        "over": "the mean of batches against that of samples",
        "threshold": "another threshold",
        "axis": "the largest is looked for along another axis",
        "unit": "another unit",
    }[name]


def _fix(name: str, one: Way) -> str:
    names = {
        "classes": "macro",
        "all classes": "macro, classes without samples as 0",
        "but the first": "macro, without class 0",
        "": "none, over samples",
    }
    if name == "over":
        return (
            "sum hits and samples over all batches and divide once at the end"
            if one.over == "samples"
            else "average the values of the batches, as the reference does"
        )
    return {
        "metric": f"compute {one.words}",
        "k": f"pass topk=({one.k},)",
        "average": f"average as the reference does: {names.get(one.average, one.average)}",
        "threshold": f"use the reference's threshold: {'the largest output' if one.threshold is None else f'outputs above {one.threshold:g}'}",
        "axis": f"pass axis={one.axis}",
        "unit": f"return {one.words}",
    }[name]


@dataclass(frozen=True, slots=True, eq=False)
class _MetricGuess(Cause):
    """A hypothesis, with what one side's metric would give if it held; of the port it says what the reference gives."""

    values: Array
    evidence: str = ""
    of_port: bool = False


def _first(case: MetricPair, ours: Array, theirs: Array, guesses: Iterable[_MetricGuess]) -> list[Diagnosis]:
    for one in guesses:
        share = _explained(*((theirs, ours) if one.of_port else (ours, theirs)), one.values)
        if share >= EXPLAINED:
            tried = one.evidence or f"tried on {len(case.probes)} sets of outputs"
            return [one.told(METRIC, f"{tried}: {share:.2%} of the difference is gone", share)]
    return []


def _related(ours: Array) -> Iterator[_MetricGuess]:
    """Yield values that are a plain function of the reference's, whatever that counts."""
    for code, message, fix, values in (
        ("percentage", "the port's value is a percentage, the reference's a fraction", "divide by 100", 100 * ours),
        ("percentage", "the port's value is a fraction, the reference's a percentage", "multiply by 100", ours / 100),
        ("error-rate", "the port's value is 1 minus the reference's", "return 1 - value", 1 - ours),
        ("error-rate", "the port's value is 100 minus the reference's", "return 100 - value", 100 - ours),
        ("sign", "the port's value has the opposite sign", "change the sign", -ours),
        (
            "root",
            "the port's value is the square root of the reference's",
            "do not take the root",
            np.sqrt(np.abs(ours)),
        ),
        ("root", "the port's value is the square of the reference's", "take the square root", ours**2),
    ):
        yield _MetricGuess(code, message, fix, values)


def _called_otherwise(case: MetricPair, names: tuple[str, str]) -> Iterator[_MetricGuess]:
    """Yield what one metric gives with something changed: one batch alone, in bins, batch by batch, other outputs, other labels."""
    several = any(len(probe.batches) > 1 for probe in case.probes)
    for which, at in (("last", slice(-1, None)), ("first", slice(0, 1))) if several else ():
        for side, who, whom in CALLED:
            yield _MetricGuess(
                f"{which}-batch",
                f"the {who}'s value is that of the {which} batch alone, the {whom}'s of all batches",
                "sum over all batches in update() and divide once at the end"
                if who == "port"
                else f"keep the {which} batch's value, as the reference does",
                _reruns(case, side, names[side], itemgetter(at)),
                f"the {whom}'s metric was given the {which} batch alone",
                bool(side),
            )
    for squashed, bins in product((False, True), BINS):
        for side, who, whom in CALLED:
            yield _MetricGuess(
                "bins",
                f"the {who} counts scores in {bins} bins, the {whom} each score",
                "compute from sorted scores, or pass num_thresholds=4095 or more"
                if who == "port"
                else f"pass num_thresholds={bins}",
                _rerun(case, names[side], partial(_into_bins, bins=bins, squashed=squashed), side),
                f"the {whom}'s metric was given scores rounded down to 1/{bins}",
                bool(side),
            )
    name, port_name = names
    for size in range(CHUNKS + 1):
        which = f"batches of {size}" if size else "each batch"
        message = f"the port's value is the mean of the reference's values of {which}"
        fix = "sum hits and samples over all batches and divide once at the end"
        yield _MetricGuess("batch-average", message, fix, _by_batches(case, name, size))
    for code, message, fix, change in CHANGES:
        yield _MetricGuess(code, message, fix, _rerun(case, name, change))
    for label in _labels(case):
        message = f"the port leaves out samples of label {label}, the reference counts them"
        left = _rerun(case, name, partial(without, label=label))
        yield _MetricGuess("ignored-label", message, f"count label {label} too", left)
    for label in _labels(case):
        yield _MetricGuess(
            "ignored-label",
            f"the port counts samples of label {label}, the reference leaves them out",
            f"leave out samples of label {label}: ignore_index={label}",
            _rerun(case, port_name, partial(without, label=label), 1),
            "without them the port gives the reference's values",
            of_port=True,
        )


CALLED = ((0, "port", "reference"), (1, "reference", "port"))
"""Whose metric is called otherwise, by number, to give what whose does, and what that itself does not."""


def _into_bins(batch: Batch, bins: int, *, squashed: bool) -> Sequence[Batch]:
    outputs, labels = batch
    scores = np.asarray(outputs, np.float64)
    if squashed:
        scores = 1 / (1 + np.exp(-scores))
    elif scores.min() < 0 or scores.max() > 1:
        return [batch]  # no shares: nothing changes, and nothing is explained
    made = np.floor(scores * bins) / bins
    return [(np.log(np.maximum(made, TINY) / np.maximum(1 - made, TINY)) if squashed else made, labels)]


def _rerun(case: MetricPair, name: str, change: Callable[[Batch], Sequence[Batch]], side: int = 0) -> Array:
    """Return what a side's metric says with each batch changed."""
    return _reruns(case, side, name, lambda batches: [made for one in batches for made in change(one)])


def _reruns(case: MetricPair, side: int, name: str, change: Callable[[Sequence[Batch]], Sequence[Batch]]) -> Array:
    return _tried(case, lambda batches: case.meters[side].values(change(batches)).get(name, np.nan))


def _tried(case: MetricPair, value: Callable[[Sequence[Batch]], float]) -> Array:
    """Return a value of each probe; NaN where a metric does not take what it is given: the hypothesis does not apply."""
    found = []
    for probe in case.probes:
        try:
            found.append(value(probe.batches))
        except Exception:  # noqa: BLE001, PERF203  (a user's metric)
            found.append(np.nan)
    return np.array(found)


def _by_batches(case: MetricPair, name: str, size: int) -> Array:
    """Return the mean of the reference's values of each batch, or of batches of ``size`` samples."""

    def mean(batches: Sequence[Batch]) -> float:
        if size:
            if not all(are_arrays(one) for one in batches):
                return np.nan
            outputs, labels = join(batches)
            batches = [(outputs[at : at + size], labels[at : at + size]) for at in range(0, len(outputs), size)]
        meter, _ = case.meters
        return float(np.mean([meter.values([one]).get(name, np.nan) for one in batches]))

    return _tried(case, mean)


def _softmax(x: Array) -> Array:
    made: Array = np.exp(x - x.max(axis=1, keepdims=True)) if x.ndim > 1 else x
    return (made / made.sum(axis=1, keepdims=True)).astype(x.dtype) if x.ndim > 1 else x


CHANGES: tuple[tuple[str, str, str, Callable[[Batch], Sequence[Batch]]], ...] = (
    (
        "softmax",
        "the port takes the softmax of the outputs first",
        "give the metric the raw outputs",
        lambda one: [(_softmax(one[0]), one[1])],
    ),
    (
        "sigmoid",
        "the port takes the sigmoid of the outputs first",
        "give the metric the raw outputs",
        lambda one: [((1 / (1 + np.exp(-one[0].astype(np.float64)))).astype(one[0].dtype), one[1])],
    ),
    (
        "argmin",
        "the port ranks outputs upside down",
        "take the largest outputs, not the smallest",
        lambda one: [(-one[0], one[1])],
    ),
    (
        "label-shift",
        "the port's labels are one larger",
        "compare with the labels as they are",
        lambda one: [(one[0], one[1] + 1)],
    ),
    (
        "label-shift",
        "the port's labels are one smaller",
        "compare with the labels as they are",
        lambda one: [(one[0], one[1] - 1)],
    ),
)


def _labels(case: MetricPair) -> list[int]:
    found: set[int] = set()
    for probe in case.probes:
        for _, labels in probe.batches:
            if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
                found |= {int(one) for one in np.unique(labels)[:20]}
    return sorted(found)[:20]


def without(batch: Batch, label: int) -> Sequence[Batch]:
    """Return a batch without its samples (or places) of one label; nothing where no other is left."""
    outputs, labels = batch
    if not are_arrays(batch):
        return [batch]
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


def _counted_as_class(case: MetricPair, keys: tuple[str, str], values: tuple[Array, Array]) -> list[Diagnosis]:
    """Recognize a label of no class that one side counts as the first: with that in its place it says the same, and so do both."""
    for label in [one for one in _labels(case) if one in IGNORED]:

        def change(batch: Batch, label: int = label) -> Sequence[Batch]:
            return [(batch[0], np.where(batch[1] == label, 0, batch[1]))] if are_arrays(batch) else [batch]

        made = [_rerun(case, key, change, side) for side, key in enumerate(keys)]
        if np.isnan(made).all() or not _all_same(*made):
            continue
        ours, theirs = (_all_same(one, before) for one, before in zip(made, values, strict=True))
        if ours is theirs:
            continue
        who, whom = ("reference", "port") if ours else ("port", "reference")
        return [
            Diagnosis(
                code="ignored-label",
                port_path=METRIC,
                message=f"the {who} counts labels of {label} as class 0, the {whom} does not",
                evidence=f"with class 0 in place of {label} both give the same, and the {who} what it gives without that",
                explained=1.0,
                fix=f"count label {label} as class 0"
                if ours
                else f"leave out what has label {label}: ignore_index={label}",
            )
        ]
    return []


def _all_same(one: Array, other: Array) -> bool:
    return all(map(same, one.tolist(), other.tolist()))


def _shown_values(values: Array) -> str:
    return ", ".join(f"{one:.6g}" for one in values[:4]) + (", …" if len(values) > 4 else "")


# What two metrics do beside counting: pass over a label, go on counting, look along another axis.


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


def mistaken_axis(meters: tuple[Meter, Meter], outputs: object, labels: object) -> Diagnosis | None:
    """Return the cause of a port's metric that raises, if it looks for the largest output along another axis."""
    probe = square(
        outputs if isinstance(outputs, np.ndarray) else None, labels if isinstance(labels, np.ndarray) else None
    )
    if probe is None:
        return None
    try:
        ours, theirs = (meter.values(probe.batches) for meter in meters)
    except Exception:  # noqa: BLE001  (as above)
        return None
    case = MetricPair(meters=meters, probes=[probe], values=[(ours, theirs)])
    for name, other in zip(ours, theirs, strict=False):
        found = ways_apart(case, *case.vectors(name, other))
        axis = next((one for one in found if one.code == "argmax-axis"), None)
        if axis is not None:
            return axis
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
                cause = mistaken_axis(meters, outputs, labels)
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
    causes: list[Diagnosis] = []
    for pair in off:
        causes += [one for one in why(case, *pair) if one not in causes]
    if lasting is not None and not all(one.explained for one in causes):
        causes = [lasting]  # else it follows from what tells one evaluation from the other's
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
