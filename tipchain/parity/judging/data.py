"""Judge evaluation data: the arrays, the samples one by one, the transforms, and the names of the files."""

from __future__ import annotations

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict
from tipchain.parity.judging import plain
from tipchain.parity.judging.base import Dumps, Judged, Rules, details
from tipchain.parity.judging.samples import judge_samples, label_notes
from tipchain.parity.judging.transforms import judge_transforms
from tipchain.parity.record import Record


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the arrays, then samples and transforms, of which the first that differs is explained, then file names."""
    verdicts = (*judge_samples(dumps, rules), *judge_transforms(dumps, rules), *judge_files(dumps))
    notes = (*_kept_batches(dumps.reference), *label_notes(dumps))
    return plain.judge(dumps, rules) + Judged(verdicts=verdicts, notes=notes)


def judge_files(dumps: Dumps) -> list[Verdict]:
    """Compare the file names that both loaders gave, in order."""
    subject = f"{dumps.stage}/files"
    left, right = _files(dumps.reference), _files(dumps.port)
    if left is None or right is None:
        return []
    if left == right:
        return [
            Verdict(outcome=Outcome.PASS, subject=subject, reason=f"{len(left)} file names equal, in order")
        ]
    if sorted(left) == sorted(right):
        kind = "the same files in another order"
    else:
        kind = f"{len(set(left) ^ set(right))} files on one side only"
    first = next(
        (n for n, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
        min(len(left), len(right)),
    )
    shown = [names[first] if first < len(names) else "nothing" for names in (left, right)]
    return [Verdict(outcome=Outcome.FAIL, subject=subject,
                    reason=f"{kind}; first at sample {first}: expected {shown[0]}, actual {shown[1]}")]  # fmt: skip


def _files(record: Record) -> list[str] | None:
    files = details(record).get("files")
    return [str(name) for name in files] if isinstance(files, list) else None


def _kept_batches(record: Record) -> list[str]:
    facts = details(record)
    kept, total = facts.get("batches_kept"), facts.get("batches_in_all")
    return [f"the first {kept} of {total} batches were compared"] if kept != total else []
