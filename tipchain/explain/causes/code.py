"""Code around the models, given equal inputs on both sides: results by name, those that differ, and where the code parts."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

import numpy as np

from tipchain.core.blame import users_fault
from tipchain.explain.causes.apart import glimpse
from tipchain.explain.causes.statements import CodeRun, Edit, explain_parting, kind_of
from tipchain.explain.findings import Diagnosis, of_piece
from tipchain.explain.locate.differences import rms
from tipchain.framework_types import Array
from tipchain.frameworks.live_models import LiveSide
from tipchain.numbers.tolerance import SAME_ENLARGED

T = TypeVar("T")
Leaf = np.ndarray[Any, np.dtype[Any]] | str
"""A result: an array, a number as one, or a string."""
Leaves = Mapping[str, Leaf]
Again = Callable[[int, int, Edit | None], tuple[CodeRun, Leaves] | None]
"""Runs a side's code for an input once more, recorded, or with an edit; None where that cannot be."""
LARGEST = 1e-4
"""Difference of a single value that is rounding, as a share of the largest."""


def leaves(
    value: object, tensors: Sequence[LiveSide], rows: tuple[type, ...] = (list, tuple), path: str = ""
) -> Iterator[tuple[str, Leaf]]:
    """Yield the arrays and strings in a nested value, by path: ``scores``, ``boxes.0``; any other object as an array of it.

    Args:
        value: mappings, tuples and lists of such.
        tensors: the frameworks whose tensors there may be.
        rows: the types of sequences that are one array where they hold numbers alone.
        path: of the value.
    """
    tensor = next((one for one in tensors if one.is_tensor(value)), None)
    if isinstance(value, Sequence | array) and not isinstance(value, list | tuple | str | bytes | range):
        value = list(value)
    row = isinstance(value, rows) and bool(value) and all(isinstance(one, int | float | np.generic) for one in value)  # type: ignore[attr-defined]
    if tensor is not None:
        yield path, tensor.array(value)
    elif isinstance(value, str | bytes):
        yield path, value if isinstance(value, str) else value.decode(errors="replace")
    elif isinstance(value, Mapping | list | tuple) and not row:
        for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(one, tensors, rows, f"{path}.{key}".lstrip("."))
    elif value is not None:
        read = row or isinstance(value, int | float | complex | range)
        read = read or any(hasattr(value, name) for name in ("__array__", "__array_interface__"))
        made = np.array(value if read else None)
        if not read:  # numpy would take any object with a length for a sequence
            made[()] = value
        yield path, made


def pair_names(
    ours: Mapping[str, T], theirs: Mapping[str, T], alike: Callable[[T, T], bool] = lambda *_: True
) -> dict[str, str]:
    """Return the port's name by the reference's: the same name, else the first left with a value alike."""
    found = {name: name for name in ours if name in theirs}
    rest = [name for name in theirs if name not in found]
    for name in (one for one in ours if one not in theirs):
        other = next((each for each in rest if alike(ours[name], theirs[each])), None)
        if other is not None:
            found[name] = other
            rest.remove(other)
    return found


def same_values(expected: Array, actual: Array, allowed: float | None = None) -> bool:
    """Tell whether two arrays are the same but for rounding, axes of size 1 of single numbers, and the width of their type.

    Args:
        expected: the reference's.
        actual: the port's.
        allowed: how far they may be apart beside; then neither their types nor single elements of many count.
    """
    if expected.shape != actual.shape:
        if not expected.size == actual.size == 1:
            return False
        actual = actual.reshape(expected.shape)
    kinds = [{"f": "float", "c": "complex"}.get(one.dtype.kind, "whole") for one in (expected, actual)]
    if allowed is None and kinds[0] != kinds[1] and expected.size > 1:
        return False
    if kinds == ["whole", "whole"]:
        return bool(allowed) or bool(np.array_equal(expected, actual))
    e, a = (one.astype(np.complex128 if "complex" in kinds else np.float64) for one in (expected, actual))
    usual = np.isfinite(e)
    if not np.array_equal(usual, np.isfinite(a)) or not np.array_equal(e[~usual], a[~usual], equal_nan=True):
        return False
    e, a = e[usual], a[usual]
    off = np.abs(e - a)
    if not off.any():
        return True
    largest = max(float(np.abs(e).max()), float(np.abs(a).max()))
    alone = allowed is None and float(off.max()) > LARGEST * largest
    return not alone and rms(off) <= SAME_ENLARGED * max(rms(e), rms(a)) + (allowed or 0.0)


def shown_apart(expected: Leaf | None, actual: Leaf | None) -> str:
    """Write two values that differ: whole where their shapes do, else how many elements differ, and where most."""
    if not (is_numeric(expected) and is_numeric(actual) and expected.shape == actual.shape and expected.size > 1):
        return f"expected {shown(expected)}, actual {shown(actual)}"
    off = np.nan_to_num(np.abs(np.subtract(expected, actual, dtype=np.complex128)), nan=np.inf)
    off = np.where(np.isnan(expected) & np.isnan(actual), 0.0, off)
    at = tuple(int(one) for one in np.unravel_index(int(off.argmax()), off.shape))
    count = int((off > SAME_ENLARGED * rms(np.where(np.isfinite(expected), expected, 0))).sum())
    return f"{count} of {off.size} values, most at {list(at)}: expected {expected[at]:.6g}, actual {actual[at]:.6g}"


def shown(value: Leaf | None) -> str:
    """Write a value; a single number with nine digits, for its last ones may differ."""
    if is_numeric(value):
        return f"{value.item():.9g}" if value.size == 1 else glimpse(value)
    return "nothing" if value is None else f"{value!r:.60}"


def recorded(tensors: Sequence[LiveSide], edit: Edit | None, work: Callable[[], T]) -> tuple[CodeRun, T]:
    """Return the record of some work, and its result."""
    program = CodeRun(tensors, edit)
    return program, program.run(work)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodePair:
    """What both sides' code makes of equal inputs.

    Attributes:
        path: what diagnoses call it.
        what: what messages call the inputs.
        inputs: what they call each of them.
        names: the port's result by the reference's.
        values: both results by name, input by input.
        again: runs the code once more; see `Again`.
        allowed: how far results may be apart; see `same_values`.
        evidence: where both codes are; empty where only their results are known.
        fix: what to do where they tell nothing.
    """

    path: str
    what: str
    inputs: Sequence[str]
    names: Mapping[str, str]
    values: Sequence[tuple[Leaves, Leaves]]
    again: Again
    allowed: float | None = None
    evidence: str = ""
    fix: str

    @cached_property
    def apart(self) -> dict[str, list[int]]:
        """The numbers of the inputs for which results differ, by the reference's name."""
        every = {
            name: [at for at in range(len(self.values)) if differs(*self.ends(at, name), self.allowed)]
            for name in self.names
        }
        return {name: off for name, off in every.items() if off}

    def ends(self, at: int, name: str) -> tuple[Leaf | None, Leaf | None]:
        """Return both sides' results for an input, None where there is none."""
        ours, theirs = self.values[at]
        return ours.get(name), theirs.get(self.names[name])

    def told(self, name: str) -> str:
        """Return for which inputs a result differs, with both values of the first."""
        off, count = self.apart[name], len(self.values)
        share = f"all {count}" if len(off) == count else f"{len(off)} of {count}"
        first = f"{self.inputs[off[0]]}{f', {name}' if name else ''}"
        return f"{share} {self.what}, first {first}: {shown_apart(*self.ends(off[0], name))}"

    def causes(self) -> Iterator[Diagnosis]:
        """Yield of each result that differs where both codes part on the way to it, or both values alone."""
        for name, (at, *_) in self.apart.items():
            ends = self.ends(at, name)
            cause = self._followed(at, name) if all(map(is_numeric, ends)) else None
            if cause is not None:
                yield replace(cause, evidence="; ".join(filter(None, (cause.evidence, self.evidence))))
                continue
            unseen = "finished results were compared; the code that makes them was not seen"
            yield of_piece(self.path, kind_of(*ends), self.told(name), self.evidence or unseen, self.fix)

    def _followed(self, at: int, name: str) -> Diagnosis | None:
        """Show the statements with which both codes part; None where they tell nothing."""
        other = self.names[name]
        try:
            ours, theirs = (self.again(side, at, None) for side in (0, 1))
        except Exception as error:
            if users_fault(error) is None:
                raise
            return None  # it cannot be run once more
        if ours is None or theirs is None or name not in ours[1] or other not in theirs[1]:
            return None
        ends = np.asarray(ours[1][name]), np.asarray(theirs[1][other])

        def mended(edit: Edit) -> Array:
            again = self.again(1, at, edit)
            return np.asarray(ends[1] if again is None else again[1][other])

        return explain_parting((ours[0], theirs[0]), ends, mended, self.path, self.told(name))


def differs(expected: Leaf | None, actual: Leaf | None, allowed: float | None = None) -> bool:
    """Tell whether two results differ: numbers as `same_values` says, strings where they are not equal."""
    if is_numeric(expected) and is_numeric(actual):
        return not same_values(expected, actual, allowed)
    if expected is None or actual is None or is_numeric(expected) or is_numeric(actual):
        return expected is not actual
    return not allowed and not np.array_equal(expected, actual)


def is_numeric(value: Leaf | None) -> TypeGuard[Array]:
    """Tell whether a result is an array of numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
