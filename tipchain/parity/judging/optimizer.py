"""Judge the optimizer: every update of every parameter, and what an update that differs looks like."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare
from tipchain.parity.judging.base import Dumps, Judged, Rules, details, largest, scaled
from tipchain.parity.rounding import ROUGH


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare each update; rtol goes with the largest element of the reference's."""
    reference, port = dumps.reference.arrays, dumps.port.arrays
    verdicts, tolerances = [], {}
    given = rules.for_arrays(dumps.stage, {**port, **reference})
    explained: set[str] = set()
    for key in (*reference, *(key for key in port if key not in reference)):
        rule = given[key]
        if key in reference:
            rule = scaled(rule, largest(reference[key]), reference[key])
        expected, actual = ({key: side[key]} if key in side else {} for side in (reference, port))
        (verdict,) = compare(expected, actual, rule)
        parameter = key.rpartition("_")[0]
        if (
            verdict.outcome is Outcome.FAIL
            and verdict.diff
            and verdict.diff.size
            and parameter not in explained
        ):
            explained.add(parameter)
            verdict = replace(verdict, reason=f"{verdict.reason} · {_explain(dumps, key)}")
        elif verdict.outcome is Outcome.PASS and not np.any(reference[key]) and not np.any(port[key]):
            verdict = replace(verdict, outcome=Outcome.SKIP, reason="neither side moves it: it is frozen")
        verdicts.append(replace(verdict, subject=f"{dumps.stage}/{key}"))
        tolerances[f"{dumps.stage}/{key}"] = rule
    if all(verdict.outcome is Outcome.SKIP for verdict in verdicts):
        reason = "nothing was compared: no updates on either side"
        if verdicts:
            reason = "proves nothing: no update moves any parameter, on either side"
        verdicts = [Verdict(outcome=Outcome.ERROR, subject=f"{dumps.stage}/dump", reason=reason)]
    return Judged(verdicts=tuple(verdicts), tolerances=tolerances)


def _explain(dumps: Dumps, key: str) -> str:
    """Say what the first update of a parameter that differs looks like."""
    last = key.rpartition("_")[2]
    if not last.isdigit():  # a dump made elsewhere
        return "an update that differs"
    number = int(last)
    words = f"update {number + 1} is the first that differs"
    sizes = details(dumps.reference).get("sizes")
    if isinstance(sizes, list) and number < len(sizes):
        words += f" (gradients of size {sizes[number]:g})"
    factor = common_factor(dumps.reference.arrays[key], dumps.port.arrays[key])
    if factor is not None:
        words += f"; the port's is {factor:.6g} times the reference's at every element"
    return words


def common_factor(expected: Any, actual: Any) -> float | None:
    """Return k where ``actual`` is k times ``expected`` at every element that counts, else None."""
    counts = np.abs(expected) > 1e-3 * largest(expected)
    if not counts.any() or not np.isfinite(actual).all():
        return None
    factors = np.asarray(actual, dtype=np.float64)[counts] / np.asarray(expected, dtype=np.float64)[counts]
    middle = float(np.median(factors))
    alike = np.abs(factors - middle) <= ROUGH * abs(middle)
    return middle if isfinite(middle) and bool(alike.all()) else None
