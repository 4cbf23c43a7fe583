"""Judge backward: losses and rates, then the gradients, parameters and buffers in safetensors files, mode by mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from tipchain.errors import RecordError
from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare
from tipchain.parity.judging import plain
from tipchain.parity.judging.backward_hints import add_hints
from tipchain.parity.judging.base import Dumps, Judged, Rules, details, largest, scaled
from tipchain.parity.judging.batches import judge_batches
from tipchain.parity.judging.tensor_file import TensorFile, tensor_paths
from tipchain.parity.rounding import SAME_SINGLE
from tipchain.parity.settings.backward import MODES
from tipchain.parity.tolerance import Tolerance

NOISE_FACTOR = 3.0
"""How many times torch's own movement a gradient may be away; measured: 1.03 where a ReLU's kink lies between the sides."""
BLUNT = 0.1
"""Where rounding moves a tensor by more than this share of the model's largest RMS, nothing can be told."""
ROUNDING = "torch's own rounding"
PREFIXES = tuple(f"{mode}/" for mode in MODES)
"""What the keys of a second mode begin with."""
STAGE = "backward"
T = TypeVar("T")


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare losses and rates, then every gradient, parameter and buffer, in each mode that was recorded."""
    judged, done = Judged(verdicts=()), list[Judged]()
    with ExitStack() as stack:
        wrong, tensors = "", None
        try:
            tensors = _open(dumps, stack)
        except RecordError as error:
            wrong = str(error)
        for prefix, mode in _modes(dumps, tensors).items():
            done.append(_judge_mode(dumps, rules, tensors, prefix))
            judged += _named(add_hints(done[-1], mode, other=done[0] if prefix else None), prefix)
    if tensors is None:
        verdict = Verdict(outcome=Outcome.ERROR, subject=f"{STAGE}/tensors", reason=wrong)
        judged += Judged(verdicts=(verdict,))
    return judged + judge_batches(dumps)


def _open(dumps: Dumps, stack: ExitStack) -> tuple[TensorFile, TensorFile]:
    paths = tensor_paths(dumps)
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise RecordError(f"no such file: {', '.join(map(str, missing))}; gradients were not compared")
    left, right = (stack.enter_context(TensorFile(path)) for path in paths)
    return left, right


def _modes(dumps: Dumps, tensors: tuple[TensorFile, TensorFile] | None) -> dict[str, str]:
    """Return the modes that either side recorded, by what their keys begin with; "" where a name is not known."""
    told = details(dumps.reference).get("modes")
    first = str(told[0]) if isinstance(told, list) and told else ""
    keys = [key for names in (dumps.reference.arrays, dumps.port.arrays, *(tensors or ())) for key in names]
    return {"": first, **{one: one[:-1] for one in PREFIXES if any(key.startswith(one) for key in keys)}}


class _Part(Mapping[str, T]):
    """What belongs to one mode, without the prefix of its keys; nothing is loaded before it is asked for."""

    def __init__(self, values: Mapping[str, T], prefix: str) -> None:
        self._values, self._prefix = values, prefix
        others = () if prefix else PREFIXES
        mine = [key for key in values if key.startswith(prefix) and not key.startswith(others)]
        self._names = dict.fromkeys(key.removeprefix(prefix) for key in mine)

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._values[self._prefix + name]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would load the tensor to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _judge_mode(
    dumps: Dumps, rules: Rules, tensors: tuple[TensorFile, TensorFile] | None, prefix: str
) -> Judged:
    """Judge one mode; its subjects come without the prefix."""
    reference, port = (
        replace(record, arrays=_Part(record.arrays, prefix)) for record in (dumps.reference, dumps.port)
    )
    # A rule that names the mode goes before one that names none.
    own = rules.own.get(STAGE, {})
    named = {**(_Part(own, prefix) if prefix else {})}
    own = {**named, **{key: value for key, value in _Part(own, "").items() if key not in named}}
    rules = replace(rules, own={**rules.own, STAGE: own})
    judged = plain.judge_arrays(replace(dumps, reference=reference, port=port), rules)
    if tensors is not None:
        judged += _compare_tensors(_Part(tensors[0], prefix), _Part(tensors[1], prefix), rules)
    return judged


def _named(judged: Judged, prefix: str) -> Judged:
    """Put the prefix of a mode into the subjects, and its name into the notes."""
    if not prefix:
        return judged

    def name(subject: str) -> str:
        return f"{STAGE}/{prefix}{subject.removeprefix(f'{STAGE}/')}"

    return Judged(
        verdicts=tuple(replace(verdict, subject=name(verdict.subject)) for verdict in judged.verdicts),
        tolerances={name(subject): tolerance for subject, tolerance in judged.tolerances.items()},
        notes=tuple(f"{prefix[:-1]} mode: {note}" for note in judged.notes),
    )


def _compare_tensors(left: Mapping[str, Any], right: Mapping[str, Any], rules: Rules) -> Judged:
    verdicts: list[Verdict] = []
    tolerances: dict[str, Tolerance] = {}
    notes: list[str] = []
    noise_scale = 0.0
    for group in ("gradient", "parameter", "buffer"):
        base = rules.group(group)
        names = [name for name in left if name.startswith(f"{group}/")]
        verdicts += _one_sided(left, right, group)
        scale, zeros = _scale(left, group, names)
        noise_scale = scale if group == "gradient" else noise_scale
        for name in names:
            if name not in right:
                continue
            strict = _bound(left, group, name, base, scale)
            noise = _noise(left, name, noise_scale)
            verdict, bound = _judge_tensor(name, left[name], right[name], strict, noise, base, scale)
            tolerances[f"backward/{name}"] = bound
            verdicts.append(verdict)
        if names and group != "buffer" and not scale > 0:
            what = "gradients are" if group == "gradient" else "parameters stay as they were: all updates are"
            reason = f"all {what} zero or NaN in the reference, so the comparison proves nothing"
            verdicts.append(Verdict(outcome=Outcome.ERROR, subject=f"backward/{group}", reason=reason))
        rounded = [
            name for name in names
            if (known := tolerances.get(f"{STAGE}/{name}")) and known.reason == ROUNDING
        ]  # fmt: skip
        if rounded:
            notes.append(
                f"judged by torch's own rounding, {len(rounded)} {group}s: {', '.join(name.partition('/')[2] for name in rounded)}"
            )
        if zeros and scale > 0:
            notes.append(f"zero by structure, {len(zeros)} {group}s: {', '.join(zeros)}")
    if not verdicts:
        verdicts.append(
            Verdict(outcome=Outcome.ERROR, subject="backward/tensors", reason="no gradients were recorded")
        )
    return Judged(verdicts=tuple(verdicts), tolerances=tolerances, notes=tuple(notes))


def _one_sided(left: Mapping[str, Any], right: Mapping[str, Any], group: str) -> Iterator[Verdict]:
    for first, second, words in ((left, right, "missing in the port"), (right, left, "not in the reference")):
        for name in first:
            if name.startswith(f"{group}/") and name not in second:
                yield Verdict(outcome=Outcome.FAIL, subject=f"backward/{name}", reason=words)


def _scale(left: Mapping[str, Any], group: str, names: Iterable[str]) -> tuple[float, list[str]]:
    """Return what a group's tensors are measured by, and which gradients are zero by structure.

    Gradients: the largest RMS gradient in the reference model. Parameters: the largest RMS update.
    """
    if group == "buffer":
        return 0.0, []
    kind = "update_rms" if group == "parameter" else group
    rms = {name: _rms(left[f"{kind}/{name.partition('/')[2]}"]) for name in names}
    # What is NaN or infinite fails by itself; it measures nothing.
    scale = max(filter(isfinite, rms.values()), default=0.0)
    if group == "parameter":
        return scale, []
    return scale, [name.partition("/")[2] for name, value in rms.items() if value <= SAME_SINGLE * scale]


def _bound(left: Mapping[str, Any], group: str, name: str, base: Tolerance, scale: float) -> Tolerance:
    """Return what a tensor may differ by.

    A parameter is also allowed the rounding of its own value, four times float32's epsilon; a buffer
    is measured by its own largest value.
    """
    if group == "gradient" or base.threshold is not None:
        return scaled(base, scale, left[name])
    size = largest(left[name])
    if group == "buffer":
        return scaled(base, size, left[name])
    return scaled(base, scale, left[name], extra=4 * float(np.finfo(np.float32).eps) * size)


def _noise(left: Mapping[str, Any], name: str, scale: float) -> float:
    """Return by which share of the largest RMS rounding moves a gradient, and with it its parameter; 0 if unknown."""
    key = f"gradient_noise/{name.partition('/')[2]}"
    if name.startswith("buffer/") or key not in left or not scale > 0:
        return 0.0
    found = float(left[key]) / scale
    return found if isfinite(found) else 0.0


def _judge_tensor(
    name: str, expected: Any, actual: Any, strict: Tolerance, noise: float, base: Tolerance, scale: float
) -> tuple[Verdict, Tolerance]:
    """Return the verdict with the tolerance behind it: the usual one, or that and what rounding itself reaches.

    Args:
        name: the tensor's, without the stage.
        expected: torch's.
        actual: the port's.
        strict: the usual tolerance.
        noise: by which share of ``scale`` rounding moves torch's own.
        base: the rule behind the usual tolerance.
        scale: the model's largest RMS, 0 for none.
    """
    (verdict,) = compare({name: expected}, {name: actual}, strict)
    verdict = replace(verdict, subject=f"{STAGE}/{name}")
    if verdict.outcome is not Outcome.FAIL or base.rtol is None or verdict.diff is None or not scale:
        return verdict, strict
    share = f"{verdict.diff.max_abs / scale:.2g} of the model's largest RMS, allowed {base.rtol:.2g}"
    more = (strict.threshold or 0.0) + NOISE_FACTOR * noise * scale
    bound = Tolerance(method="max", threshold=more, reason=ROUNDING)
    if not noise or compare({name: expected}, {name: actual}, bound)[0].outcome is not Outcome.PASS:
        return replace(verdict, reason=f"{verdict.reason}; {share}"), strict
    reason = f"{share}; torch's own moves by {noise:.2g} where its weights start a little apart"
    if NOISE_FACTOR * noise <= BLUNT:
        return replace(verdict, outcome=Outcome.PASS, reason=reason), bound
    reason = f"rounding leaves nothing to tell: {reason}; dtype: float64 may tell more"
    return replace(verdict, outcome=Outcome.SKIP, reason=reason), bound


def _rms(array: Any) -> float:
    flat = np.asarray(array).ravel()
    return float(np.sqrt(np.dot(flat, flat) / max(flat.size, 1)))
