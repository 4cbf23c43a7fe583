"""Judge backward: losses and rates, then the gradients, parameters and buffers in safetensors files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import RecordError
from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare
from tipchain.parity.judging import plain
from tipchain.parity.judging.base import Dumps, Judged, Rules
from tipchain.parity.names import tensors_name
from tipchain.parity.tolerance import Tolerance

ZERO_GRADIENT = 1e-6
"""A gradient whose RMS is below this share of the model's largest is zero by structure."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare losses and rates, then every gradient, parameter and buffer."""
    verdicts, tolerances, notes = judge_tensors(dumps.reference_path, dumps.port_path, rules)
    tensors = Judged(verdicts=tuple(verdicts), tolerances=tolerances, notes=tuple(notes))
    return plain.judge(dumps, rules) + tensors


def judge_tensors(
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
    # What is NaN or infinite fails by itself; it measures nothing.
    largest = max(filter(isfinite, rms.values()), default=0.0)
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
    """Return the largest finite ``|value|``: a mask's infinity would make the bound infinite too."""
    largest = float(max(abs(float(np.max(array))), abs(float(np.min(array))))) if np.size(array) else 0.0
    return largest if isfinite(largest) else float(np.max(np.abs(array), initial=0, where=np.isfinite(array)))


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
