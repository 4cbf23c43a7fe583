"""Weights, buffers and inputs as causes: which differ, how, and what a layer makes of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import permutations, product

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.causes.functions import called, place_of
from tipchain.explain.causes.hypotheses import Hypothesis, name_number
from tipchain.explain.causes.piece import OUTPUT, Piece, is_mask, is_tensor, paddle_of
from tipchain.explain.causes.program import LAYER, Op, floats_of, on_input, then_first
from tipchain.explain.locate.differences import equal
from tipchain.explain.locate.matching import common_path
from tipchain.explain.preflight.parameters import GATES
from tipchain.framework_types import Array, Model, Nested, Tensor
from tipchain.frameworks.live_models import LiveSide
from tipchain.numbers.tolerance import CONSTANT, NOISE, ROUGH, SAME_ENLARGED, SAME_SINGLE, TINY
from tipchain.weights.files import view_of
from tipchain.weights.sides import TensorSlot, divide, stack, torch_view

STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTensor:
    """A tensor of both layers.

    Attributes:
        name: torch's name within the layer.
        ours: the reference's values.
        theirs: the port's, in torch's layout.
        slot: where the port keeps it; None of what no checkpoint holds.
        tensor: that tensor itself, where there is no slot.
    """

    name: str
    ours: Array
    theirs: Array
    slot: TensorSlot | None = None
    tensor: Tensor = None

    @property
    def differs(self) -> bool:
        """Whether a value differs by more than a rounding to float32."""
        if self.ours.shape != self.theirs.shape or equal(self.ours, self.theirs):
            return False
        scale = float(np.abs(self.ours).max(initial=0.0))
        return not np.allclose(self.ours, self.theirs, rtol=0, atol=CONSTANT * scale, equal_nan=True)


def held_by(piece: Piece) -> tuple[list[SharedTensor], dict[str, Array], dict[str, TensorSlot]]:
    """Return the tensors that both layers have, those that only the reference has, those that only the port has."""
    slots = {slot.name: slot for slot in _slots(piece)}
    if not slots:
        return [], {}, {}
    state = {
        name: piece.sides.reference.view(tensor)
        for name, tensor in piece.reference.state_dict().items()
        if tensor.is_floating_point()
    }
    both = [_held(slots[name], array) for name, array in state.items() if name in slots]
    names = {one.name for one in both}
    return (
        both,
        {name: one.astype(np.float64) for name, one in state.items() if name not in names},
        {name: one for name, one in slots.items() if name not in names},
    )


def _held(slot: TensorSlot, ours: Array) -> SharedTensor:
    """Return a tensor of both layers; values that differ in float64, those that do not as they are, not copied."""
    pieces = [view_of(part.tensor) for part in slot.parts]
    theirs = stack([one.T if part.transpose else one for part, one in zip(slot.parts, pieces, strict=True)], slot)
    if not equal(ours, theirs):
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    return SharedTensor(name=slot.name, ours=ours, theirs=theirs, slot=slot)


@contextmanager
def replaced(held: Sequence[SharedTensor], values: Mapping[str, Array] | None = None) -> Iterator[None]:
    """Let the port's layer have the reference's tensors, or other values, for a while."""
    before = [[tensor.numpy() for tensor in _tensors(one)] for one in held]
    try:
        for one in held:
            wanted = one.ours if values is None else values[one.name]
            _set(one, [wanted] if one.slot is None else divide(wanted, one.slot))
        yield
    finally:
        for one, arrays in zip(held, before, strict=True):
            _set(one, arrays)


def _tensors(held: SharedTensor) -> list[Tensor]:
    return [held.tensor] if held.slot is None else [part.tensor for part in held.slot.parts]


def _set(held: SharedTensor, arrays: Sequence[Array]) -> None:
    for tensor, array in zip(_tensors(held), arrays, strict=True):
        tensor.set_value(np.ascontiguousarray(array).astype(tensor.numpy().dtype))


def unsaved(piece: Piece) -> list[SharedTensor]:
    """Return the tensors that the port's code keeps but no checkpoint holds, each with the reference's of its name and size.

    Buffers that are not saved and plain attributes; where no name fits, the one tensor of its size.
    """
    saved = {id(part.tensor) for slot in _slots(piece) for part in slot.parts}
    ours = [
        (f"{path}.{name}".lstrip("."), one.detach().double().numpy())
        for path, module in piece.sides.reference.layers(piece.reference)
        for name, one in (*module.named_buffers(recurse=False), *vars(module).items())
        if piece.sides.reference.is_tensor(one)
    ]
    found = []
    for path, layer in piece.sides.port.layers(piece.port):
        own = {**layer._buffers, **vars(layer)}  # noqa: SLF001
        for name, one in own.items():
            if not piece.sides.port.is_tensor(one) or id(one) in saved or path in piece.judged:
                continue
            theirs = np.asarray(piece.sides.port.array(one), np.float64)
            full = f"{path}.{name}".lstrip(".")
            sized = [(known, array) for known, array in ours if array.shape == theirs.shape]
            named = [pair for pair in sized if pair[0] == full] or [
                pair for pair in sized if pair[0].rpartition(".")[2] == name
            ]
            fitting = named or (sized if len(sized) == 1 else [])
            if fitting:
                found.append(SharedTensor(name=full, ours=fitting[0][1], theirs=theirs, tensor=one))
    return found


def _slots(piece: Piece) -> list[TensorSlot]:
    try:
        return list(torch_view(piece.port))
    except WeightsError:
        return []


# What is wrong with a tensor that differs: its order, its scale, its place, its values.


FEW = 16
"""Wrong elements that are told one by one."""


def describe(
    one: SharedTensor,
    wrong: Sequence[SharedTensor],
    piece: Piece,
    states: tuple[Mapping[str, Array], Mapping[str, Array]],
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
        code = (
            "missing-bias"
            if "bias" in leaf and not theirs.any()
            else "wrong-weight"
            if leaf not in STATISTICS
            else "running-statistics"
        )
        return code, f"is {theirs.flat[0]:g} throughout, the reference's is not", load
    bad = np.argwhere(~np.isclose(ours, theirs, rtol=SAME_SINGLE, atol=CONSTANT * np.abs(ours).max(initial=0.0)))
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
    if table.ndim != 1 or len(table) < 2 or not np.all(table > 0) or not np.isclose(table[0], 1, atol=SAME_ENLARGED):
        return None
    ratios = table[1:] / table[:-1]
    if ratios[0] >= 1 or not np.allclose(ratios, ratios[0], rtol=ROUGH):
        return None
    return float(np.exp(-len(table) * np.log(ratios).mean()))


def _rounded(array: Array, bits: int) -> Array:
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=SAME_SINGLE * np.abs(one).max(initial=0.0))


def _statistics(one: SharedTensor, wrong: Sequence[SharedTensor]) -> tuple[str, str, str] | None:
    """Tell tensors of one layer that stand in each other's place, and variances with another divisor."""
    leaf = one.name.rpartition(".")[2]
    for other in wrong:
        inside = other.name.rpartition(".")[0] == one.name.rpartition(".")[0]
        if inside and other is not one and other.ours.shape == one.ours.shape and _same(other.ours, one.theirs):
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
        for power, told in ((0.5, "the standard deviation"), (-1.0, "the inverse"), (-0.5, "the inverse root")):
            if _same(one.ours**power, one.theirs):
                return (
                    "running-statistics",
                    f"holds {told} of the variance",
                    "load the variance into `_variance` of `{path}`",
                )
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


def _blocks(one: SharedTensor, piece: Piece) -> tuple[str, str, str] | None:
    """Tell gates, or query, key and value, in another order along the first axis."""
    leaf, kind = one.name.rpartition(".")[2], piece.calls[0].type
    letters = GATES.get(kind, "")
    rows = one.ours.shape[0] if one.ours.ndim else 0
    projections = "in_proj" in leaf or (not letters and rows % 3 == 0 and "qkv" in f"{piece.paths}{leaf}".lower())
    letters = "qkv" if projections else letters
    if not letters or rows % len(letters):
        return None
    parts = np.split(one.ours, len(letters))
    for order in permutations(range(len(letters))):
        if list(order) != sorted(order) and _same(np.concatenate([parts[number] for number in order]), one.theirs):
            told = "".join(letters[number] for number in order)
            code = "swapped-qkv" if projections else "gate-order"
            fix = f"load the blocks of `{{name}}` of `{{path}}` in the order {letters}; they are in the order {told}"
            return code, f"has its blocks in the order {told}, the reference's are {letters}", fix
    transposed = [part.T for part in parts] if one.ours.ndim == 2 and parts[0].shape[0] == parts[0].shape[1] else []
    if transposed:
        for chosen in range(1, 2 ** len(letters)):
            mixed = [transposed[number] if chosen >> number & 1 else part for number, part in enumerate(parts)]
            if _same(np.concatenate(mixed), one.theirs):
                which = ", ".join(letter for number, letter in enumerate(letters) if chosen >> number & 1)
                return "transposed-weight", f"is transposed for {which}", "transpose the weight: `weight.T`"
    return None


def _arranged(one: SharedTensor) -> tuple[str, str, str] | None:
    """Tell a tensor whose axes are in another order, or that runs backwards along some."""
    ours, theirs = one.ours, one.theirs
    for axes in list(permutations(range(ours.ndim)))[1:]:
        turned = ours.transpose(axes)
        if _same(turned, theirs) or _same(turned.reshape(theirs.shape), theirs):
            how = "transposed" if ours.ndim == 2 else f"the reference's with its axes in the order {list(axes)}"
            how += (
                ""
                if turned.shape == theirs.shape and ours.shape == turned.shape
                else ", reshaped instead of transposed"
            )
            code = "transposed-weight" if ours.ndim == 2 else "permuted-weight"
            fix = (
                "transpose the weight of `{path}`: `weight.T`"
                if ours.ndim == 2
                else f"give `{{path}}` the weight without `transpose({list(axes)})`"
            )
            return code, f"is {how}", fix
    return _turned(one) if theirs.ndim and theirs.size > 1 else None


def _turned(one: SharedTensor) -> tuple[str, str, str] | None:
    """Tell a tensor that runs backwards along some axes, or is shifted, or has its values anywhere."""
    ours, theirs = one.ours, one.theirs
    if ours.ndim:
        for chosen in range(1, 2**ours.ndim):
            axes = tuple(axis for axis in range(ours.ndim) if chosen >> axis & 1)
            if _same(np.flip(ours, axes), theirs):
                channels = axes == (1,) and ours.shape[1] == 3 and ours.ndim == 4
                code = "channel-order" if channels else "flipped-weight"
                what = (
                    "has its input channels in the opposite order (RGB, BGR)"
                    if channels
                    else f"runs backwards along axes {list(axes)}"
                )
                return code, what, f"flip `{{name}}` of `{{path}}` along axes {list(axes)}"
        for axis in range(ours.ndim):
            for shift in range(1, min(ours.shape[axis], 9)):
                for step in (shift, -shift):
                    if _same(np.roll(ours, step, axis), theirs):
                        return (
                            "permuted-weight",
                            f"is shifted by {step} along axis {axis}",
                            f"load `{{name}}` of `{{path}}` from index 0 of axis {axis}",
                        )
        if _same(np.sort(ours, axis=None), np.sort(theirs, axis=None)):
            return (
                "permuted-weight",
                "has the reference's values in another order",
                "load `{name}` of `{path}` in the reference's order",
            )
    return None


def _scaled(one: SharedTensor) -> tuple[str, str, str] | None:
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
    theirs: Array, piece: Piece, states: tuple[Mapping[str, Array], Mapping[str, Array]], one: SharedTensor
) -> tuple[str, str, str] | None:
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


def _held_elsewhere(one: SharedTensor, ports: Mapping[str, Array]) -> bool:
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


# Weights and buffers as causes: the reference's are put into the port's layer, and what was there is described.


def by_tensors(piece: Piece, state: Mapping[str, Array], ports: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """Yield the port's layer with the reference's tensors, each alone and all together."""
    both, missing, extra = held_by(piece)
    wrong = [one for one in both if one.differs]
    training = bool(getattr(piece.port, "training", False))
    if training:
        wrong = [one for one in wrong if one.name.rpartition(".")[2] not in STATISTICS]
    told = {one.name: describe(one, wrong, piece, (state, ports)) for one in wrong}
    for one in wrong:
        yield _given_values(piece, [one], told[one.name])
    if len(wrong) > 1:
        codes = {told[one.name][0] for one in wrong}
        first = told[wrong[0].name]
        names = ", ".join(one.name for one in wrong[:6])
        code = first[0] if len(codes) == 1 else _joint(codes)
        yield _given_values(
            piece, wrong, (code, f"several tensors are wrong ({names}); {wrong[0].name} {first[1]}", first[2])
        )
    yield from _missing(piece, missing)
    yield from _extra(piece, extra)


def by_unsaved(piece: Piece, states: tuple[Mapping[str, Array], Mapping[str, Array]]) -> Iterator[Hypothesis]:
    """Yield the port's layer with the reference's values in buffers and attributes that no checkpoint holds."""
    wrong = [one for one in unsaved(piece) if one.differs]
    for one in wrong:
        told = told_by_name(one.ours, one.theirs) or describe(one, wrong, piece, states)[:2]
        code = "wrong-buffer" if told[0] in ("wrong-weight", "wrong-bias") else told[0]
        yield Hypothesis(
            code=code,
            message=f"its buffer `{one.name}`, which no checkpoint holds, {told[1]}",
            fix=f"fill `{one.name}` of {piece.shown} as the reference does",
            within=partial(replaced, [one]),
            confirmed=True,
            evidence=f"with the reference's {one.name} the error is gone",
            place=_place(piece, [one]),
        )
    if len(wrong) > 1:
        names = ", ".join(f"`{one.name}`" for one in wrong)
        yield Hypothesis(
            code="wrong-buffer",
            message=f"its buffers {names}, which no checkpoint holds, are not the reference's",
            fix=f"fill {names} of {piece.shown} as the reference does",
            within=partial(replaced, wrong),
            confirmed=True,
            changes=len(wrong),
            place=_place(piece, wrong),
        )


def _joint(codes: set[str]) -> str:
    order = (
        "swapped-qkv",
        "swapped-layers",
        "gate-order",
        "swapped-statistics",
        "swapped-affine",
        "weight-of-another-layer",
    )
    return next((one for one in order if one in codes), min(codes))


def _given_values(piece: Piece, held: Sequence[SharedTensor], told: tuple[str, str, str]) -> Hypothesis:
    code, what, fix = told
    message = f"its `{held[0].name}` {what}" if len(held) == 1 else what
    return Hypothesis(
        code=code,
        message=message,
        fix=fix.format(path=piece.paths[1] or "the model", name=held[0].name),
        within=partial(replaced, held),
        confirmed=True,
        changes=len(held),
        place=_place(piece, held),
        evidence=f"with the reference's {', '.join(one.name for one in held[:6])} the error is gone",
    )


def _place(piece: Piece, held: Sequence[SharedTensor]) -> str:
    """Return the path within the piece of the layer that holds some tensors."""
    known = {path for path, _ in piece.sides.port.layers(piece.port)}
    paths = [one.name.rpartition(".")[0] for one in held]
    return common_path(one if one in known else "" for one in paths)


def _along_channels(side: LiveSide, array: Array, rank: int, axis: int) -> Tensor:
    shape = [1] * rank
    shape[axis] = -1
    return side.tensor(array.reshape(shape), gradient=False)


def _missing(piece: Piece, missing: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """Yield the port's output with a bias, or a weight and a bias, that only the reference has."""
    side, kind = piece.sides.port, piece.calls[0].type
    vectors = {
        name: array
        for name, array in missing.items()
        if "." not in name and array.ndim == 1 and name in ("weight", "bias")
    }
    if not vectors or piece.calls[1].children:
        return
    weight, bias = vectors.get("weight"), vectors.get("bias")
    code = "missing-bias" if weight is None else "missing-affine"
    size = next(iter(vectors.values())).size

    def add(outputs: list[Tensor]) -> list[Tensor]:
        first = outputs[0]
        axes = [axis for axis in (1, first.ndim - 1) if first.shape[axis] == size]
        axis = first.ndim - 1 if kind in ("Linear", "LayerNorm") else axes[0]
        first = first if weight is None else first * _along_channels(side, weight, first.ndim, axis)
        first = first if bias is None else first + _along_channels(side, bias, first.ndim, axis)
        return [first, *outputs[1:]]

    names = " and ".join(vectors)
    argument = "bias_attr" if code == "missing-bias" else "weight_attr` and `bias_attr"
    yield Hypothesis(
        code=code,
        message=f"it has no {names}, the reference has",
        confirmed=True,
        edits={OUTPUT: add},
        fix=f"don't pass `{argument}=False` to `{piece.paths[1]}`, and load the reference's {names}",
        evidence=f"with the reference's {names} the error is gone",
    )


def _extra(piece: Piece, extra: Mapping[str, TensorSlot]) -> Iterator[Hypothesis]:
    """Yield the port's layer without what only it has: biases of zero, weights of one."""
    held = [
        SharedTensor(
            name=name,
            ours=np.full(slot.shape, 1.0 if name.endswith("weight") else 0.0),
            theirs=np.empty(slot.shape),
            slot=slot,
        )
        for name, slot in extra.items()
        if len(slot.shape) == 1
    ]
    if not held:
        return
    code = "extra-bias" if all("bias" in one.name for one in held) else "extra-affine"
    names = " and ".join(one.name for one in held)
    arguments = " and ".join(f"`{'bias' if 'bias' in one.name else 'weight'}_attr=False`" for one in held)
    yield Hypothesis(
        code=code,
        message=f"it has a {names}, the reference has none",
        confirmed=True,
        fix=f"pass {arguments} to `{piece.paths[1]}`",
        within=partial(replaced, held),
        evidence=f"without its {names} the error is gone",
    )


def own_tensors(piece: Piece) -> list[tuple[str, Tensor]]:
    """Return the parameters and buffers of numbers that the piece's own code holds, by name."""
    found: list[tuple[str, Tensor]] = []
    for path, layer in piece.sides.port.layers(piece.port):
        if path not in piece.atomic:
            own = {"include_sublayers": False}
            held = [*layer.named_parameters(**own), *layer.named_buffers(**own)]
            start = f"{path}." if path else ""
            found += [(f"{start}{name}", one) for name, one in held if "bool" not in str(one.dtype)]
    return found


def missing_arguments(piece: Piece) -> Iterator[Hypothesis]:
    """Yield the piece given a tensor that the reference is given and it is not, by the name of a free argument."""
    linked = {ours for ours, _ in piece.links}
    extra = [number for number in range(len(piece.inputs[0])) if number not in linked]
    try:
        names = list(inspect.signature(piece.port.forward).parameters)
    except (TypeError, ValueError):
        return
    positional, keywords = piece.calls[1].arguments
    free = [name for name in names[len(positional) :] if keywords.get(name) is None]
    free += [name for name, one in zip(names, positional, strict=False) if one is None]
    for number in extra:
        told = piece.calls[0].input_names[number]
        tensor = piece.sides.port.tensor(piece.inputs[0][number], gradient=False)
        for name in free:
            code = "missing-mask" if is_mask(tensor, piece) or "mask" in f"{name}{told}" else "missing-input"
            yield Hypothesis(
                code=code,
                within=partial(_with_argument, piece.port, names, name, tensor),
                message=f"it is not given `{name}`, which the reference is given: a {'mask' if code == 'missing-mask' else 'tensor'} of shape {list(tensor.shape)}",
                fix=f"pass `{name}` to {piece.shown} where it is called",
            )


@contextmanager
def _with_argument(layer: Model, names: Sequence[str], name: str, tensor: object) -> Iterator[None]:
    """Let a layer be called with one more argument for a while."""
    original = layer.forward

    def forward(*args: object, **kwargs: object) -> Nested:
        place = names.index(name)
        if place < len(args):
            return original(*args[:place], tensor, *args[place + 1 :], **kwargs)
        return original(*args, **{**kwargs, name: tensor})

    held = vars(layer).get("forward")
    object.__setattr__(layer, "forward", forward)
    try:
        yield
    finally:
        object.__delattr__(layer, "forward") if held is None else object.__setattr__(layer, "forward", held)


_UNARY = "log log1p log2 log10 exp expm1 sqrt rsqrt abs square reciprocal sin cos tan erf sign floor ceil round".split()
UNARY = {**{name: name for name in _UNARY}, "absolute": "abs"}
"""Functions of single numbers: Paddle's name by torch's."""


def by_named_functions(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield a call followed by, or a layer given the result of, a function of numbers that only the reference calls."""
    paddle = paddle_of(piece)
    here = {one.name for one in ops}
    made = floats_of(op.result, is_tensor(piece))
    for name in dict.fromkeys(one for one in piece.truth.names if one in UNARY and UNARY[one] not in here):
        if not made:
            return
        function, told = getattr(paddle, UNARY[name]), f"`paddle.{UNARY[name]}`"
        places = [("after", then_first(function))]
        if op.name == LAYER and op.args and any(op.args[0] is one for one in floats_of(op.args, is_tensor(piece))):
            places.append(("in front of", on_input(function)))
        for place, act in places:
            yield Hypothesis(
                code="missing-function",
                acts={op.number: act},
                confirmed=True,
                message=f"it lacks {told} {place} {called(op)}{place_of(op, piece)}",
                fix=f"apply {told} {place} {called(op)}{place_of(op, piece)}: `{op.line}`",
            )
