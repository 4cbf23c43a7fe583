"""Judge what each named transform makes of the first samples: the first that differs is named, and in what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare
from tipchain.parity.judging.base import Dumps, Rules, details
from tipchain.parity.judging.sample_causes import explain_sample


def judge_transforms(dumps: Dumps, rules: Rules) -> list[Verdict]:
    """Return one verdict about all named transforms, or none where neither side names any."""
    subject = f"{dumps.stage}/transforms"
    names = [_names(facts) for facts in (details(dumps.reference), details(dumps.port))]
    if names == [None, None]:
        return []
    if None in names:
        side = "port" if names[0] is None else "reference"
        reason = f"only the {side} names a builder `transforms`: nothing to compare"
        return [Verdict(outcome=Outcome.ERROR, subject=subject, reason=reason)]
    for side, record in (("reference", dumps.reference), ("port", dumps.port)):
        gap = details(record).get("transforms_gap")
        if gap:
            reason = f"the {side}'s named transforms do not give what its data set gives: {gap}"
            return [Verdict(outcome=Outcome.ERROR, subject=subject, reason=reason)]
    expected, actual = (list(one or []) for one in names)
    said = next(_differing(dumps, rules, expected), "")
    if not said and expected != actual:
        said = (
            f"the sides name different transforms: {', '.join(expected)} expected, {', '.join(actual)} actual"
        )
    if said:
        return [Verdict(outcome=Outcome.FAIL, subject=subject, reason=said)]
    reason = f"equal after each: {', '.join(expected)}"
    return [Verdict(outcome=Outcome.PASS, subject=subject, reason=reason)]


def _names(facts: Mapping[str, object]) -> Sequence[str] | None:
    found = facts.get("transforms")
    return [str(name) for name in found] if isinstance(found, list) else None


def _differing(dumps: Dumps, rules: Rules, names: Sequence[str]) -> Iterator[str]:
    """Yield what differs, sample by sample and transform by transform."""
    files = details(dumps.reference).get("files")
    arrays = [
        {k: v for k, v in record.arrays.items() if k.startswith("transform_")}
        for record in (dumps.reference, dumps.port)
    ]
    tolerances = rules.for_arrays(dumps.stage, arrays[0])
    samples = list(dict.fromkeys(key.partition("/")[0] for key in arrays[0]))
    for sample in samples:
        number = int(sample.removeprefix("transform_"))
        file = f" ({files[number]})" if isinstance(files, list) and number < len(files) else ""
        before = ""
        for name in names:
            key = f"{sample}/{name}"
            if key not in arrays[0] or key not in arrays[1]:
                break
            expected, actual = arrays[0][key], arrays[1][key]
            (verdict,) = compare({key: expected}, {key: actual}, tolerances[key])
            if verdict.outcome is not Outcome.PASS or expected.dtype != actual.dtype:
                where = (
                    f"first differs after {name!r}"
                    if before
                    else "differs as it is read, before any transform"
                )
                yield f"sample {number}{file} {where}: {explain_sample(expected, actual) or verdict.reason}"
            before = name
