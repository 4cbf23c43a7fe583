"""What judging a stage rests on, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.parity.case_types import Case, KnownDeviation
from tipchain.parity.defaults import EXACT, tolerance_for, tolerances_for
from tipchain.parity.envelope import FACTOR
from tipchain.parity.judge import Verdict
from tipchain.parity.record import Record
from tipchain.parity.tolerance import Tolerance

BENCHMARK = "benchmark"
"""The side of a dump of published numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumps:
    """The two dumps of one stage, with their files."""

    stage: str
    reference: Record
    port: Record
    reference_path: Path
    port_path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts of one stage, with what a reader should know besides.

    Attributes:
        verdicts: one per tensor, key or other subject; subjects begin with ``stage/``.
        tolerances: the tolerance behind each verdict, by subject.
        notes: remarks that carry no verdict.
    """

    verdicts: tuple[Verdict, ...]
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __add__(self, other: Judged) -> Judged:
        return Judged(
            verdicts=self.verdicts + other.verdicts,
            tolerances={**self.tolerances, **other.tolerances},
            notes=self.notes + other.notes,
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
            own=case.tolerances, deviations=case.known_deviations, strict=strict, override=override,
            factor=case.train.envelope.factor, margin=case.train.margin,
        )  # fmt: skip

    def for_arrays(self, stage: str, arrays: Mapping[str, Any]) -> dict[str, Tolerance]:
        """Return the tolerance of every array of a stage's dump; whole numbers must be equal unless the case says more.

        A mean would pass a few wrong classes among a million pixels.
        """
        if self.override is not None:
            return dict.fromkeys(arrays, self.override)
        own = self.own.get(stage, {})
        tolerances = tolerances_for(stage, arrays, own, strict=self.strict)
        for key, array in arrays.items():
            if array.dtype.kind in "biu" and not any(fnmatchcase(key, pattern) for pattern in own):
                tolerances[key] = EXACT
        return tolerances

    def group(self, name: str, stage: str = "backward") -> Tolerance:
        """Return a stage's tolerance of the tensors called ``gradient``, ``parameter`` or ``buffer``."""
        return tolerance_for(stage, name, self.own.get(stage, {}))


def scaled(rule: Tolerance, scale: float, values: Any, extra: float = 0.0) -> Tolerance:
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


def largest(array: Any) -> float:
    """Return the largest finite ``|value|``, 0 of none: a mask's infinity would make a bound infinite too."""
    values = np.asarray(array)
    values = np.abs(values) if values.dtype.kind == "c" else values
    if not values.size:
        return 0.0
    # Both ends, since the absolute value of the least integer is no such integer.
    ends = float(values.max()), float(values.min())
    if not all(map(isfinite, ends)):
        finite = values[np.isfinite(values)]
        return largest(finite) if finite.size else 0.0
    return max(map(abs, ends))


def details(record: Record) -> Mapping[str, Any]:
    """Return the facts that a recorder left beside its dump."""
    found = record.meta.get("details")
    return found if isinstance(found, Mapping) else {}
