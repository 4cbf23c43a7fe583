"""Weights, buffers and inputs as causes: which differ, how, and what a layer makes of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.causes.functions import called, place_of
from tipchain.explain.causes.hypotheses import Hypothesis
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import LAYER, Op, on_input, then_first
from tipchain.explain.locate.differences import equal
from tipchain.explain.locate.matching import common_path
from tipchain.explain.preflight.parameters import FEW, describe_values, is_constant, port_array, same_values
from tipchain.framework_types import Array, Model, Nested, Tensor
from tipchain.numbers.tolerance import CONSTANT, ROUGH, SAME_ENLARGED, SAME_SINGLE
from tipchain.weights.matching import STATISTICS
from tipchain.weights.sides import TensorSlot, divide, join, torch_view


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


def held_by(piece: Piece) -> tuple[list[SharedTensor], dict[str, Array]]:
    """Return the tensors that both layers have, and those that only the reference has."""
    slots = {slot.name: slot for slot in _slots(piece)}
    state = {
        name: piece.sides.reference.view(tensor)
        for name, tensor in (piece.reference.state_dict().items() if slots else ())
        if tensor.is_floating_point()
    }
    both = [_held(slots[name], array) for name, array in state.items() if name in slots]
    return both, {name: one.astype(np.float64) for name, one in state.items() if name not in slots}


def _held(slot: TensorSlot, ours: Array) -> SharedTensor:
    """Return a tensor of both layers; values that differ in float64, those that do not as they are, not copied."""
    theirs = port_array(slot)
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
        (join(path, name), one.detach().double().numpy())
        for path, module in piece.sides.reference.layers(piece.reference)
        for name, one in (*module.named_buffers(recurse=False), *vars(module).items())
        if piece.sides.reference.is_tensor(one)
    ]
    found = []
    for path, layer in piece.sides.port.layers(piece.port):
        own = {**layer._buffers, **vars(layer)}  # noqa: SLF001
        for name, one in own.items():
            if not piece.is_tensor(one) or id(one) in saved or path in piece.judged:
                continue
            theirs = np.asarray(piece.sides.port.array(one), np.float64)
            full = join(path, name)
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


# What is wrong with a tensor that differs.


def describe(
    one: SharedTensor,
    wrong: Sequence[SharedTensor],
    piece: Piece,
    states: tuple[Mapping[str, Array], Mapping[str, Array]],
) -> tuple[str, str, str]:
    """Return a slug, what is wrong with a tensor, and what to do about it."""
    own, port = join(piece.ours.path, one.name), join(piece.theirs.path, one.name)
    return _exchanged(one, wrong) or describe_values(
        one.ours,
        one.theirs,
        leaf=one.name.rpartition(".")[2],
        kind=piece.ours.call.type,
        names=(own, port),
        elsewhere=lambda: _elsewhere(one, own, *states),
    )


WINDOWS = {"Hann": (0.5, 0.5), "Hamming": (0.54, 0.46), "Blackman": (0.42, 0.5, 0.08)}
"""Coefficients of windows, ``a0 - a1 cos + a2 cos2`` (Harris 1978)."""


def told_by_name(ours: Array, theirs: Array) -> tuple[str, str] | None:
    """Return the slug and words where both tensors are known ones of one kind: frequencies of positions, windows."""
    base, actual = rotary_base(ours), rotary_base(theirs)
    if base and actual and abs(base / actual - 1) > ROUGH:
        return "rope-theta", f"has the base (theta) {actual:.3g}, the reference's {base:.3g}"
    window, held = window_name(ours), window_name(theirs)
    if window and held and window != held:
        return "window", f"holds {held}, the reference's {window}"
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


def _exchanged(one: SharedTensor, wrong: Sequence[SharedTensor]) -> tuple[str, str, str] | None:
    """Tell tensors of one layer that stand in each other's place."""
    path, _, leaf = one.name.rpartition(".")
    for other in wrong:
        if other is not one and other.name.rpartition(".")[0] == path and same_values(other.ours, one.theirs):
            what = f"holds the reference's {other.name}"
            if leaf in STATISTICS:
                return "swapped-statistics", what, "exchange `_mean` and `_variance` of `{path}`"
            affine = {leaf, other.name.rpartition(".")[2]} == {"weight", "bias"}
            fix = f"exchange `{one.name}` and `{other.name}` of `{{path}}`"
            return "swapped-affine" if affine else "swapped-weights", what, fix
    return None


def _elsewhere(
    one: SharedTensor, own: str, state: Mapping[str, Array], ports: Mapping[str, Array]
) -> tuple[str, str] | None:
    """Return the slug and name of another tensor of the reference's that the port holds in this one's place."""
    if is_constant(one.theirs):
        return None
    for name, array in state.items():
        if name != own and same_values(array, one.theirs):
            if _projections(own, name):
                return "swapped-qkv", name
            return "swapped-layers" if _held_elsewhere(one, ports) else "weight-of-another-layer", name
    return None


def _held_elsewhere(one: SharedTensor, ports: Mapping[str, Array]) -> bool:
    """Tell whether another layer of the port has what this one should have."""
    shapes = {one.ours.shape, one.ours.shape[::-1]}
    same = (array for array in ports.values() if array.shape in shapes)
    return any(same_values(one.ours, array) or same_values(one.ours, array.T) for array in same)


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
    both, missing = held_by(piece)
    wrong = [one for one in both if one.differs]
    training = bool(getattr(piece.port, "training", False))
    if training:
        wrong = [one for one in wrong if one.name.rpartition(".")[2] not in STATISTICS]
    told = {one.name: describe(one, wrong, piece, (state, ports)) for one in wrong}
    for one in wrong:
        yield _given_values(piece, [one], told[one.name])
    if len(wrong) > 1:
        codes = {told[one.name][0] for one in wrong}
        code, what, fix = told[wrong[0].name]
        names = ", ".join(one.name for one in wrong[:6])
        code = code if len(codes) == 1 else _joint(codes)
        yield _given_values(piece, wrong, (code, f"several tensors are wrong ({names}); {wrong[0].name} {what}", fix))
    bias = missing.get("bias")
    if bias is None or bias.ndim != 1 or piece.theirs.call.children:
        return
    side, last = piece.sides.port, piece.ours.call.type in ("Linear", "LayerNorm")

    def add(outputs: list[Tensor]) -> list[Tensor]:
        first, *rest = outputs
        axis = first.ndim - 1 if last else next(axis for axis in (1, first.ndim - 1) if first.shape[axis] == bias.size)
        shape = [-1 if one == axis else 1 for one in range(first.ndim)]
        return [first + side.tensor(bias.reshape(shape), gradient=False), *rest]

    yield Hypothesis(
        code="missing-bias",
        message="it has no bias, the reference has",
        confirmed=True,
        edit=add,
        fix=f"don't pass `bias_attr=False` to `{piece.theirs.path}`, and load the reference's bias",
        evidence="with the reference's bias the error is gone",
    )


def by_unsaved(piece: Piece, states: tuple[Mapping[str, Array], Mapping[str, Array]]) -> Iterator[Hypothesis]:
    """Yield the port's layer with the reference's values in buffers and attributes that no checkpoint holds."""
    wrong = [one for one in unsaved(piece) if one.differs]
    for one in wrong:
        code, what = told_by_name(one.ours, one.theirs) or describe(one, wrong, piece, states)[:2]
        code = "wrong-buffer" if code in ("wrong-weight", "wrong-bias") else code
        yield Hypothesis(
            code=code,
            message=f"its buffer `{one.name}`, which no checkpoint holds, {what}",
            fix=f"fill `{one.name}` of {piece.shown} as the reference does",
            within=partial(replaced, [one]),
            confirmed=True,
            evidence=f"with the reference's {one.name} the error is gone",
            place=_place(piece, [one]),
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
        fix=fix.format(path=piece.theirs.path or "the model", name=held[0].name),
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


def own_tensors(piece: Piece) -> list[tuple[str, Tensor]]:
    """Return the parameters and buffers of numbers that the piece's own code holds, by name."""
    found: list[tuple[str, Tensor]] = []
    for path, layer in piece.sides.port.layers(piece.port):
        if path not in piece.atomic:
            own = {"include_sublayers": False}
            held = [*layer.named_parameters(**own), *layer.named_buffers(**own)]
            found += [(join(path, name), one) for name, one in held if "bool" not in str(one.dtype)]
    return found


def missing_arguments(piece: Piece) -> Iterator[Hypothesis]:
    """Yield the piece given a tensor that the reference is given and it is not, by the name of a free argument."""
    linked = {ours for ours, _ in piece.links}
    extra = [number for number in range(len(piece.ours.inputs)) if number not in linked]
    try:
        names = list(inspect.signature(piece.port.forward).parameters)
    except (TypeError, ValueError):
        return
    positional, keywords = piece.theirs.call.arguments
    free = [name for name in names[len(positional) :] if keywords.get(name) is None]
    free += [name for name, one in zip(names, positional, strict=False) if one is None]
    for number in extra:
        told = piece.ours.call.input_names[number]
        tensor = piece.sides.port.tensor(piece.ours.inputs[number], gradient=False)
        for name in free:
            code = "missing-mask" if piece.is_mask(tensor) or "mask" in f"{name}{told}" else "missing-input"
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
    here = {one.name for one in ops}
    made = piece.floats(op.result)
    for name in dict.fromkeys(one for one in piece.truth.record.names if one in UNARY and UNARY[one] not in here):
        if not made:
            return
        function, told = getattr(piece.paddle, UNARY[name]), f"`paddle.{UNARY[name]}`"
        places = [("after", then_first(function))]
        if op.name == LAYER and op.args and any(op.args[0] is one for one in piece.floats(op.args)):
            places.append(("in front of", on_input(function)))
        for place, act in places:
            yield Hypothesis(
                code="missing-function",
                acts={op.number: act},
                confirmed=True,
                message=f"it lacks {told} {place} {called(op)}{place_of(op, piece)}",
                fix=f"apply {told} {place} {called(op)}{place_of(op, piece)}: `{op.line}`",
            )
