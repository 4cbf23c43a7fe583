"""What is wrong with a tensor that differs: its order, its scale, its place, its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.diagnose.held import STATISTICS, Held
from tipchain.parity.diagnose.hypotheses import name_number
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.rounding import CONSTANT, NOISE, ROUGH, SAME_ENLARGED, SAME_SINGLE, TINY

Array = npt.NDArray[Any]

FEW = 16
"""Wrong elements that are told one by one."""
GATES = {"LSTM": "ifgo", "LSTMCell": "ifgo", "GRU": "rzn", "GRUCell": "rzn"}


def describe(
    one: Held, wrong: Sequence[Held], piece: Piece, states: tuple[Mapping[str, Array], Mapping[str, Array]]
) -> tuple[str, str, str]:
    """Return a slug, what is wrong with a tensor, and what to do about it."""
    ours, theirs = one.ours, one.theirs
    leaf = one.name.rpartition(".")[2]
    load = "load `{name}` of `{path}` from the reference's weights"
    for found in (_statistics(one, wrong), _blocks(one, piece), _arranged(one), _scaled(one)):
        if found is not None:
            return found
    other = _elsewhere(theirs, piece, states, one)
    if other is not None:
        return other
    if np.ptp(theirs) == 0:
        code = "missing-bias" if "bias" in leaf and not theirs.any() else "wrong-weight" if leaf not in STATISTICS else "running-statistics"  # fmt: skip
        return code, f"is {theirs.flat[0]:g} throughout, the reference's is not", load
    bad = np.argwhere(
        ~np.isclose(ours, theirs, rtol=SAME_SINGLE, atol=CONSTANT * np.abs(ours).max(initial=0.0))
    )
    if 0 < len(bad) <= max(FEW, theirs.size // 100) and len(bad) < theirs.size:
        shown = ", ".join(
            f"[{', '.join(map(str, index))}] {theirs[tuple(index)]:.6g} for {ours[tuple(index)]:.6g}"
            for index in bad[:3]
        )
        return "wrong-weight", f"has {len(bad)} wrong of {theirs.size} values: {shown}", load
    for dtype, bits in (("float16", 11), ("bfloat16", 8)):
        if np.allclose(_rounded(ours, bits), theirs, rtol=0, atol=NOISE + 2.0**-26 * np.abs(ours).max()):
            return "lower-precision", f"was rounded to {dtype}", load
    code = {"bias": "wrong-bias"}.get(leaf, "running-statistics" if leaf in STATISTICS else "wrong-weight")
    apart = float(np.sqrt(np.mean((ours - theirs) ** 2) / max(float(np.mean(ours**2)), TINY)))
    return code, f"holds other values (relative {apart:.3g})", load


WINDOWS = {"Hann": (0.5, 0.5), "Hamming": (0.54, 0.46), "Blackman": (0.42, 0.5, 0.08)}
"""Coefficients of windows, ``a0 - a1 cos + a2 cos2`` (Harris 1978)."""


def told_by_name(ours: Array, theirs: Array) -> tuple[str, str] | None:
    """Return the slug and words where both tensors are known ones of one kind: frequencies of positions, windows."""
    bases = rotary_base(ours), rotary_base(theirs)
    if bases[0] and bases[1] and abs(bases[0] / bases[1] - 1) > ROUGH:
        return "rope-theta", f"has the base (theta) {bases[1]:.3g}, the reference's {bases[0]:.3g}"
    windows = window_name(ours), window_name(theirs)
    if windows[0] and windows[1] and windows[0] != windows[1]:
        return "window", f"holds {windows[1]}, the reference's {windows[0]}"
    return None


def window_name(array: Array) -> str:
    """Return which window an array holds, periodic or symmetric; empty if it is none."""
    values = np.asarray(array, np.float64).squeeze()
    if values.ndim != 1 or len(values) < FEW:  # too short to be told from others
        return ""
    if (values == 1).all():
        return "a window of ones"
    for (name, terms), (kind, period) in product(
        WINDOWS.items(), (("periodic", len(values)), ("symmetric", len(values) - 1))
    ):
        angles = 2 * np.pi * np.arange(len(values)) / period
        window = sum((-1) ** order * term * np.cos(order * angles) for order, term in enumerate(terms))
        if np.allclose(values, window, rtol=0, atol=SAME_SINGLE):
            return f"a {kind} {name} window"
    return ""


def rotary_base(array: Array) -> float | None:
    """Return the base (theta) of positions' frequencies, or of a table of their cosines or sines; None if it is none.

    Frequencies are ``base ** (-i / n)``: they begin with 1, and each is the same fraction of the one before it.
    """
    table = array.squeeze()
    if table.ndim == 2 and len(table) > 1:
        first, second = table[0], table[1]
        if np.allclose(first, 1):
            table = np.arccos(np.clip(second, -1, 1))
        elif np.allclose(first, 0):
            table = np.arcsin(np.clip(second, -1, 1)) if second[0] <= 1 - SAME_SINGLE else second
        else:
            return None
        half = len(table) // 2
        if len(table) % 2 == 0 and np.allclose(table[:half], table[half:]):
            table = table[:half]
        elif len(table) % 2 == 0 and np.allclose(table[::2], table[1::2]):
            table = table[::2]
    if (
        table.ndim != 1
        or len(table) < 2
        or not np.all(table > 0)
        or not np.isclose(table[0], 1, atol=SAME_ENLARGED)
    ):
        return None
    ratios = table[1:] / table[:-1]
    if ratios[0] >= 1 or not np.allclose(ratios, ratios[0], rtol=ROUGH):
        return None
    return float(np.exp(-len(table) * np.log(ratios).mean()))


def _rounded(array: Array, bits: int) -> Array:
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(
        one, other, rtol=0, atol=SAME_SINGLE * np.abs(one).max(initial=0.0)
    )


def _statistics(one: Held, wrong: Sequence[Held]) -> tuple[str, str, str] | None:
    """Tell tensors of one layer that stand in each other's place, and variances with another divisor."""
    leaf = one.name.rpartition(".")[2]
    for other in wrong:
        inside = other.name.rpartition(".")[0] == one.name.rpartition(".")[0]
        if (
            inside
            and other is not one
            and other.ours.shape == one.ours.shape
            and _same(other.ours, one.theirs)
        ):
            if leaf in STATISTICS:
                return (
                    "swapped-statistics",
                    f"holds the reference's {other.name}",
                    "exchange `_mean` and `_variance` of `{path}`",
                )
            affine = {leaf, other.name.rpartition(".")[2]} == {"weight", "bias"}
            code = "swapped-affine" if affine else "swapped-weights"
            return (
                code,
                f"holds the reference's {other.name}",
                f"exchange `{one.name}` and `{other.name}` of `{{path}}`",
            )
    if leaf == "running_var":
        for power, told in (
            (0.5, "the standard deviation"),
            (-1.0, "the inverse"),
            (-0.5, "the inverse root"),
        ):
            if _same(one.ours**power, one.theirs):
                return "running-statistics", f"holds {told} of the variance", "load the variance into `_variance` of `{path}`"  # fmt: skip
        ratio = float(np.median(one.theirs / np.where(one.ours == 0, 1, one.ours)))
        if _same(one.ours * ratio, one.theirs) and ratio > 0:
            count = ratio / (ratio - 1) if ratio > 1 else 1 / (1 - ratio)  # n/(n-1), or (n-1)/n
            biased = abs(count - round(count)) < ROUGH * count and round(count) > 3
            told = f"is {ratio:.6g} times the reference's" + (
                f": biased for unbiased, of {round(count)} values" if biased else ""
            )
            fix = "load the reference's running variance into `_variance` of `{path}`"
            return "biased-variance" if biased else "running-statistics", told, fix
    return None


def _blocks(one: Held, piece: Piece) -> tuple[str, str, str] | None:
    """Tell gates, or query, key and value, in another order along the first axis."""
    leaf, kind = one.name.rpartition(".")[2], piece.calls[0].type
    letters = GATES.get(kind, "")
    rows = one.ours.shape[0] if one.ours.ndim else 0
    projections = "in_proj" in leaf or (
        not letters and rows % 3 == 0 and "qkv" in f"{piece.paths}{leaf}".lower()
    )
    letters = "qkv" if projections else letters
    if not letters or rows % len(letters):
        return None
    parts = np.split(one.ours, len(letters))
    for order in permutations(range(len(letters))):
        if list(order) != sorted(order) and _same(np.concatenate([parts[number] for number in order]), one.theirs):  # fmt: skip
            told = "".join(letters[number] for number in order)
            code = "swapped-qkv" if projections else "gate-order"
            fix = f"load the blocks of `{{name}}` of `{{path}}` in the order {letters}; they are in the order {told}"
            return code, f"has its blocks in the order {told}, the reference's are {letters}", fix
    transposed = (
        [part.T for part in parts] if one.ours.ndim == 2 and parts[0].shape[0] == parts[0].shape[1] else []
    )
    if transposed:
        for chosen in range(1, 2 ** len(letters)):
            mixed = [
                transposed[number] if chosen >> number & 1 else part for number, part in enumerate(parts)
            ]
            if _same(np.concatenate(mixed), one.theirs):
                which = ", ".join(letter for number, letter in enumerate(letters) if chosen >> number & 1)
                return "transposed-weight", f"is transposed for {which}", "transpose the weight: `weight.T`"
    return None


def _arranged(one: Held) -> tuple[str, str, str] | None:
    """Tell a tensor whose axes are in another order, or that runs backwards along some."""
    ours, theirs = one.ours, one.theirs
    for axes in list(permutations(range(ours.ndim)))[1:]:
        turned = ours.transpose(axes)
        if _same(turned, theirs) or _same(turned.reshape(theirs.shape), theirs):
            how = (
                "transposed" if ours.ndim == 2 else f"the reference's with its axes in the order {list(axes)}"
            )
            how += (
                ""
                if turned.shape == theirs.shape and ours.shape == turned.shape
                else ", reshaped instead of transposed"
            )
            code = "transposed-weight" if ours.ndim == 2 else "permuted-weight"
            fix = "transpose the weight of `{path}`: `weight.T`" if ours.ndim == 2 else f"give `{{path}}` the weight without `transpose({list(axes)})`"  # fmt: skip
            return code, f"is {how}", fix
    return _turned(one) if theirs.ndim and theirs.size > 1 else None


def _turned(one: Held) -> tuple[str, str, str] | None:
    """Tell a tensor that runs backwards along some axes, or is shifted, or has its values anywhere."""
    ours, theirs = one.ours, one.theirs
    if ours.ndim:
        for chosen in range(1, 2**ours.ndim):
            axes = tuple(axis for axis in range(ours.ndim) if chosen >> axis & 1)
            if _same(np.flip(ours, axes), theirs):
                channels = axes == (1,) and ours.shape[1] == 3 and ours.ndim == 4
                code = "channel-order" if channels else "flipped-weight"
                what = "has its input channels in the opposite order (RGB, BGR)" if channels else f"runs backwards along axes {list(axes)}"  # fmt: skip
                return code, what, f"flip `{{name}}` of `{{path}}` along axes {list(axes)}"
        for axis in range(ours.ndim):
            for shift in range(1, min(ours.shape[axis], 9)):
                for step in (shift, -shift):
                    if _same(np.roll(ours, step, axis), theirs):
                        return "permuted-weight", f"is shifted by {step} along axis {axis}", f"load `{{name}}` of `{{path}}` from index 0 of axis {axis}"  # fmt: skip
        if _same(np.sort(ours, axis=None), np.sort(theirs, axis=None)):
            return (
                "permuted-weight",
                "has the reference's values in another order",
                "load `{name}` of `{path}` in the reference's order",
            )
    return None


def _scaled(one: Held) -> tuple[str, str, str] | None:
    """Tell a tensor that is a multiple of the reference's, or differs from it by a constant."""
    ours, theirs = one.ours, one.theirs
    square = float(np.sum(ours * ours))
    if ours.size < 2 or not square or not theirs.any():
        return None
    factor = float(np.sum(ours * theirs)) / square
    if factor and _same(ours * factor, theirs):
        named = name_number(factor, ours.shape)
        code = "sign" if abs(factor + 1) < SAME_SINGLE else "scaled-weight"
        return (
            code,
            f"is {named} times the reference's",
            f"divide `{{name}}` of `{{path}}` by {named}, or load it again",
        )
    shift = float(np.mean(theirs - ours))
    if np.ptp(ours) > 0 and _same(ours + shift, theirs):
        return (
            "shifted-values",
            f"is the reference's plus {shift:.6g}",
            f"subtract {shift:.6g} from `{{name}}` of `{{path}}`",
        )
    return None


def _elsewhere(
    theirs: Array, piece: Piece, states: tuple[Mapping[str, Array], Mapping[str, Array]], one: Held
) -> tuple[str, str, str] | None:
    """Tell a tensor that the reference has in another layer."""
    state, ports = states
    own = f"{piece.paths[0]}.{one.name}" if piece.paths[0] else one.name
    if np.ptp(theirs) == 0:
        return None
    for name, array in state.items():
        if name != own and array.shape == theirs.shape and _same(array, theirs):
            code = (
                "swapped-qkv"
                if _projections(own, name)
                else "swapped-layers"
                if _held_elsewhere(one, ports)
                else "weight-of-another-layer"
            )
            return (
                code,
                f"is the reference's `{name}`",
                f"load `{own}` of the reference into `{{path}}`, not `{name}`",
            )
    return None


def _held_elsewhere(one: Held, ports: Mapping[str, Array]) -> bool:
    """Tell whether another layer of the port has what this one should have."""
    shapes = {one.ours.shape, one.ours.shape[::-1]}
    same = (array for array in ports.values() if array.shape in shapes)
    return any(_same(one.ours, array) or _same(one.ours, array.T) for array in same)


def _projections(one: str, other: str) -> bool:
    """Tell whether two names differ only in which of query, key and value they are of."""

    def parts(name: str) -> str:
        for word, letter in (("query", "q"), ("key", "k"), ("value", "v")):
            name = name.replace(word, letter)
        return name

    pairs = [(a, b) for a, b in zip(parts(one), parts(other), strict=False) if a != b]
    same = len(parts(one)) == len(parts(other))
    return same and len(pairs) == 1 and set(pairs[0]) <= set("qkv")
