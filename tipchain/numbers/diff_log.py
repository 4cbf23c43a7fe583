"""Diff logs: reprod_log's lines, written once to a file and once to a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TextIO

from tipchain.core.files import atomic_write
from tipchain.core.language import escaped
from tipchain.numbers.compare import TensorDiff
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import Verdict
from tipchain.outcome import ExitCode, Outcome, exit_code

PASSED, FAILED = "diff check passed", "diff check failed"
NOTHING = "nothing was compared"
"""What stands there where all was skipped: one side alone was recorded, say."""
INDENT = "\t"
_WHOLE = ("int", "uint", "bool")


def write_diff_log(
    path: str | PathLike[str] | None,
    verdicts: Sequence[Verdict],
    tolerances: Tolerance | Mapping[str, Tolerance],
    *,
    stage: str = "",
    stream: TextIO | None = None,
) -> bool:
    """Write what was judged as reprod_log writes it, and return whether all passed.

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
        lines += verdict_lines(verdict, tolerance, name=verdict.subject.removeprefix(f"{stage}/"))
    passed = exit_code(verdict.outcome for verdict in verdicts) is ExitCode.PASSED
    skipped = bool(verdicts) and all(verdict.outcome is Outcome.SKIP for verdict in verdicts)
    log_lines([*lines, PASSED if passed else NOTHING if skipped else FAILED], path, stream)
    return passed


def verdict_lines(verdict: Verdict, tolerance: Tolerance | None, *, name: str) -> list[str]:
    """Return the lines of one verdict: its statistics, and a sentence where they do not say it all."""
    lines, said = [f"{escaped(name)}: "], verdict.outcome is Outcome.PASS
    if verdict.diff is not None and verdict.diff.size and tolerance is not None:
        if tolerance.threshold is None:
            # reprod_log has no such rule; the line is shaped like its own.
            good = verdict.outcome is Outcome.PASS
            lines.append(method_line("max", verdict.diff.max_abs, passed=good))
        else:
            more, good = method_lines(statistics(verdict.diff), tolerance.methods, tolerance.threshold)
            lines += more
        said = good is (verdict.outcome is Outcome.PASS) and verdict.outcome is not Outcome.SKIP
    if not said or verdict.outcome is Outcome.ERROR:
        lines.append(f"{INDENT}{verdict.outcome.value}: {escaped('; '.join(verdict.reason.split(chr(10))))}")
    return lines


def statistics(diff: TensorDiff) -> dict[str, float]:
    """Return the three statistics under reprod_log's names; of integers, max and min are integers."""
    values = {"mean": diff.mean_abs, "max": diff.max_abs, "min": diff.min_abs}
    if diff.size and all(dtype.startswith(_WHOLE) for dtype in (diff.expected_dtype, diff.actual_dtype)):
        values |= {"max": int(diff.max_abs), "min": int(diff.min_abs)}
    return values


def method_lines(
    values: Mapping[str, float], methods: Iterable[str], threshold: float, indent: str = INDENT
) -> tuple[list[str], bool]:
    """Return reprod_log's lines about one tensor, and whether every method passed.

    As in reprod_log 1.0.1, once a method has failed the lines of the later ones say so too.
    """
    lines, passed = [], True
    for method in methods:
        passed = passed and bool(values[method] <= threshold)  # written so that NaN never passes
        lines.append(method_line(method, values[method], passed=passed, indent=indent))
    return lines, passed


def method_line(method: str, value: float, *, passed: bool, indent: str = INDENT) -> str:
    """Return reprod_log's line about one statistic, in full precision."""
    return f"{indent}{method} diff: check passed: {passed}, value: {value}"


def log_lines(lines: Iterable[str], path: str | PathLike[str] | None, stream: TextIO | None) -> None:
    """Write lines with reprod_log's prefix to a file, replaced whole, and to a stream: each once."""
    now = datetime.now().astimezone().strftime("%Y/%m/%d %H:%M:%S")
    text = "".join(f"[{now}] root INFO: {line}\n" for line in lines)
    if path is not None:
        atomic_write(Path(path), text)
    if stream is not None:
        stream.write(text)
        stream.flush()
