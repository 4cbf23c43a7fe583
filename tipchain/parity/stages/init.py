"""Step 10 of the guide, initial values: over several seeds, as distributions where they are random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain

import numpy as np

from tipchain.errors import Outcome, suggestion
from tipchain.framework_types import Array
from tipchain.numbers.dumps import Record
from tipchain.numbers.tolerance import EXACT, Tolerance
from tipchain.numbers.two_samples import (
    adjust,
    compare_distribution,
    compare_mean,
    compare_spread,
    compare_tails,
    exact_tail,
    kurtosis,
)
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import ALPHA, Dumps, Judged, Rules, details


def record(bench: Bench) -> Recording:
    """Some values of every parameter and buffer for every seed, and the range of all of them.

    ``value/NAME`` holds the values kept ``[seeds, n]``, at the same places in each model, and ``range/NAME`` the
    least, the largest and the mean of all values and their root mean square, float64 ``[seeds, 4]``. One model at a
    time is in memory, and a copy of one parameter.
    """
    settings, framework = bench.case.init, bench.framework
    values: dict[str, list[Array]] = {}
    ranges: dict[str, list[Array]] = {}
    shapes: dict[str, list[int]] = {}
    for number in range(settings.seeds):
        framework.seed(bench.case.seed + number)
        model = framework.build(bench.builder("model"), bench.case.model_args)
        tensors = (read(model, bench.case.weights.names) for read in (framework.parameters, framework.buffers))
        for name, array in chain.from_iterable(tensors):
            shapes[name] = list(array.shape)
            flat = array.reshape(-1)
            values.setdefault(name, []).append(flat[places(flat.size, settings.values)])
            known = np.full(4, np.nan)
            if flat.size:
                floats = flat.astype(np.float32) if flat.dtype.kind in "biu" or flat.dtype.itemsize < 4 else flat
                square = math.sqrt(float(np.dot(floats, floats)) / flat.size)
                known[:] = flat.min(), flat.max(), flat.mean(dtype=np.float64), square
            ranges.setdefault(name, []).append(known)
        del model
    framework.seed(bench.case.seed)
    arrays = {f"value/{name}": np.stack(found) for name, found in values.items()}
    arrays |= {f"range/{name}": np.stack(found) for name, found in ranges.items()}
    details = {"shapes": shapes, "seeds": settings.seeds, "alpha": settings.alpha}
    return Recording(arrays=arrays, details=details)


def places(size: int, wanted: int) -> Array:
    """Return at most ``wanted`` different positions in ``[0, size)``, int64, spread evenly and always the same.

    They advance by a stride near the golden section of ``size`` that has no divisor in common with it, so that
    they are not all of one row or column.
    """
    if size <= wanted:
        return np.arange(size)
    stride = int(size * (math.sqrt(5) - 1) / 2)
    while math.gcd(stride, size) != 1:
        stride += 1
    # Python's integers: the product of two positions may be beyond 63 bits.
    return np.fromiter((number * stride % size for number in range(wanted)), dtype=np.int64, count=wanted)


UNIFORM, NORMAL, TRUNCATED = "uniform", "normal", "normal truncated at 2 std"
ENOUGH = 200
"""Fewer values than this do not tell one kind of distribution from another."""


class Look:
    """The moments of a sample of finite values, at least one, and the tests on them.

    Attributes:
        kind: ``"uniform"``, ``"normal"``, ``"normal truncated at 2 std"``, or "" where that cannot be told.
    """

    def __init__(self, values: Array) -> None:
        self.mean, self.std = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
        self.kurtosis, self.kind = kurtosis(values) if self.std > 0 else math.nan, ""
        if self.std > 0 and values.size >= ENOUGH:
            doubt, reach = 1 / math.sqrt(values.size), float(np.max(np.abs(values - self.mean))) / self.std
            # A normal law cut at two standard deviations has kurtosis 2.366 and reaches to 2.274 of its own.
            if abs(self.kurtosis - 1.8) <= max(0.1, 4 * doubt) and reach < 1.9:
                self.kind = UNIFORM
            elif abs(self.kurtosis - 2.366) <= max(0.12, 5 * doubt) and reach < 2.5:
                self.kind = TRUNCATED
            elif abs(self.kurtosis - 3) <= max(0.2, 16 * doubt):
                self.kind = NORMAL

    def __str__(self) -> str:
        return self.kind or (f"kurtosis {self.kurtosis:.2f}" if math.isfinite(self.kurtosis) else "one value")


# Judge initial values: what is the same in every model exactly, what is random as distributions.


TESTS = 4
"""Mean, standard deviation, kurtosis, distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """One side's recording of a parameter or buffer: see `tipchain.parity.stages.init.record`."""

    shape: tuple[int, ...]
    values: Array
    ranges: Array

    @property
    def fixed(self) -> bool:
        """Whether it is the same in every model."""
        return all(
            np.array_equal(one, one[:1].repeat(len(one), 0), equal_nan=True)
            for one in (self.values.astype(np.float64), self.ranges)
        )

    @property
    def constant(self) -> bool:
        return bool(self.ranges[:, 0].min() == self.ranges[:, 1].max())

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.ranges[:, :2]).all())

    def __str__(self) -> str:
        if self.constant:
            return f"{self.ranges[0, 0]:.6g} everywhere"
        look = Look(self.values.ravel()) if self.finite else None
        shown = f"std {look.std:.3g}, {look}" if look else "NaN or Inf"
        return f"{'the same values' if self.fixed else 'random values'} ({shown})"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare every parameter and buffer: constants exactly, random values by four two-sample tests.

    Holm's correction counts all tests, so that the probability of any false alarm is at most alpha.
    """
    expected, actual = _parameters(dumps.reference), _parameters(dumps.port)
    alpha = details(dumps.reference).get("alpha", ALPHA)
    verdicts: dict[str, Verdict] = {}
    tolerances: dict[str, Tolerance] = {}
    random: list[str] = []
    for name in {**expected, **actual}:
        mismatch = _mismatch(name, expected, actual)
        if mismatch:
            verdicts[name] = mismatch
        elif expected[name].fixed and actual[name].fixed:
            own = any(fnmatchcase(name, pattern) for pattern in rules.own.get("init", {}))
            # A constant must be equal, and an index beside the right one is another place.
            whole = expected[name].constant or expected[name].values.dtype.kind in "biu"
            usual = rules.group(name, "init") if own or not whole else EXACT
            tolerances[name] = rules.override or usual
            verdicts[name] = _judge_fixed(name, expected[name], actual[name], tolerances[name])
        else:
            random.append(name)
    verdicts |= _judge_random(random, expected, actual, alpha)
    if not verdicts:
        reason = "nothing was compared: the models have no parameters"
        verdicts["parameters"] = Verdict(Outcome.ERROR, "parameters", reason)
    few = [name for name in random if expected[name].values.size < 100]
    note = (
        f"fewer than 100 values, so that only large differences can be seen: {', '.join(few)}; more init.seeds see more"
    )
    ordered = [verdicts[name] for name in {**expected, **actual, **verdicts}]
    return Judged(verdicts=ordered, tolerances=tolerances, notes=[note] if few else [])


def _parameters(record: Record) -> dict[str, _Parameter]:
    shapes = details(record).get("shapes") or {}
    found = {}
    for key, values in record.arrays.items():
        kind, _, name = key.partition("/")
        if kind == "value" and f"range/{name}" in record.arrays:
            shape = tuple(shapes.get(name, values.shape[1:]))
            ranges = np.asarray(record.arrays[f"range/{name}"])
            found[name] = _Parameter(shape=shape, values=np.asarray(values), ranges=ranges)
    return found


def _mismatch(name: str, expected: Mapping[str, _Parameter], actual: Mapping[str, _Parameter]) -> Verdict | None:
    """Return the verdict about a parameter that cannot be compared, or starts otherwise whatever its distribution."""
    if name not in actual:
        return Verdict(Outcome.FAIL, name, "missing in the port")
    if name not in expected:
        reason = f"not in the reference{suggestion(name, [other for other in expected if other not in actual])}"
        return Verdict(Outcome.FAIL, name, reason)
    left, right = expected[name], actual[name]
    strange = [side for side, one in (("reference", left), ("port", right)) if not one.finite]
    if left.shape != right.shape:
        reason = f"shapes differ: expected {left.shape}, actual {right.shape}"
    elif not left.values.size:
        return Verdict(Outcome.ERROR, name, f"nothing was compared: the tensor is empty, shape {left.shape}")
    elif left.fixed != right.fixed:
        always = " in every model"
        reason = f"expected {left}{always * left.fixed}, actual {right}{always * right.fixed}"
    elif strange and not left.fixed:
        reason = f"NaN or Inf among the initial values of the {' and the '.join(strange)}"
    else:
        return None
    return Verdict(Outcome.FAIL, name, reason, finite=not strange)


def _judge_fixed(name: str, expected: _Parameter, actual: _Parameter, tolerance: Tolerance) -> Verdict:
    (verdict,) = compare({name: expected.values[0]}, {name: actual.values[0]}, tolerance)
    if expected.constant and actual.constant and verdict.outcome is Outcome.FAIL:
        return replace(verdict, reason=f"expected {expected}, actual {actual}")
    if verdict.outcome is not Outcome.PASS:
        return verdict
    words = ("the least value", "the largest value", "the mean", "the root mean square")
    left, right = expected.ranges[0], actual.ranges[0]
    scale = float(np.max(np.abs(left[:2])))
    allowed = (tolerance.rtol or 0.0) * scale + (tolerance.atol or tolerance.threshold or 0.0)
    for number, what in enumerate(words):
        # The last two are sums, which round.
        bound = allowed + (1e-5 * scale if number > 1 else 0.0)
        if left[number] != right[number] and not abs(left[number] - right[number]) <= bound:
            reason = f"{what} differs: expected {left[number]:.9g}, actual {right[number]:.9g}"
            return replace(verdict, outcome=Outcome.FAIL, reason=f"{reason}, though the values kept are equal")
    models = f"the same in all {len(expected.values)} models"
    return replace(verdict, reason=f"{expected}, {models}" if expected.constant else f"{models} · {verdict.reason}")


def _judge_random(
    names: Sequence[str], expected: Mapping[str, _Parameter], actual: Mapping[str, _Parameter], alpha: float
) -> dict[str, Verdict]:
    verdicts, samples = {}, {}
    for name in names:
        places, reason = _fixed_places(expected[name], actual[name])
        if reason:
            verdicts[name] = Verdict(Outcome.FAIL, name, reason)
            continue
        samples[name] = [one.values[:, ~places].ravel() for one in (expected[name], actual[name])]
    # How many values a side must have so that a difference can be seen at all.
    tests = TESTS * len(samples)
    needed = 1
    while exact_tail(needed, needed) * tests > alpha:
        needed += 1
    for name in [name for name, pair in samples.items() if min(map(len, pair)) < needed]:
        kept = min(map(len, samples.pop(name)))
        seeds = math.ceil(needed * len(expected[name].values) / kept)
        reason = f"{kept} values are too few to tell any two distributions apart; init.seeds of {seeds} would do"
        verdicts[name] = Verdict(Outcome.SKIP, name, reason)
    tests_of = (compare_mean, compare_spread, compare_tails, lambda left, right: compare_distribution(left, right)[1])
    p_values = adjust([test(*pair) for pair in samples.values() for test in tests_of])
    for number, (name, (left, right)) in enumerate(samples.items()):
        one, other = Look(left), Look(right)
        size = f"{len(expected[name].values)} models, {left.size} values"
        mine = p_values[TESTS * number : TESTS * (number + 1)]
        spreads = f"std {one.std:.4g} expected, {other.std:.4g} found"
        if min(mine) > alpha:
            verdicts[name] = Verdict(Outcome.PASS, name, f"{spreads}, {one} · {size}")
            continue
        found = [f"mean {one.mean:.4g} expected, {other.mean:.4g} found"] if mine[0] <= alpha else []
        if mine[1] <= alpha:
            found.append(f"{spreads}, ratio {other.std / one.std if one.std > 0 else math.inf:.4g}")
        if str(one) != str(other) and (one.kind or other.kind):
            found.append(f"{one} expected, {other} found")
        if not found:
            found.append(
                f"other distributions of equal mean and std: kurtosis {one.kurtosis:.3g} expected, {other.kurtosis:.3g} found"
            )
        reason = f"{'; '.join(found)} · p {max(min(mine), 1e-300):.1g} after correction, {size}"
        verdicts[name] = Verdict(Outcome.FAIL, name, reason)
    return verdicts


def _fixed_places(left: _Parameter, right: _Parameter) -> tuple[Array, str]:
    """Return where a random parameter is the same in every model (a padding row), and the difference there."""
    masks = []
    for values in (left.values, right.values):
        # A zero that is seen elsewhere too is no structure: a sparse matrix has some by chance in every model.
        same = (values == values[:1]).all(axis=0)
        masks.append(same & ~np.isin(values[0], values[:, ~same]))
    if left.values.shape[1] != right.values.shape[1]:
        return np.zeros(left.values.shape[1], dtype=bool), "the sides kept different numbers of values"
    places = masks[0] | masks[1]
    wrong = places & ((masks[0] != masks[1]) | (left.values[0] != right.values[0]))
    if places.all() or not wrong.any():
        return places & ~places.all(), ""
    first = int(np.argmax(wrong))
    shown = [
        f"{one.values[0, first]:.6g} in every model" if mask[first] else "random values"
        for one, mask in zip((left, right), masks, strict=True)
    ]
    count = f"{int(wrong.sum())} of the {wrong.size} values kept"
    return places, f"{count} differ in kind: expected {shown[0]}, actual {shown[1]}"
