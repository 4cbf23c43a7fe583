"""Judge inference: every output of each engine, and what kept an engine from giving one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare
from tipchain.parity.judging import plain
from tipchain.parity.judging.base import Dumps, Judged, Rules, details
from tipchain.parity.tolerance import Tolerance

NOTHING = "nothing was compared: no arrays"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the outputs of both engines with the training engine's; an engine left out is a SKIP with the reason."""
    facts = details(dumps.port)
    engines: Mapping[str, Any] = facts.get("engines") or {}
    missing = tuple(verdict for name, engine in engines.items() for verdict in _missing(dumps, name, engine))
    if not dumps.port.arrays and not dumps.reference.arrays and missing:
        return Judged(verdicts=missing)
    judged = plain.judge_arrays(dumps, rules)
    verdicts = tuple(_explained(dumps, judged, verdict, facts) for verdict in judged.verdicts)
    return replace(judged, verdicts=verdicts + missing, notes=tuple(_notes(engines)))


def _missing(dumps: Dumps, name: str, engine: Mapping[str, Any]) -> Iterator[Verdict]:
    """Yield a verdict for everything that an engine did not give."""
    subject = f"{dumps.stage}/{name}"
    if engine.get("skipped"):
        yield Verdict(outcome=Outcome.SKIP, subject=subject, reason=engine["skipped"])
        return
    for batch, message in engine.get("errors", {}).items():
        place = f"{subject}@{batch}" if batch else subject
        yield Verdict(
            outcome=Outcome.ERROR, subject=place, reason=f"{message}{_other_batches(dumps, name, batch)}"
        )
    if not engine.get("errors") and not any(key.startswith(f"{name}/") for key in dumps.port.arrays):
        yield Verdict(outcome=Outcome.ERROR, subject=subject, reason=f"{NOTHING} of this engine")


def _other_batches(dumps: Dumps, name: str, batch: str) -> str:
    ran = {key.rpartition("@")[2] for key in dumps.port.arrays if key.startswith(f"{name}/")}
    if not batch or not ran:
        return ""
    return f"; it runs at {', '.join(sorted(ran))}: the program is not of any batch size"


def _explained(dumps: Dumps, judged: Judged, verdict: Verdict, facts: Mapping[str, Any]) -> Verdict:
    """Add to a failure what the other outputs tell about its cause."""
    if verdict.outcome is not Outcome.FAIL or verdict.diff is None:
        return verdict
    key = verdict.subject.partition("/")[2]
    engine, _, output = key.partition("/")
    name = output.rpartition("@")[0]
    if facts.get("repeats") is False:
        hint = (
            "the training engine itself gives other values when it runs twice: a layer is random in eval mode"
        )
    elif equal := _passing_batches(judged, f"{dumps.stage}/{engine}/{name}@"):
        hint = f"equal at {', '.join(equal)}: what the program computes depends on the batch size"
    elif other := _agreeing_engine(dumps, key, judged.tolerances[verdict.subject]):
        hint = (
            f"{other} gives the same as {engine}: the export differs from the model "
            "(a layer exported in train mode, or code that takes another path while it is traced)"
        )
    else:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; {hint}")


def _passing_batches(judged: Judged, prefix: str) -> list[str]:
    return [
        verdict.subject.removeprefix(prefix)
        for verdict in judged.verdicts
        if verdict.subject.startswith(prefix) and verdict.outcome is Outcome.PASS
    ]


def _agreeing_engine(dumps: Dumps, key: str, tolerance: Tolerance) -> str | None:
    """Return another engine whose output equals this one's."""
    engine, _, output = key.partition("/")
    for other, array in dumps.port.arrays.items():
        name, _, theirs = other.partition("/")
        if name != engine and theirs == output:
            (verdict,) = compare({key: array}, {key: dumps.port.arrays[key]}, tolerance)
            if verdict.outcome is Outcome.PASS:
                return name
    return None


def _notes(engines: Mapping[str, Any]) -> Iterator[str]:
    for name, engine in engines.items():
        versions = ", ".join(
            f"{package} {version}" for package, version in engine.get("versions", {}).items()
        )
        if versions:
            yield f"{name}: {versions}"
