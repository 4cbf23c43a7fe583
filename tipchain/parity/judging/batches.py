"""Judge whether both sides were fed equal batches, and name the first sample that differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict
from tipchain.parity.judging import plain
from tipchain.parity.judging.base import Dumps, Judged, details


def judge_batches(dumps: Dumps) -> Judged:
    """Judge what both sides say about the samples behind their numbers; equal batches are said to be so."""
    subject = f"{dumps.stage}/batches"
    left, right = details(dumps.reference), details(dumps.port)
    judged = plain.judge_details(dumps)
    place = _first_difference(left, right)
    verdicts = [
        replace(verdict, reason=f"{verdict.reason}; {place}")
        if verdict.subject == subject and place
        else verdict
        for verdict in judged.verdicts
    ]
    kept = left.get("first_batches")
    if kept and left.get("batches") == right.get("batches"):
        verdicts.append(
            Verdict(outcome=Outcome.PASS, subject=subject, reason="equal files and labels, in order")
        )
    return replace(judged, verdicts=tuple(verdicts))


def _first_difference(left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    pairs = [_samples(facts.get("first_batches")) for facts in (left, right)]
    for expected, actual in zip(*pairs, strict=False):
        if expected != actual:
            return f"first at batch {expected[0]}, sample {expected[1]}: expected {_shown(expected)}, actual {_shown(actual)}"
    return ""


def _samples(batches: Any) -> Iterator[tuple[int, int, str, Any]]:
    """Yield batch, sample, file and label of every sample; labels that are no list stand beside each file."""
    for number, batch in enumerate(batches if isinstance(batches, list) else ()):
        files, labels = batch["files"], batch["labels"]
        for index, file in enumerate(files):
            alone = isinstance(labels, list) and index < len(labels)
            yield number, index, str(file), labels[index] if alone else labels


def _shown(sample: tuple[int, int, str, Any]) -> str:
    _, _, file, label = sample
    return f"{file} with label {label[:12] if isinstance(label, str) else label}"
