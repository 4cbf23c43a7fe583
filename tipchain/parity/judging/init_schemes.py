"""In the words of papers: what random initial values look like, and which scheme gives such values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tipchain.parity.two_sample import kurtosis

Array = npt.NDArray[np.floating]
UNIFORM, NORMAL, TRUNCATED = "uniform", "normal", "normal truncated at 2 std"
ENOUGH = 200
"""Fewer values than this do not tell one kind of distribution from another."""
USUAL_STDS = (0.01, 0.02, 1.0)
"""Standard deviations that papers give as numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a sample looks like.

    Attributes:
        kind: ``"uniform"``, ``"normal"``, ``"normal truncated at 2 std"``, or "" where that cannot be told.
        doubt: how far, as a share, the standard deviation may be from that of the distribution.
    """

    mean: float
    std: float
    kurtosis: float
    kind: str
    doubt: float

    def __str__(self) -> str:
        return self.kind or (f"kurtosis {self.kurtosis:.2f}" if math.isfinite(self.kurtosis) else "one value")


def look_at(values: Array) -> Look:
    """Return what ``values`` look like.

    Args:
        values: finite values ``[n]``, n > 0.
    """
    mean, std = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
    if not std > 0:
        return Look(mean=mean, std=std, kurtosis=math.nan, kind="", doubt=0.0)
    fourth = kurtosis(values)
    reach = float(np.max(np.abs(values - mean))) / std
    # The standard error of a standard deviation is sqrt((kurtosis - 1) / 4n) of it.
    doubt = max(0.01, 4 * math.sqrt(max(fourth - 1, 0.1) / (4 * values.size)))
    return Look(mean=mean, std=std, kurtosis=fourth, kind=_kind(values.size, fourth, reach), doubt=doubt)


def _kind(size: int, fourth: float, reach: float) -> str:
    """Return the kind of distribution, by kurtosis and by the largest deviation in standard deviations."""
    if size < ENOUGH:
        return ""
    if abs(fourth - 1.8) <= max(0.1, 4 / math.sqrt(size)) and reach < 1.9:
        return UNIFORM
    # A normal law cut at two standard deviations has kurtosis 2.366 and reaches to 2.274 of its own.
    if abs(fourth - 2.366) <= max(0.12, 5 / math.sqrt(size)) and reach < 2.5:
        return TRUNCATED
    return NORMAL if abs(fourth - 3) <= max(0.2, 16 / math.sqrt(size)) else ""


def name_scheme(name: str, look: Look, shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the usual schemes that would give values of this look, joined with "or"; empty if none would.

    Args:
        name: the parameter's name; a bias goes by the fans of the weight beside it.
        look: what its values look like.
        shapes: shapes of all parameters, in torch's layout.
    """
    if look.kind and abs(look.mean) <= 0.1 * look.std:
        found = [
            words for words, std in _schemes(name, look.kind, shapes) if abs(look.std / std - 1) <= look.doubt
        ]
        return " or ".join(found[:2])
    return ""


def _schemes(name: str, kind: str, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, float]]:
    """Yield words and standard deviation of each scheme. Sources: He 2015, Glorot 2010, LeCun 1998."""
    shape = shapes.get(name, ())
    bias = len(shape) < 2
    if bias:
        shape = shapes.get(name.replace("bias", "weight"), ())
    if len(shape) >= 2:
        field = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * field, shape[0] * field
        if kind == UNIFORM:
            words = "uniform within 1/sqrt(fan_in)" if bias else "kaiming_uniform with a=sqrt(5)"
            yield f"{words} (torch's default)", 1 / math.sqrt(3 * fan_in)
        if not bias:
            law = UNIFORM if kind == UNIFORM else NORMAL
            yield f"kaiming_{law} of gain sqrt(2) over fan_in {fan_in}", math.sqrt(2 / fan_in)
            yield f"kaiming_{law} of gain sqrt(2) over fan_out {fan_out}", math.sqrt(2 / fan_out)
            yield f"xavier_{law} of gain 1", math.sqrt(2 / (fan_in + fan_out))
            yield f"kaiming_{law} of gain 1 over fan_in {fan_in}", 1 / math.sqrt(fan_in)
            yield f"kaiming_{law} of gain 1 over fan_out {fan_out}", 1 / math.sqrt(fan_out)
    if kind == UNIFORM:
        yield "uniform in [-1, 1)", 1 / math.sqrt(3)
    for std in USUAL_STDS:
        if kind == TRUNCATED:
            yield f"normal of std {std:g} cut at 2 std", std * 0.8796
        if kind == NORMAL:
            yield f"normal of std {std:g}", std
