"""Judge one stage from its two dumps. Nothing is run: the same files can be judged again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import InputError, RecordError
from tipchain.outcome import Outcome
from tipchain.parity.case_types import SIDES, Case, KnownDeviation
from tipchain.parity.defaults import tolerance_for, tolerances_for
from tipchain.parity.judge import Verdict, compare, vacuous
from tipchain.parity.names import dump_name, tensors_name
from tipchain.parity.record import Record, load_record
from tipchain.parity.tolerance import Tolerance

VACUOUS_STAGES = {"forward": "*", "loss": "loss", "backward": "loss_*"}
"""Stages whose float outputs must be of a size that the threshold can tell apart from zero."""
ZERO_GRADIENT = 1e-6
"""A gradient whose RMS is below this share of the model's largest is zero by structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJudgement:
    """The verdicts of one stage, with what a reader should know besides.

    Attributes:
        tolerances: the tolerance behind each verdict, by subject.
        notes: remarks that carry no verdict.
    """

    stage: str
    verdicts: tuple[Verdict, ...]
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How to judge: the case's tolerances, or one for all float tensors of a stage."""

    own: Mapping[str, Mapping[str, Tolerance]]
    deviations: tuple[KnownDeviation, ...] = ()
    strict: bool = False
    override: Tolerance | None = None

    @classmethod
    def of(cls, case: Case, *, strict: bool = False, override: Tolerance | None = None) -> Rules:
        """Return the case's rules."""
        return cls(own=case.tolerances, deviations=case.known_deviations, strict=strict, override=override)

    def for_keys(self, stage: str, keys: Iterable[str]) -> dict[str, Tolerance]:
        """Return the tolerance of every key of a stage's dump."""
        if self.override is not None:
            return dict.fromkeys(keys, self.override)
        return tolerances_for(stage, keys, self.own.get(stage, {}), strict=self.strict)

    def group(self, name: str) -> Tolerance:
        """Return the tolerance of ``gradient``, ``parameter`` or ``buffer`` tensors."""
        return tolerance_for("backward", name, self.own.get("backward", {}))


def judge_stage(stage: str, folder: Path, rules: Rules) -> StageJudgement:
    """Compare the dumps of one stage.

    Args:
        stage: the stage's name.
        folder: where both dumps lie.
        rules: tolerances and known deviations.

    Returns:
        The verdicts; an unreadable or missing dump is an ERROR verdict, never a pass.
    """
    paths = {side: folder / dump_name(stage, side) for side in SIDES}
    try:
        records = {side: load_record(path) for side, path in paths.items()}
    except InputError as error:
        return _failed(stage, "dump", str(error))
    differing = _different_inputs(records["torch"], records["paddle"])
    if differing:
        return _failed(stage, "inputs", f"the dumps come from different inputs: {', '.join(differing)}")
    notes = [f"{paths[side].name} has no JSON beside it: its inputs were not checked"
             for side in paths if not records[side].meta.get("inputs")]  # fmt: skip
    verdicts, tolerances = _judge_dump(stage, records["torch"], records["paddle"], rules)
    if stage == "data":
        verdicts += _judge_files(records["torch"], records["paddle"])
        notes += _kept_batches(records["torch"])
    if stage == "backward":
        more, named, remarks = _judge_tensors(paths["torch"], paths["paddle"], rules)
        verdicts, notes = verdicts + more, notes + remarks
        tolerances |= named
    return StageJudgement(
        stage=stage,
        verdicts=tuple(_deviate(verdict, rules.deviations) for verdict in verdicts),
        tolerances=tolerances,
        notes=tuple(notes),
    )


def case_of(folder: Path) -> Path | None:
    """Return the case file that the dumps in ``folder`` tell of, or None if they tell none that exists."""
    for path in sorted(folder.glob("*.npy.json")):
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        case = found.get("case") if isinstance(found, dict) else None
        if case and Path(case).is_file():
            return Path(case)
    return None


def _failed(stage: str, what: str, reason: str) -> StageJudgement:
    verdict = Verdict(outcome=Outcome.ERROR, subject=f"{stage}/{what}", reason=reason)
    return StageJudgement(stage=stage, verdicts=(verdict,))


def _different_inputs(reference: Record, port: Record) -> list[str]:
    """Return what the two dumps' inputs differ in, by name; only what both sides tell is compared."""
    left, right = reference.meta.get("inputs") or {}, port.meta.get("inputs") or {}
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return []
    return [
        f"{name} (torch {str(left[name])[:12]}, paddle {str(right[name])[:12]})"
        for name in left
        if name in right and left[name] != right[name]
    ]


def _judge_dump(
    stage: str, reference: Record, port: Record, rules: Rules
) -> tuple[list[Verdict], dict[str, Tolerance]]:
    keys = [*reference.arrays, *(key for key in port.arrays if key not in reference.arrays)]
    tolerances = rules.for_keys(stage, keys)
    verdicts = []
    for verdict in compare(reference.arrays, port.arrays, tolerances):
        tolerance = tolerances.get(verdict.subject)
        proof = _vacuous(stage, verdict, tolerance) if tolerance is not None else None
        named = replace(verdict, subject=f"{stage}/{verdict.subject}")
        verdicts.append(replace(named, outcome=Outcome.ERROR, reason=proof) if proof else named)
    return verdicts, {f"{stage}/{key}": tolerance for key, tolerance in tolerances.items()}


def _vacuous(stage: str, verdict: Verdict, tolerance: Tolerance) -> str | None:
    from fnmatch import fnmatchcase

    pattern = VACUOUS_STAGES.get(stage)
    if pattern is None or verdict.diff is None or verdict.outcome is not Outcome.PASS:
        return None
    return vacuous(verdict.diff, tolerance) if fnmatchcase(verdict.subject, pattern) else None


def _judge_files(reference: Record, port: Record) -> list[Verdict]:
    """Compare the file names that both loaders gave, in order."""
    subject = "data/files"
    left, right = _files(reference), _files(port)
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
    details = record.meta.get("details")
    files = details.get("files") if isinstance(details, Mapping) else None
    return [str(name) for name in files] if isinstance(files, list) else None


def _kept_batches(record: Record) -> list[str]:
    details: Any = record.meta.get("details") or {}
    kept, total = details.get("batches_kept"), details.get("batches_in_all")
    return [f"the first {kept} of {total} batches were compared"] if kept != total else []


def _judge_tensors(
    reference: Path, port: Path, rules: Rules
) -> tuple[list[Verdict], dict[str, Tolerance], list[str]]:
    """Judge gradients, parameters and buffers from the safetensors files beside the dumps."""
    paths = [
        path.with_name(tensors_name("backward", side))
        for side, path in (("torch", reference), ("paddle", port))
    ]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        subject = "backward/tensors"
        reason = f"no such file: {', '.join(map(str, missing))}; gradients were not compared"
        return [Verdict(outcome=Outcome.ERROR, subject=subject, reason=reason)], {}, []
    try:
        with _Tensors(paths[0]) as left, _Tensors(paths[1]) as right:
            return _compare_tensors(left, right, rules)
    except RecordError as error:
        return [Verdict(outcome=Outcome.ERROR, subject="backward/tensors", reason=str(error))], {}, []


def _compare_tensors(
    left: _Tensors, right: _Tensors, rules: Rules
) -> tuple[list[Verdict], dict[str, Tolerance], list[str]]:
    verdicts: list[Verdict] = []
    tolerances: dict[str, Tolerance] = {}
    notes: list[str] = []
    for group in ("gradient", "parameter", "buffer"):
        base = rules.group(group)
        names = [name for name in left if name.startswith(f"{group}/")]
        verdicts += _one_sided(left, right, group)
        scale, zeros = _scale(left, group, names)
        for name in names:
            if name not in right:
                continue
            bound = _bound(left, group, name, base, scale)
            tolerances[f"backward/{name}"] = bound
            verdicts.append(_judge_tensor(name, left[name], right[name], bound, base, scale))
        if names and group != "buffer" and not scale > 0:
            what = "gradients are" if group == "gradient" else "parameters stay as they were: all updates are"
            reason = f"all {what} zero or NaN in the reference, so the comparison proves nothing"
            verdicts.append(Verdict(outcome=Outcome.ERROR, subject=f"backward/{group}", reason=reason))
        if zeros and scale > 0:
            notes.append(f"zero by structure, {len(zeros)} {group}s: {', '.join(zeros)}")
    if not verdicts:
        verdicts.append(
            Verdict(outcome=Outcome.ERROR, subject="backward/tensors", reason="no gradients were recorded")
        )
    return verdicts, tolerances, notes


def _one_sided(left: _Tensors, right: _Tensors, group: str) -> Iterator[Verdict]:
    for first, second, words in ((left, right, "missing in the port"), (right, left, "not in the reference")):
        for name in first:
            if name.startswith(f"{group}/") and name not in second:
                yield Verdict(outcome=Outcome.FAIL, subject=f"backward/{name}", reason=words)


def _scale(left: _Tensors, group: str, names: Iterable[str]) -> tuple[float, list[str]]:
    """Return what a group's tensors are measured by, and which gradients are zero by structure.

    Gradients: the largest RMS gradient in the reference model. Parameters: the largest RMS update.
    """
    if group == "buffer":
        return 0.0, []
    kind = "update_rms" if group == "parameter" else group
    rms = {name: _rms(left[f"{kind}/{name.partition('/')[2]}"]) for name in names}
    largest = max(rms.values(), default=0.0)
    if group == "parameter":
        return largest, []
    return largest, [
        name.partition("/")[2] for name, value in rms.items() if value <= ZERO_GRADIENT * largest
    ]


def _bound(left: _Tensors, group: str, name: str, base: Tolerance, scale: float) -> Tolerance:
    """Return max|difference| <= rtol * scale + atol as a tolerance of its own.

    A parameter is also allowed the rounding of its own value, four times float32's epsilon; a buffer
    is measured by its own largest value.
    """
    rtol, atol = base.rtol or 0.0, base.atol or 0.0
    if base.threshold is not None:
        return base
    if group == "buffer":
        scale = _max_abs(left[name])
    bound = rtol * scale + atol
    if group == "parameter":
        bound += 4 * float(np.finfo(np.float32).eps) * _max_abs(left[name])
    return Tolerance(method="max", threshold=bound, reason=base.reason)


def _judge_tensor(
    name: str, expected: Any, actual: Any, bound: Tolerance, base: Tolerance, scale: float
) -> Verdict:  # fmt: skip
    (verdict,) = compare({name: expected}, {name: actual}, bound)
    reason = verdict.reason
    if verdict.outcome is Outcome.FAIL and base.rtol is not None and verdict.diff is not None and scale:
        reason += f"; {verdict.diff.max_abs / scale:.2g} of the model's largest RMS, allowed {base.rtol:.2g}"
    return replace(verdict, subject=f"backward/{name}", reason=reason)


def _rms(array: Any) -> float:
    flat = np.asarray(array).ravel()
    return float(np.sqrt(np.dot(flat, flat) / max(flat.size, 1)))


def _max_abs(array: Any) -> float:
    return float(max(abs(float(np.max(array))), abs(float(np.min(array))))) if np.asarray(array).size else 0.0


def _deviate(verdict: Verdict, deviations: Iterable[KnownDeviation]) -> Verdict:
    """Turn a known deviation into a SKIP with its reason, and one that stopped deviating into a FAIL."""
    for deviation in deviations:
        if deviation.subject != verdict.subject:
            continue
        if verdict.outcome is Outcome.FAIL:
            return replace(
                verdict,
                outcome=Outcome.SKIP,
                reason=f"known deviation: {deviation.reason} ({verdict.reason})",
            )
        if verdict.outcome is Outcome.PASS:
            reason = f"the known deviation is gone: {deviation.reason}; remove it from known_deviations"
            return replace(verdict, outcome=Outcome.FAIL, reason=reason)
    return verdict


class _Tensors(Mapping[str, Any]):
    """The tensors of a safetensors file, loaded one at a time."""

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            self._file: Any = safe_open(path, framework="numpy")
            self._names: dict[str, None] = dict.fromkeys(self._file.keys())  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            raise RecordError("is no complete safetensors file", file=path, found=error) from error

    def __enter__(self) -> _Tensors:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        del self._file

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would load the tensor to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
