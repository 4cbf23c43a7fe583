"""Judge training data: samples by value, orders by their properties, augmentation by distributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tipchain.errors import did_you_mean
from tipchain.outcome import Outcome
from tipchain.parity.compare import Array
from tipchain.parity.judge import Verdict
from tipchain.parity.judging import plain
from tipchain.parity.judging.base import Dumps, Judged, Rules, details
from tipchain.parity.judging.data import judge_files
from tipchain.parity.judging.sample_order import judge_orders
from tipchain.parity.record import Record
from tipchain.parity.two_sample import (
    adjust,
    compare_distribution,
    compare_mean,
    compare_share,
    compare_spread,
)

VALUES = ("length", "dataloader_", "label_", "epoch_")
ALPHA = 1e-3
"""Probability of a false alarm over all random quantities together, where the dumps name none."""
ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Share of a value by which float32 may have rounded it."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare samples, files, the loaders' orders and what the augmentation drew."""
    named = _judge_builders(dumps)
    judged = _judge_values(dumps, rules) + Judged(verdicts=(*judge_files(dumps), *named))
    if all("order_0" in record.arrays for record in (dumps.reference, dumps.port)):
        judged += Judged(verdicts=tuple(judge_orders(dumps.stage, dumps.reference, dumps.port)))
    return judged + Judged(verdicts=tuple(_judge_draws(dumps)), notes=tuple(_notes(dumps)))


def _judge_values(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the samples that both sides gave in order; where data sets are random there is nothing to compare."""
    verdict = None
    random = [bool(details(record).get("random")) for record in (dumps.reference, dumps.port)]
    if random[0] != random[1]:
        words = [("the same values at every read", "other values at every read")[one] for one in random]
        verdict = Verdict(outcome=Outcome.FAIL, subject=f"{dumps.stage}/values",
                          reason=f"of one and the same sample: expected {words[0]}, actual {words[1]}")  # fmt: skip

    def samples(record: Record) -> Record:
        kept = {key: one for key, one in record.arrays.items() if key.startswith(VALUES)}
        if any(random):
            kept = {key: one for key, one in kept.items() if "dataloader_" not in key}
        return replace(record, arrays=kept)

    some = replace(dumps, reference=samples(dumps.reference), port=samples(dumps.port))
    return plain.judge_arrays(some, rules) + Judged(verdicts=(verdict,) if verdict else ())


def _judge_builders(dumps: Dumps) -> list[Verdict]:
    """Return an ERROR for every optional builder that one side alone has."""
    verdicts = []
    for name in ("loader", "augmentation"):
        left, right = (_has(record, name) for record in (dumps.reference, dumps.port))
        if left != right:
            side = "reference" if left else "port"
            reason = f"only the {side} names a builder `{name}`: nothing to compare"
            subject = f"{dumps.stage}/{name}"
            verdicts.append(Verdict(outcome=Outcome.ERROR, subject=subject, reason=reason))
    return verdicts


def _has(record: Record, builder: str) -> bool:
    """Tell whether a side named the builder ``"loader"`` or ``"augmentation"``; without a JSON its arrays tell."""
    keys = {"loader": "order_", "augmentation": "draw/"}
    return bool(details(record).get(builder, any(key.startswith(keys[builder]) for key in record.arrays)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantity:
    """A random number that both sides drew many times; ``name`` is the end of its verdict's subject."""

    name: str
    expected: Array
    actual: Array

    def p_values(self) -> list[float]:
        """Return the p-values of what its tests compare."""
        left, right = self.expected, self.actual
        if self.values.size == 1:
            return []
        if self.values.size == 2:
            high = self.values[1]
            hits = [int((one == high).sum()) for one in (left, right)]
            return [compare_share(hits[0], left.size, hits[1], right.size)]
        return [compare_mean(left, right), compare_spread(left, right), compare_distribution(left, right)[1]]

    @property
    def values(self) -> Array:
        """The different values, sorted."""
        return np.unique(np.concatenate([self.expected, self.actual]))

    def describe(self) -> str:
        """Return both sides in a few words."""
        values, left, right = self.values, self.expected, self.actual
        draws = f"{left.size} draws" if left.size == right.size else f"{left.size} and {right.size} draws"
        if values.size == 1:
            return f"always {values[0]:.6g}, {draws}"
        if values.size == 2:
            shares = [float((one == values[1]).mean()) for one in (left, right)]
            return f"{values[1]:.6g} in {shares[0]:.1%} of the draws expected, {shares[1]:.1%} found, else {values[0]:.6g} · {draws}"  # fmt: skip
        parts = [f"mean {left.mean():.4g} expected, {right.mean():.4g} found",
                 f"std {left.std():.4g} expected, {right.std():.4g} found",
                 f"from {left.min():.4g} to {left.max():.4g} expected, {right.min():.4g} to {right.max():.4g} found"]  # fmt: skip
        return f"{'; '.join(parts)} · {draws}"


def _judge_draws(dumps: Dumps) -> list[Verdict]:
    """Judge every random quantity; Holm's correction counts all tests of them."""
    alpha = float(details(dumps.reference).get("alpha", ALPHA))
    quantities, verdicts = _quantities(dumps)
    tests = [one.p_values() for one in quantities]
    adjusted = iter(adjust([p for found in tests for p in found]))
    for quantity, found in zip(quantities, tests, strict=True):
        subject = f"{dumps.stage}/{quantity.name}"
        p = min((next(adjusted) for _ in found), default=1.0)
        if p <= alpha:
            reason = f"other distributions: {quantity.describe()} · p {max(p, 1e-300):.1g} after correction"
            verdicts.append(Verdict(outcome=Outcome.FAIL, subject=subject, reason=reason))
        else:
            verdicts.append(Verdict(outcome=Outcome.PASS, subject=subject, reason=quantity.describe()))
    return verdicts


def _quantities(dumps: Dumps) -> tuple[list[_Quantity], list[Verdict]]:
    """Return what both sides drew, and verdicts about what only one did or that is no number."""
    left, right = _drawn(dumps.reference), _drawn(dumps.port)
    quantities, verdicts = [], []
    for name in [*left, *(name for name in right if name not in left)]:
        reason, outcome, finite = "", Outcome.FAIL, True
        if name not in right:
            reason = "drawn by the reference alone"
        elif name not in left:
            hint = did_you_mean(name, [other for other in left if other not in right])
            reason = "drawn by the port alone" + (f", {hint}" if hint else "")
        elif not left[name].size or not right[name].size:
            reason, outcome = "nothing was compared: no draws", Outcome.ERROR
        elif not (np.isfinite(left[name]).all() and np.isfinite(right[name]).all()):
            reason, finite = "NaN or Inf among the draws", False
        if reason:
            subject = f"{dumps.stage}/{name}"
            verdicts.append(Verdict(outcome=outcome, subject=subject, reason=reason, finite=finite))
            continue
        pair = _without_rounding(left[name], right[name])
        if name.startswith("pixels/"):
            pair = _without_images(*pair, int(details(dumps.reference).get("images", 1)))
        quantities.append(_Quantity(name=name, expected=pair[0], actual=pair[1]))
    return quantities, verdicts


def _drawn(record: Record) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for key, array in record.arrays.items():
        kind, _, name = key.partition("/")
        values = np.asarray(array)
        if kind == "pixels":
            found[key] = values
        elif kind == "draw" and values.shape[1] == 1:
            found[name] = values[:, 0]
        elif kind == "draw":
            found |= {f"{name}[{column}]": values[:, column] for column in range(values.shape[1])}
    return found


def _without_rounding(expected: Array, actual: Array) -> tuple[Array, Array]:
    """Return both sides' values with those that differ by rounding alone made one.

    A constant that one side holds as float32 and the other as a Python number is the same constant.
    """
    both = np.concatenate([expected, actual]).astype(np.float64)
    values, places = np.unique(both, return_inverse=True)
    begins = np.append([True], np.diff(values) > ROUNDING * np.abs(values[1:]))
    merged = values[begins][np.cumsum(begins)[places] - 1]
    return merged[: expected.size], merged[expected.size :]


def _without_images(expected: Array, actual: Array, images: int) -> tuple[Array, Array]:
    """Return the statistics with the mean of each image, over both sides, put on one level.

    Images differ more from each other than from their own augmented kin.
    """
    level = float(np.concatenate([expected, actual]).mean())
    results = expected.astype(np.float64), actual.astype(np.float64)
    for number in range(images):
        of_image = [one[number::images] for one in results]
        if sum(one.size for one in of_image):
            mean = float(np.concatenate(of_image).mean())
            for view in of_image:
                np.add(view, level - mean, out=view)
    return results


def _notes(dumps: Dumps) -> list[str]:
    facts: Mapping[str, Any] = details(dumps.reference)
    notes = []
    if facts.get("compared") != facts.get("length"):
        notes.append(f"{facts.get('compared')} of {facts.get('length')} samples were compared by value")
    if facts.get("random"):
        notes.append(
            "the data sets give other values at every read, so that values were compared as distributions only"
        )
    if not _has(dumps.reference, "loader"):
        notes.append("the sides name no `loader`: order, reshuffling and drop_last were not compared")
    if not _has(dumps.reference, "augmentation"):
        notes.append("the sides name no `augmentation`: "
                     + ("random draws show only in the pixels" if facts.get("random") else "nothing random was compared"))  # fmt: skip
    return notes
