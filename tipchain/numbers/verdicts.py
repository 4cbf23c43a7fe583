"""From differences to verdicts; verdicts as JSON, and as lines of reprod_log's diff logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache
from math import inf, isfinite
from os import PathLike
from pathlib import Path
from typing import TextIO

import numpy as np

from tipchain.core.files import atomic_write
from tipchain.core.json_text import as_json
from tipchain.core.language import escaped
from tipchain.core.machine import collector_resting
from tipchain.errors import ExitCode, Outcome, UsageError, exit_code, suggestion
from tipchain.framework_types import Array
from tipchain.numbers.compare import TensorDiff, count_outside, diff_arrays, diff_tiny
from tipchain.numbers.dumps import flatten
from tipchain.numbers.tolerance import Tolerance

_KINDS = {"c": "complex", "f": "float", "i": "integer", "u": "integer", "b": "boolean"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement about one tensor, or about one key that is missing, extra or reshaped.

    Attributes:
        outcome: PASS, FAIL, ERROR or SKIP.
        subject: ``stage/key``, or the bare key outside a stage.
        reason: one sentence; for a FAIL it holds the worst index and both values.
        diff: the facts it rests on; None where there was nothing to compare.
        finite: False where it rests on NaN or Inf that no ``diff`` tells of.
        share: how much of what is allowed the difference takes, 1 for all of it; None where that is no single number.
        accepted: the difference that the user accepts, and by what; "" where there is none.
    """

    outcome: Outcome
    subject: str
    reason: str
    diff: TensorDiff | None = None
    finite: bool = True
    share: float | None = None
    accepted: str = ""


@collector_resting()
def compare(
    reference: Mapping[str, object], port: Mapping[str, object], tolerance: Tolerance | Mapping[str, Tolerance]
) -> list[Verdict]:
    """Compare the arrays of two sides by name.

    Nothing is broadcast or transposed. A tensor is a FAIL if only one side has it, if its shape or the kind of its dtype differs,
    or if NaN or Inf are at different positions. An empty tensor is an ERROR, and so is a comparison without tensors.

    Args:
        reference: the expected arrays (or numbers, or nested dicts) by name.
        port: the port's arrays by name.
        tolerance: one tolerance for all names, or tolerances by name; ``"*"`` is that of all other names. A tensor without a
            tolerance is an ERROR.

    Returns:
        A list of one verdict per name: the names of the reference in their order, then those of the port alone. Names in nested
        dicts are joined with ``/``.

    Raises:
        UsageError: two arrays of one side have the same name (``{"a/b": x, "a": {"b": y}}``).
    """
    expected, actual = flatten(reference), flatten(port)
    tiny = diff_tiny(expected, actual)
    verdicts = [_compare_one(name, expected[name], actual, tolerance, tiny.get(name)) for name in expected]
    for name in actual:
        if name not in expected:
            reason = f"not in the reference{suggestion(name, [other for other in expected if other not in actual])}"
            verdicts.append(Verdict(Outcome.FAIL, name, reason))
    if not verdicts:
        reason = "nothing was compared: no arrays on either side"
        verdicts.append(Verdict(Outcome.ERROR, "dump", reason))
    return verdicts


def _compare_one(
    name: str,
    expected: Array,
    port: Mapping[str, Array],
    tolerance: Tolerance | Mapping[str, Tolerance],
    diff: TensorDiff | None,
) -> Verdict:
    if name not in port:
        return Verdict(Outcome.FAIL, name, "missing in the port")
    rule = tolerance if isinstance(tolerance, Tolerance) else tolerance.get(name, tolerance.get("*"))
    if rule is None:
        return Verdict(Outcome.ERROR, name, "no tolerance is given for this tensor")
    actual = port[name]
    if diff is None or rule.rtol:
        whole = {expected.dtype.kind, actual.dtype.kind} <= set("biu")
        if whole and rule.threshold is not None and not rule.reason:
            # They have no rounding for a mean to allow: each one counts, unless somebody gives a reason.
            rule = replace(rule, method="max")
        diff = diff_arrays(name, expected, actual, rtol=rule.rtol or 0.0, equal_nan=rule.equal_nan)
    verdict = judge(diff, rule, subject=name)
    if verdict.outcome is Outcome.FAIL and diff.size and (rule.rtol is not None or rule.method == "max"):
        # Only a failing tensor is worth a second look.
        atol = rule.threshold if rule.atol is None else rule.atol
        outside = count_outside(expected, actual, rtol=rule.rtol or 0.0, atol=atol or 0.0)
        return judge(diff, rule, subject=name, outside=outside)
    return verdict


def judge(diff: TensorDiff, tolerance: Tolerance, *, subject: str, outside: int | None = None) -> Verdict:
    """Judge one difference. Pure: the same facts can be judged again.

    Args:
        diff: the facts; ``needed_atol`` must have been computed with the tolerance's rtol.
        tolerance: what is accepted.
        subject: the verdict's subject.
        outside: number of elements outside the tolerance, for the message, where it was counted.

    Raises:
        UsageError: the facts were computed with another rtol.
    """
    if tolerance.rtol is not None and diff.size and tolerance.rtol != diff.rtol:
        raise UsageError(f"{subject}: computed with rtol {diff.rtol}, judged with rtol {tolerance.rtol}")
    kinds, share = (_kind(diff.expected_dtype), _kind(diff.actual_dtype)), None
    if "" in kinds:
        outcome, reason = Outcome.ERROR, f"no numbers: expected {diff.expected_dtype}, actual {diff.actual_dtype}"
    elif diff.expected_shape != diff.actual_shape:
        outcome = Outcome.FAIL
        reason = f"shapes differ: expected {diff.expected_shape}, actual {diff.actual_shape}"
    elif kinds[0] != kinds[1]:
        outcome = Outcome.FAIL
        reason = f"dtype kinds differ: expected {diff.expected_dtype}, actual {diff.actual_dtype}"
    elif not diff.size:
        outcome, reason = Outcome.ERROR, f"nothing was compared: the tensor is empty, shape {diff.expected_shape}"
    elif strange := _not_finite(diff, tolerance):
        outcome, reason = Outcome.FAIL, strange
    else:
        shown, most, passed = "", 0.0, True
        allowed = tolerance.atol or 0.0 if tolerance.threshold is None else tolerance.threshold
        for method in tolerance.methods or ("max",):
            value: float = getattr(diff, f"{method}_abs")
            shown += f", {method} {value:.3g}" if shown else f"{method} {value:.3g}"
            needed = diff.needed_atol if tolerance.threshold is None else value
            passed = passed and needed <= allowed  # written so that NaN never passes
            most = max(needed, most)  # in this order NaN stays
        if passed:
            outcome, reason = Outcome.PASS, f"{shown} · allowed {tolerance}"
            if tolerance.threshold is not None and diff.max_abs > tolerance.threshold:
                reason += f" · single elements differ by up to {diff.max_abs:.3g}, {_worst(diff)}"
        else:
            count = f"{outside} / {diff.size} outside · " if outside is not None else ""
            outcome, reason = Outcome.FAIL, f"not close · {count}{shown} · {_worst(diff)} · allowed {tolerance}"
            if isfinite(most):
                name = "atol" if tolerance.threshold is None else "threshold"
                # Rounded up, so that it is enough.
                bound = Context(prec=3, rounding=ROUND_CEILING).create_decimal(Decimal(most))
                reason += f" · would pass with {name} >= {float(bound):g}"
        # With rtol each element is allowed something else, which no fact tells.
        taken = most / allowed if allowed else inf if most else 0.0
        share = taken if isfinite(taken) and not tolerance.rtol else None
    return Verdict(outcome, subject, reason, diff=diff, share=share)


def vacuous(diff: TensorDiff, tolerance: Tolerance) -> str | None:
    """Return why a check proves nothing, or None if it does prove something.

    It proves nothing where every value of a float reference is itself within the absolute bound: a port
    that puts out zeros would pass. The caller decides what follows, and for which tensors it asks.
    """
    bound = tolerance.atol if tolerance.threshold is None else tolerance.threshold
    floats = _kind(diff.expected_dtype) in ("float", "complex")
    if not diff.size or not floats or not bound or not diff.expected_max_abs <= bound:
        return None
    return (
        f"proves nothing: all of the reference is within {diff.expected_max_abs:.3g} of zero, "
        f"which the tolerance ({tolerance}) cannot tell from zeros"
    )


@lru_cache(maxsize=64)
def _kind(dtype: str) -> str:
    """Return the kind of numbers that a dtype's name stands for, "" if none."""
    try:
        return _KINDS.get(np.dtype(dtype).kind, "")
    except TypeError:  # no dtype of NumPy's
        return ""


def _not_finite(diff: TensorDiff, tolerance: Tolerance) -> str | None:
    if diff.mismatched_nan:
        what = f"NaN at different positions: {diff.expected_nan} expected, {diff.actual_nan} actual, {diff.mismatched_nan} on one side only"
    elif diff.mismatched_inf:
        what = f"Inf at different positions or of different sign: {diff.mismatched_inf} of {diff.size}"
    elif diff.expected_nan and not tolerance.equal_nan:
        what = f"NaN on both sides at {diff.expected_nan} of {diff.size} positions, accepted only with equal_nan"
    else:
        return None
    return f"{what} · {_worst(diff, word='first')}"


def _worst(diff: TensorDiff, word: str = "worst") -> str:
    place = f" at {diff.worst_index}" if diff.worst_index else ""
    both = (diff.worst_expected, diff.worst_actual)
    # Nine digits tell any two float32 apart.
    expected, actual = (f"{one:.9g}" if isinstance(one, float) else str(one) for one in both)
    return f"{word}{place}: expected {expected}, actual {actual}"


LEFT_OUT = ("share", "accepted")
"""Keys that the JSON lacks where there is nothing to tell."""


def render_verdicts(verdicts: Iterable[Verdict]) -> list[dict[str, object]]:
    """Return verdicts as JSON that `parse_as` reads leniently; NaN, Inf and complex numbers become strings."""
    return [
        {name: value for name, value in as_json(verdict).items() if name not in LEFT_OUT or value not in (None, "")}
        for verdict in verdicts
    ]


PASSED, FAILED = "diff check passed", "diff check failed"
INDENT = "\t"


def write_diff_log(
    path: str | PathLike[str] | None,
    verdicts: Sequence[Verdict],
    tolerances: Tolerance | Mapping[str, Tolerance],
    *,
    stage: str = "",
    stream: TextIO | None = None,
) -> bool:
    """Write verdicts in reprod_log's format, and return whether all passed.

    Args:
        path: the log, replaced whole; None writes none.
        verdicts: in the order of the lines.
        tolerances: the tolerance of all verdicts, or of each by subject.
        stage: taken off the subjects (``forward/logits`` is logged as ``logits``).
        stream: where the same lines go as well.

    Raises:
        OSError: the log cannot be written.
    """
    lines: list[str] = []
    for verdict in verdicts:
        tolerance = tolerances if isinstance(tolerances, Tolerance) else tolerances.get(verdict.subject)
        lines.append(f"{escaped(verdict.subject.removeprefix(f'{stage}/'))}: ")
        # Statistics, and a sentence where they are not enough.
        said = good = verdict.outcome is Outcome.PASS
        if verdict.diff is not None and verdict.diff.size and tolerance is not None:
            if tolerance.threshold is None:
                # reprod_log has no such rule; the line is shaped like its own.
                lines.append(method_line("max", verdict.diff.max_abs, passed=good))
            else:
                more, good = method_lines(statistics(verdict.diff), tolerance.methods, tolerance.threshold)
                lines += more
            said = good is (verdict.outcome is Outcome.PASS) and verdict.outcome is not Outcome.SKIP
        if not said or verdict.outcome is Outcome.ERROR:
            lines.append(f"{INDENT}{verdict.outcome.value}: {escaped('; '.join(verdict.reason.split(chr(10))))}")
    passed = exit_code(verdict.outcome for verdict in verdicts) is ExitCode.PASSED
    skipped = bool(verdicts) and all(verdict.outcome is Outcome.SKIP for verdict in verdicts)
    log_lines([*lines, PASSED if passed else "nothing was compared" if skipped else FAILED], path, stream)
    return passed


def statistics(diff: TensorDiff) -> dict[str, float]:
    """Return the three statistics under reprod_log's names; of integers, max and min are integers."""
    values = {"mean": diff.mean_abs, "max": diff.max_abs, "min": diff.min_abs}
    if diff.size and all(one.startswith(("int", "uint", "bool")) for one in (diff.expected_dtype, diff.actual_dtype)):
        values |= {"max": int(diff.max_abs), "min": int(diff.min_abs)}
    return values


def method_lines(
    values: Mapping[str, float], methods: Iterable[str], threshold: float, indent: str = INDENT
) -> tuple[list[str], bool]:
    """Return reprod_log's lines about one tensor; once a method has failed, the later ones' lines say so too."""
    lines, passed = [], True
    for method in methods:
        passed = passed and bool(values[method] <= threshold)  # written so that NaN never passes
        lines.append(method_line(method, values[method], passed=passed, indent=indent))
    return lines, passed


def method_line(method: str, value: float, *, passed: bool, indent: str = INDENT) -> str:
    """Return reprod_log's line about one statistic, in full precision."""
    return f"{indent}{method} diff: check passed: {passed}, value: {value}"


def log_lines(lines: Iterable[str], path: str | PathLike[str] | None, stream: TextIO | None) -> None:
    """Write lines with reprod_log's prefix, once each, to a new file and a stream."""
    now = datetime.now().astimezone().strftime("%Y/%m/%d %H:%M:%S")
    prefix = f"[{now}] root INFO: "
    text = "".join([f"{prefix}{line}\n" for line in lines])
    if path is not None:
        atomic_write(Path(path), text)
    if stream is not None:
        stream.write(text)
        stream.flush()
