"""Judge a stage from its two dumps: files that can be judged again; keys compared one by one, batches, large captures."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib import import_module
from math import isfinite
from pathlib import Path

import numpy as np

from tipchain.core.json_text import JsonObject
from tipchain.errors import InputError, Outcome, suggestion
from tipchain.framework_types import Array
from tipchain.modes import CHECKS, INFO, dump_name, tensors_name
from tipchain.numbers.compare import largest
from tipchain.numbers.dumps import Record, load_record
from tipchain.numbers.tolerance import DEFAULTS, EXACT, Tolerance, tolerance_for
from tipchain.numbers.verdicts import Verdict, compare, vacuous
from tipchain.parity.case import SIDES, Case, KnownDeviation
from tipchain.parity.envelope import FACTOR, FLOOR_ULPS

# What judging a stage rests on, and what comes out of it.


BENCHMARK = "benchmark"
"""The side of a dump of published numbers."""
ALPHA = 1e-3
"""Probability of a false alarm over all that is random in a stage, where the dumps name none."""
LEAST_ENVELOPE = f"the least envelope, {FLOOR_ULPS} units in the last place"
"""The envelope that losses are held to where the reference's own was not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumps:
    """The two dumps of one stage, and the folder that they are in."""

    stage: str
    reference: Record
    port: Record
    folder: Path = Path()

    @property
    def tensors(self) -> tuple[Path, Path]:
        """The safetensors files beside the dumps, the reference's first; whether they exist is another matter."""
        return self.folder / tensors_name(self.stage, "torch"), self.folder / tensors_name(self.stage, "paddle")

    def with_keys(self, wanted: Callable[[str], bool]) -> Dumps:
        """Leave only the arrays whose keys are wanted."""
        reference, port = (
            replace(record, arrays={key: array for key, array in record.arrays.items() if wanted(key)})
            for record in (self.reference, self.port)
        )
        return replace(self, reference=reference, port=port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts of one stage, with the notes for a reader.

    Attributes:
        verdicts: one per tensor, key or other subject.
        tolerances: the tolerance behind each verdict, by subject.
        notes: remarks that carry no verdict.
        stage: its name, with which all subjects begin; "" while the stage itself judges.
    """

    verdicts: Sequence[Verdict] = ()
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    notes: Sequence[str] = ()
    stage: str = ""

    def __add__(self, other: Judged) -> Judged:
        return Judged(
            verdicts=(*self.verdicts, *other.verdicts),
            tolerances={**self.tolerances, **other.tolerances},
            notes=(*self.notes, *other.notes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How to judge: the case's tolerances, or one for all float tensors of a stage.

    Attributes:
        factor: how many times the envelope a loss of the training stage may be away.
        margin: difference of the mean metrics of several trainings that does not matter.
    """

    own: Mapping[str, Mapping[str, Tolerance]]
    deviations: tuple[KnownDeviation, ...] = ()
    strict: bool = False
    override: Tolerance | None = None
    factor: float = FACTOR
    margin: float = 0.15

    @classmethod
    def of(cls, case: Case, *, strict: bool = False, override: Tolerance | None = None) -> Rules:
        """Return the case's rules."""
        return cls(
            own=case.tolerances,
            deviations=case.known_deviations,
            strict=strict,
            override=override,
            factor=case.train.envelope.factor,
            margin=case.train.margin,
        )

    def for_arrays(self, stage: str, arrays: Mapping[str, Array]) -> dict[str, Tolerance]:
        """Return the tolerance of every array of a stage's dump; whole numbers must be equal unless the case says more.

        A mean would pass a few wrong classes among a million pixels.
        """
        if self.override is not None:
            return dict.fromkeys(arrays, self.override)
        own = self.own.get(stage, {})
        tolerances = {key: tolerance_for(stage, key, own, strict=self.strict) for key in arrays}
        for key, array in arrays.items():
            if array.dtype.kind in "biu" and not any(fnmatchcase(key, pattern) for pattern in own):
                tolerances[key] = EXACT
        return tolerances

    def asks(self, stage: str, key: str) -> bool:
        """Tell whether somebody asks for a tensor's tolerance, which then is meant as it stands, and not the default for all."""
        own = tolerance_for(stage, key, self.own.get(stage, {}), strict=self.strict)
        return self.override is not None or own is not DEFAULTS[stage]["*"]

    def group(self, name: str, stage: str = "backward") -> Tolerance:
        """Return a stage's tolerance of the tensors called ``gradient``, ``parameter`` or ``buffer``."""
        return tolerance_for(stage, name, self.own.get(stage, {}))


def scaled(rule: Tolerance, scale: float, values: object, extra: float = 0.0) -> Tolerance:
    """Return ``max|difference| <= rtol * scale + atol + extra`` as a tolerance of its own; a plain threshold stays.

    Args:
        rule: the rule that names rtol and atol.
        scale: what rtol is a share of, finite.
        values: the reference's; whole numbers have no rounding to allow, so that they must be equal.
        extra: rounding that is allowed besides.
    """
    if rule.threshold is not None:
        return rule
    whole = np.asarray(values).dtype.kind in "biu" and not rule.reason
    bound = 0.0 if whole else (rule.rtol or 0.0) * scale + (rule.atol or 0.0) + extra
    return Tolerance(method="max", threshold=bound, equal_nan=rule.equal_nan, reason=rule.reason)


def tensor_bound(group: str, rule: Tolerance, scale: float, values: Array) -> Tolerance:
    """Return a tensor's tolerance: a gradient's is a share of ``scale``, a buffer's of its own largest value.

    Besides, a gradient is allowed the rounding of its largest value, in which both sides are written: float32's epsilon of
    it. A parameter is allowed a share of ``scale``, the largest RMS update, and four times that rounding.
    """
    size = largest(values)
    roundings = {"gradient": 1, "parameter": 4}.get(group)
    if roundings is None:
        return scaled(rule, size, values)
    return scaled(rule, scale, values, extra=roundings * float(np.finfo(np.float32).eps) * size)


def root_mean_square(array: Array) -> float:
    """Return the root of the mean of the squares; 0 of an empty array."""
    flat = np.asarray(array).ravel()
    return float(np.sqrt(np.dot(flat, flat) / max(flat.size, 1)))


def details(record: Record) -> JsonObject:
    """Return the facts that a recorder left beside its dump."""
    found = record.meta.get("details")
    return found if isinstance(found, Mapping) else {}


def readings(dumps: Dumps) -> tuple[list[bool], list[str]]:
    """Return whether each side's data set gives other values at every read, and the words for it."""
    random = [bool(details(record).get("random")) for record in (dumps.reference, dumps.port)]
    return random, [("the same values at every read", "other values at every read")[one] for one in random]


# Judge a stage by comparing its dumps key by key; most stages need no more.


VACUOUS = {"forward": "*", "loss": "*loss", "backward": "loss_*", "inference": "*", "distributed": "loss_*"}
"""Stages whose float outputs must be of a size that the threshold can tell apart from zero."""
DETAILS = {"samples": "samples evaluated", "batches": "the sides trained on different files or labels"}
"""Facts beside a dump that must be equal, with the words for it when they are not."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the dumps, and both sides' facts of the samples behind their numbers."""
    return judge_arrays(dumps, rules) + judge_details(dumps)


def judge_arrays(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the arrays of the two dumps by name, each with its own tolerance."""
    reference, port = dumps.reference, dumps.port
    tolerances = rules.for_arrays(dumps.stage, {**port.arrays, **reference.arrays})
    verdicts = compare(reference.arrays, port.arrays, tolerances)
    for number, verdict in enumerate(verdicts):
        key = verdict.subject
        if key not in reference.arrays and reference.side == BENCHMARK:
            reason = "no published number in the case's benchmark"
            verdicts[number] = replace(verdict, outcome=Outcome.SKIP, reason=reason)
        elif verdict.diff and verdict.outcome is Outcome.PASS and fnmatchcase(key, VACUOUS.get(dumps.stage, "")):
            proof = vacuous(verdict.diff, tolerances[key])
            verdicts[number] = replace(verdict, outcome=Outcome.ERROR, reason=proof) if proof else verdict
    return Judged(verdicts=verdicts, tolerances=tolerances)


def judge_details(dumps: Dumps) -> Judged:
    """Compare both sides' facts of the samples and batches behind their numbers."""
    left, right = details(dumps.reference), details(dumps.port)
    verdicts = [
        Verdict(
            Outcome.FAIL,
            "outputs",
            f"the {side} model put out {facts['nan']} NaN; metrics of NaN tell nothing",
            finite=False,
        )
        for side, facts in zip(SIDES, (left, right), strict=True)
        if facts.get("nan")
    ]
    verdicts += [
        Verdict(Outcome.FAIL, key, f"{words}: expected {str(left[key])[:12]}, actual {str(right[key])[:12]}")
        for key, words in DETAILS.items()
        if key in left and key in right and left[key] != right[key]
    ]
    return Judged(verdicts=verdicts)


def judge_batches(dumps: Dumps) -> Judged:
    """Judge both sides' facts of the samples behind their numbers; the first sample that differs is named."""
    left, right = details(dumps.reference), details(dumps.port)
    verdicts = list(judge_details(dumps).verdicts)
    pairs = zip(*(_samples(facts.get("first_batches")) for facts in (left, right)), strict=False)
    if differing := next((pair for pair in pairs if pair[0] != pair[1]), None):
        shown = [
            f"{file} with label {label[:12] if isinstance(label, str) else label}" for _, _, file, label in differing
        ]
        batch, sample, _, _ = differing[0]
        place = f"; first at batch {batch}, sample {sample}: expected {shown[0]}, actual {shown[1]}"
        verdicts = [replace(one, reason=one.reason + place) if one.subject == "batches" else one for one in verdicts]
    if left.get("first_batches") and left.get("batches") == right.get("batches"):
        verdicts.append(Verdict(Outcome.PASS, "batches", "equal files and labels, in order"))
    return Judged(verdicts=verdicts)


def _samples(batches: object) -> Iterator[tuple[int, int, str, object]]:
    """Yield batch, sample, file and label of every sample; labels that are no list stand beside each file."""
    for number, batch in enumerate(batches if isinstance(batches, list) else ()):
        files, labels = batch["files"], batch["labels"]
        for index, file in enumerate(files):
            alone = isinstance(labels, list) and index < len(labels)
            yield number, index, str(file), labels[index] if alone else labels


def judge_dumps(dumps: Dumps, rules: Rules) -> Judged:
    """Judge the stage that ``dumps`` are of."""
    judged: Judged = import_module(f"tipchain.parity.stages.{dumps.stage}").judge(dumps, rules)
    return Judged(
        verdicts=tuple(replace(one, subject=f"{dumps.stage}/{one.subject}") for one in judged.verdicts),
        tolerances={f"{dumps.stage}/{subject}": tolerance for subject, tolerance in judged.tolerances.items()},
        notes=judged.notes,
        stage=dumps.stage,
    )


def judge_stage(stage: str, folder: Path, rules: Rules) -> Judged:
    """Compare the dumps of one stage.

    Args:
        stage: the stage's name.
        folder: where both dumps lie.
        rules: tolerances and known deviations.

    Returns:
        The verdicts; a dump that is unreadable, missing or not what its stage records is an ERROR, never a pass.
    """
    paths = {side: folder / dump_name(stage, side) for side in SIDES}
    try:
        records = {side: load_record(path) for side, path in paths.items()}
    except InputError as error:
        return unjudged(stage, "dump", str(error))
    wrong = [text for side in paths if (text := foreign(paths[side], records[side], stage, side))]
    if wrong:
        return unjudged(stage, "dump", "; ".join(wrong))
    told = (record.meta.get("inputs") for record in records.values())
    left, right = (inputs if isinstance(inputs, Mapping) else {} for inputs in told)
    differing = [
        f"{name} (torch {str(left[name])[:12]}, paddle {str(right[name])[:12]})"
        for name in left
        if name in right and left[name] != right[name]
    ]
    if differing:
        return unjudged(stage, "inputs", f"the dumps come from different inputs: {', '.join(differing)}")
    notes = tuple(
        f"{paths[side].name} has no JSON beside it: its inputs were not checked"
        for side in paths
        if not records[side].meta
    )
    commits = {side: records[side].meta.get("commit") for side in paths}
    if all(commits.values()) and len(set(commits.values())) > 1:
        both = ", ".join(f"{side} {commits[side]}" for side in paths)
        notes = (*notes, f"the dumps were recorded at different commits: {both}")
    try:
        judged = judge_dumps(
            Dumps(stage=stage, reference=records["torch"], port=records["paddle"], folder=folder), rules
        )
    except Exception as error:  # noqa: BLE001  (one stage's odd dump must not take the other stages' verdicts away)
        traceback.print_exc()
        return unjudged(stage, "dump", f"cannot be judged: {type(error).__name__}: {error}")
    verdicts = [deviate(verdict, rules.deviations) for verdict in judged.verdicts]
    subjects = {verdict.subject for verdict in verdicts}
    for deviation in rules.deviations:
        if deviation.subject.partition("/") == (stage, "/", CHECKS.get(stage)):
            continue  # of the live models, which are judged later
        if deviation.subject.startswith(f"{stage}/") and deviation.subject not in subjects:
            reason = "known_deviations names it, but nothing of that name was compared"
            reason += suggestion(deviation.subject, subjects)
            verdicts.append(Verdict(Outcome.ERROR, deviation.subject, reason))
    return replace(judged, verdicts=tuple(verdicts), notes=(*notes, *judged.notes))


def case_of(folder: Path) -> Path | None:
    """Return the case file that the dumps in ``folder`` tell of, or None if they tell none that exists."""
    for path in sorted(folder.glob("*.npy.json")):
        with suppress(OSError, ValueError, AttributeError):  # unreadable, no JSON, no object
            case = json.loads(path.read_bytes()).get("case")
            if case and Path(case).is_file():
                return Path(case)
    return None


def one_sided(left: Collection[str], right: Collection[str]) -> Iterator[Verdict]:
    """Yield a FAIL for each name that one side alone has."""
    for first, second, words in ((left, right, "missing in the port"), (right, left, "not in the reference")):
        yield from (Verdict(Outcome.FAIL, name, words) for name in first if name not in second)


def leaves_unknown(judgement: Judged) -> bool:
    """Tell whether losses leave the least envelope, and the reference's own was not recorded."""
    return any(f"leaves {LEAST_ENVELOPE}" in one.reason for one in judgement.verdicts)


def unjudged(stage: str, what: str, reason: str, outcome: Outcome = Outcome.ERROR) -> Judged:
    """Return the result of a stage that could not be judged."""
    return Judged(stage=stage, verdicts=(Verdict(outcome, f"{stage}/{what}", reason),))


def foreign(path: Path, record: Record, stage: str, side: str) -> str | None:
    """Return why a dump contradicts its name, or None; only the facts of its JSON are checked."""
    sides = (side, INFO[stage].reference) if side == "torch" else (side,)
    found = record.meta.get("side", side), record.meta.get("stage", stage)
    if found[0] in sides and found[1] == stage:
        return None
    return f"{path.name} holds the {found[0]} side's {found[1]} dump, not the {side} side's of {stage}"


def deviate(verdict: Verdict, deviations: Iterable[KnownDeviation]) -> Verdict:
    """Turn a known deviation into a SKIP with its reason, and one that stopped deviating into a FAIL."""
    for deviation in deviations:
        if deviation.subject != verdict.subject:
            continue
        if verdict.outcome is Outcome.FAIL:
            diff = verdict.diff
            if not (verdict.finite and (diff is None or not diff.size or isfinite(diff.max_abs))):
                return replace(verdict, reason=f"{verdict.reason}; no known deviation covers NaN or Inf")
            return replace(
                verdict, outcome=Outcome.SKIP, reason=f"known deviation: {deviation.reason} ({verdict.reason})"
            )
        if verdict.outcome is Outcome.PASS:
            reason = f"the known deviation is gone: {deviation.reason}; remove it from known_deviations"
            return replace(verdict, outcome=Outcome.FAIL, reason=reason)
    return verdict
