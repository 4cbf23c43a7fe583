"""Parameters and buffers of matched layers: which is which, in torch's layout, and their values and ties."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from math import sqrt

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.findings import Effect, Finding
from tipchain.explain.locate.differences import equal, rms, side_by_side
from tipchain.explain.locate.matching import LayerPair, Print, common_path, print_of
from tipchain.framework_types import Array, Model, Tensor
from tipchain.numbers.tolerance import REMAINDER, ROUGH, SAME_SINGLE
from tipchain.weights.files import array_of, view_of
from tipchain.weights.matching import match_models, matchable_layers
from tipchain.weights.sides import OWN_KIND, LayerTensors, TensorSlot, magnitude_dim, paddle_leaf, stack

# Which tensor of torch's model is which of the port's, layer by layer, in torch's layout.


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPair:
    """A tensor of a matched layer, as torch and as the port keep it; one of them may be missing.

    Attributes:
        layers: the layers' paths and evidence.
        kind: the layers' kind.
        ours: torch's tensor.
        theirs: the port's.
    """

    layers: LayerPair
    kind: str
    ours: TensorSlot | None
    theirs: TensorSlot | None

    @property
    def leaf(self) -> str:
        """The name of it in torch's layer, or the port's own where torch has none."""
        slot = self.ours or self.theirs
        assert slot is not None
        return slot.leaf


class Tensors:
    """The tensors of both models, and which belong together.

    Attributes:
        live: torch's tensors by name.
        pairs: the tensors of matched layers, in the order of the pairs.
        unmatched: layers of torch's model and of the port that are in no pair.
    """

    def __init__(
        self, reference: Model, port: object, pairs: Iterable[LayerPair], names: Mapping[str, str] | None = None
    ) -> None:
        """Read both models.

        Raises:
            WeightsError: a lazy layer of torch's has no shape yet.
        """
        known = list(pairs)
        self.live: dict[str, Tensor] = reference.state_dict(keep_vars=True)
        self.layers = self._read(reference, port, known, names or {})
        by_path = [{layer.path: layer for layer in side} for side in self.layers]
        self.pairs: list[TensorPair] = []
        for pair in known:
            ours, theirs = by_path[0].get(pair.reference), by_path[1].get(pair.port)
            if ours is not None and theirs is not None:
                self.pairs += self._paired(pair, ours, theirs)
        self.unmatched = self._unmatched(known)
        if any(pair.ours is None or pair.theirs is None for pair in self.pairs):
            self._pair_across_layers(reference, port, names)

    def _pair_across_layers(self, reference: object, port: object, names: Mapping[str, str] | None) -> None:
        """Pair what its layer's partner lacks with the tensor of another layer that the weights' match gives to it.

        A matrix that one model keeps itself may be a Linear's in the other. Where the whole models do not match, something
        is missing, and nothing is paired.
        """
        try:
            slots = match_models(reference, port, names).slots
        except WeightsError:
            return
        alone = [pair for pair in self.pairs if pair.ours is None or pair.theirs is None]
        mine = {pair.ours.name: pair.layers.reference for pair in alone if pair.ours is not None}
        its = {_first_tensor(pair.theirs): pair.layers.port for pair in alone if pair.theirs is not None}
        ours = mine | {slot.name: layer.path for layer in self.unmatched[0] for slot in layer.slots}
        theirs = its | {_first_tensor(slot): layer.path for layer in self.unmatched[1] for slot in layer.slots}
        held = {slot.name: slot for layer in self.layers[0] for slot in layer.slots}
        found = {
            name: _first_tensor(slot)
            for name, slot in slots.items()
            if name in ours and _first_tensor(slot) in theirs and (name in mine or _first_tensor(slot) in its)
        }
        taken = set(found.values())
        self.pairs = [
            pair
            for pair in self.pairs
            if not (pair.theirs is None and pair.ours is not None and pair.ours.name in found)
            and not (pair.ours is None and pair.theirs is not None and _first_tensor(pair.theirs) in taken)
        ]
        for name, tensor in found.items():
            layers = LayerPair(reference=ours[name], port=theirs[tensor], evidence="structure")
            self.pairs.append(TensorPair(layers=layers, kind=OWN_KIND, ours=held[name], theirs=slots[name]))
        self.unmatched = (
            _without(self.unmatched[0], lambda slot: slot.name in found),
            _without(self.unmatched[1], lambda slot: _first_tensor(slot) in taken),
        )

    def _unmatched(self, pairs: Sequence[LayerPair]) -> tuple[list[LayerTensors], list[LayerTensors]]:
        """Return the layers in no pair, with those of their tensors that no layer in a pair has too."""
        ours, theirs = {pair.reference for pair in pairs}, {pair.port for pair in pairs}
        shared = {id(self.live[slot.name]) for layer in self.layers[0] if layer.path in ours for slot in layer.slots}
        shared |= {
            id(part.tensor)
            for layer in self.layers[1]
            if layer.path in theirs
            for slot in layer.slots
            for part in slot.parts
        }
        return (
            [
                replace(layer, slots=tuple(slot for slot in layer.slots if id(self.live[slot.name]) not in shared))
                for layer in self.layers[0]
                if layer.path not in ours
            ],
            [
                replace(
                    layer,
                    slots=tuple(
                        slot
                        for slot in layer.slots
                        if not slot.fixed
                        and not slot.again
                        and not all(id(part.tensor) in shared for part in slot.parts)
                    ),
                )
                for layer in self.layers[1]
                if layer.path not in theirs
            ],
        )

    def _read(
        self, reference: object, port: object, pairs: Sequence[LayerPair], names: Mapping[str, str]
    ) -> tuple[list[LayerTensors], list[LayerTensors]]:
        ours, theirs = matchable_layers(reference, port, names)
        inside = {
            layer.path
            for layer in theirs
            if layer.inner and any(pair.port.startswith(f"{layer.path}.") for pair in pairs)
        }
        return matchable_layers(reference, port, names, frozenset(inside)) if inside else (ours, theirs)

    def _paired(self, pair: LayerPair, ours: LayerTensors, theirs: LayerTensors) -> Iterator[TensorPair]:
        kind = ours.kind if ours.kind == theirs.kind else OWN_KIND
        leaves = {slot.leaf for slot in ours.slots}
        left = {slot.leaf: slot for slot in theirs.slots if not (slot.fixed and slot.leaf in leaves)}
        alone: list[TensorSlot] = []
        for slot in ours.slots:
            if slot.leaf in left:
                yield TensorPair(layers=pair, kind=kind, ours=slot, theirs=left.pop(slot.leaf))
            else:
                alone.append(slot)
        for slot in alone:
            other = self._like(slot, left.values()) if kind == OWN_KIND else None
            if other is not None:
                del left[other.leaf]
            yield TensorPair(layers=pair, kind=kind, ours=slot, theirs=other)
        for slot in left.values():
            yield TensorPair(layers=pair, kind=kind, ours=None, theirs=slot)

    def _like(self, slot: TensorSlot, others: Iterable[TensorSlot]) -> TensorSlot | None:
        """Return the one that holds the same numbers, else the only one of as many."""
        size = np.prod(slot.shape)
        candidates = [one for one in others if np.prod(one.shape) == size]
        print_ = print_of(self.array(slot))
        same = [one for one in candidates if any(print_[1:]) and print_of(port_array(one)) == print_]
        chosen = same or candidates
        return chosen[0] if len(chosen) == 1 else None

    def array(self, slot: TensorSlot) -> Array:
        """Return the values of a tensor of torch's."""
        return numbers(array_of(self.live[slot.name].detach()), slot.dtype)

    def trained(self, slot: TensorSlot) -> bool:
        """Tell whether a tensor of torch's takes gradients."""
        return slot.kind == "parameter" and bool(self.live[slot.name].requires_grad)


def _first_tensor(slot: TensorSlot) -> int:
    return id(slot.parts[0].tensor)


def _without(layers: Iterable[LayerTensors], drop: Callable[[TensorSlot], bool]) -> list[LayerTensors]:
    """Return layers without some of their tensors; those that lose all are left out."""
    rest = [replace(layer, slots=tuple(slot for slot in layer.slots if not drop(slot))) for layer in layers]
    return [layer for layer in rest if layer.slots]


def port_array(slot: TensorSlot) -> Array:
    """Return the values of a tensor of the port's, in torch's layout; those of a single part are not copied."""
    pieces = [view_of(part.tensor).T if part.transpose else view_of(part.tensor) for part in slot.parts]
    return numbers(stack(pieces, slot), slot.dtype)


def port_trained(slot: TensorSlot) -> bool:
    """Tell whether a tensor of the port's takes gradients."""
    return slot.kind == "parameter" and not slot.fixed and any(not part.tensor.stop_gradient for part in slot.parts)


def port_name(slot: TensorSlot) -> str:
    """Return the port's name of a tensor."""
    return " + ".join(part.names[0] if part.names else slot.name for part in slot.parts)


def numbers(array: Array, dtype: str) -> Array:
    """Return an array of numbers, given one that has bfloat16 as its bits."""
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def is_floating(slot: TensorSlot) -> bool:
    """Tell whether a tensor holds floating-point numbers."""
    return slot.dtype in ("float16", "bfloat16", "float32", "float64")


# How the values of a parameter differ from those it should have.


GATES = {"LSTM": "ifgo", "LSTMCell": "ifgo", "GRU": "rzn", "GRUCell": "rzn"}
"""The gates of recurrent layers, in the order in which both frameworks stack their weights."""
ROUNDED = {"float64": SAME_SINGLE, "float32": SAME_SINGLE, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Relative difference up to which values are the same, by the coarser dtype: of 16-bit ones, their spacing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDifference:
    """A difference of values.

    Attributes:
        code: its slug.
        text: what the port's values are, as the end of a sentence.
        fix: what to do.
    """

    code: str
    text: str
    fix: str


Names = Callable[[], Mapping[Print, Sequence[str]]]


def difference(
    expected: Array, actual: Array, *, kind: str, leaf: str, dtypes: tuple[str, str], others: Names, own: str
) -> ParameterDifference | None:
    """Say how values differ; None where they are the same up to their precision.

    Args:
        expected: torch's.
        actual: the port's, in torch's layout; of one shape.
        kind: the layer's.
        leaf: torch's name of the tensor in the layer.
        dtypes: of both.
        others: returns names of torch's tensors by `print_of` their values; asked only when a value differs.
        own: torch's name of this one.
    """
    if _equal(expected, actual, max(ROUNDED.get(dtype, 0.0) for dtype in dtypes)):
        return None
    if leaf.startswith("running_"):
        return ParameterDifference(
            code="running-statistics",
            text=f"other statistics: {_measure(expected, actual)}",
            fix="copy torch's running_mean and running_var with the weights",
        )
    found = _arranged(expected, actual, kind)
    return (
        found
        or _elsewhere(expected, actual, others, own)
        or _rescaled(expected, actual)
        or ParameterDifference(
            code="values",
            text=f"other values: {_measure(expected, actual)}",
            fix="copy it: `tipchain.copy_weights(reference, port)`",
        )
    )


def _equal(expected: Array, actual: Array, tolerance: float) -> bool:
    if equal(expected, actual):
        return True
    if expected.dtype.kind not in "fc" or actual.dtype.kind not in "fc":
        return False
    return _close(expected, actual, rtol=tolerance, atol=tolerance * ROUGH * _size(expected))


def _close(expected: Array, actual: Array, *, factor: float = 1.0, rtol: float, atol: float) -> bool:
    """Tell what `numpy.allclose` does of ``factor`` times what is expected, up to the first elements that are not."""
    return all(
        np.allclose(theirs, factor * ours, rtol=rtol, atol=atol, equal_nan=True)
        for ours, theirs in side_by_side(expected, actual)
    )


def _size(array: Array) -> float:
    found = rms(array)
    return found if np.isfinite(found) else 0.0


def _measure(expected: Array, actual: Array) -> str:
    odd, furthest = 0, np.nan
    with np.errstate(invalid="ignore", over="ignore"):
        for ours, theirs in side_by_side(expected, actual):
            apart = np.abs(theirs - ours)
            odd, furthest = odd + int(np.count_nonzero(apart)), np.fmax(furthest, np.fmax.reduce(apart))
    return f"{odd} of {expected.size} differ, by up to {furthest:.3g}"


def _arranged(expected: Array, actual: Array, kind: str) -> ParameterDifference | None:
    """Say that the same numbers stand in another order."""
    sizes = _size(expected), _size(actual)  # cheaper than prints, and told by them are most that differ
    if abs(sizes[0] - sizes[1]) > SAME_SINGLE * sizes[0] or print_of(np.asarray(expected, np.float64)) != print_of(
        np.asarray(actual, np.float64)
    ):
        return None
    for axes in permutations(range(expected.ndim)):
        if tuple(expected.shape[axis] for axis in axes) == actual.shape and np.array_equal(
            expected.transpose(axes), actual
        ):
            how = "transposed" if expected.ndim == 2 else f"with its axes in the order {list(axes)}"
            return ParameterDifference(
                code="transposed-weight", text=f"torch's {how}", fix="transpose it back when it is copied"
            )
    blocks = _blocks(expected, actual, kind)
    if blocks is not None:
        return blocks
    for axis in range(expected.ndim):
        if np.array_equal(_sorted(expected, axis), _sorted(actual, axis)):
            return ParameterDifference(
                code="permuted-weight",
                text=f"torch's with axis {axis} in another order",
                fix="keep the order of torch's elements when it is copied",
            )
    flipped = tuple(range(2, expected.ndim))
    if flipped and np.array_equal(np.flip(expected, flipped), actual):
        return ParameterDifference(
            code="flipped-weight", text="torch's with its kernel mirrored", fix="do not mirror the kernel"
        )
    return ParameterDifference(
        code="permuted-weight", text="torch's numbers in another order", fix="keep torch's order when it is copied"
    )


def _sorted(array: Array, axis: int) -> Array:
    """Return the slices along an axis in an order of their own."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    return rows[np.lexsort(rows.T[::-1][: min(8, rows.shape[1])])]


def _blocks(expected: Array, actual: Array, kind: str) -> ParameterDifference | None:
    """Say that the blocks stacked along the first axis (gates, projections) stand in another order."""
    gates = GATES.get(kind)
    for count in (len(gates),) if gates else (3, 2, 4):
        if not expected.ndim or expected.shape[0] % count:
            continue
        ours, theirs = (np.split(array, count) for array in (expected, actual))
        order = [next((i for i, one in enumerate(ours) if np.array_equal(one, other)), None) for other in theirs]
        if None in order or sorted(filter(lambda one: one is not None, order)) != list(range(count)):  # type: ignore[type-var]
            continue
        names = gates or ("qkv" if count == 3 else "0123"[:count])
        there = "".join(names[one] for one in order if one is not None)
        code = "gate-order" if gates else "swapped-projections"
        return ParameterDifference(
            code=code,
            text=f"torch's with its blocks in the order {', '.join(there)} instead of {', '.join(names)}",
            fix=f"stack them in the order {', '.join(names)}",
        )
    return None


def _elsewhere(expected: Array, actual: Array, others: Names, own: str) -> ParameterDifference | None:
    """Say that the values are those of another tensor."""
    print_ = print_of(actual.astype(expected.dtype, copy=False))
    names = [name for name in others().get(print_, ()) if name != own] if any(print_[1:]) else []
    if len(names) != 1:
        return None
    return ParameterDifference(
        code="other-layer-weight", text=f"those of torch's {names[0]}", fix=f"copy torch's {own} to it, not {names[0]}"
    )


def _rescaled(expected: Array, actual: Array) -> ParameterDifference | None:
    """Say that the values are torch's times one number."""
    if expected.size < 4:
        return None
    squares, product, others = 0.0, 0.0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for ours, theirs in side_by_side(expected, actual):
            squares += float(ours @ ours)
            product += float(ours @ theirs)
            others += float(theirs @ theirs)
    factor = product / squares if squares and np.isfinite(squares + others) else 0.0
    least = SAME_SINGLE * sqrt(others / expected.size) if factor else 0.0
    if not factor or abs(factor - 1) < ROUGH or not _close(expected, actual, factor=factor, rtol=REMAINDER, atol=least):
        return None
    return ParameterDifference(
        code="scaled-weight", text=f"torch's times {factor:.6g}", fix=f"do not multiply it by {factor:.6g}"
    )


MANY, MOST = 5, 0.8
"""From so many tensors on, and if this share of them differ, weights were not copied at all: fewer, and a wrong initialization of
one kind of layer would be taken for it."""
SIGMAS = 6
"""Standard deviations within which the correlation of independent values lies: beyond once in 5e8."""
VALUES = "values"
NOT_COPIED = "weights-not-copied"
UNCLEAR = frozenset(("permuted-weight", VALUES))
"""What may be said better of one tensor among several."""
NEUTRAL = {"bias": 0.0, "weight": 1.0}
"""What a parameter is that does nothing, by its torch name in the layer."""


def check_parameters(tensors: Tensors) -> list[Finding]:
    """Compare the parameters and buffers of matched layers: which there are, shapes, values, which are trained.

    Values are those in the models now. A tensor that holds torch's numbers in another order (transposed, gates or
    projections swapped, kernels mirrored), those of another layer, or a multiple, is said to. What torch has and Paddle
    never does (``num_batches_tracked``), and biases that Paddle keeps as constant zeros, count for nothing.

    Returns:
        The findings in the order of the pairs, then those about layers that are in no pair.
    """
    found: list[Finding] = []
    others = _prints(tensors)
    for pair in tensors.pairs:
        if pair.ours is None or pair.theirs is None:
            found += _alone(tensors, pair)
        elif _elements(pair.ours) != _elements(pair.theirs) or (
            pair.kind != "own" and pair.ours.shape != pair.theirs.shape
        ):
            found.append(_divided(tensors, pair, pair.ours, pair.theirs) or _shapes(pair, pair.ours, pair.theirs))
        else:
            one = _values(tensors, pair, pair.ours, pair.theirs, others)
            found += [] if one is None else [one]
    if any(one.code == VALUES for one in found):
        strange = two_initializations(tensors)
        if strange is not None and strange.compared >= MANY:
            found = [strange.finding, *(one for one in found if one.code != VALUES)]
    return [*found, *_frozen(tensors), *_unmatched(tensors)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strange:
    """Two models whose parameters are two initializations: the weights of one were never given to the other.

    Attributes:
        differing: parameters that hold numbers of their own.
        compared: parameters that could have told.
    """

    differing: int
    compared: int

    @property
    def finding(self) -> Finding:
        """The finding that stands for all of them."""
        return Finding(
            code=NOT_COPIED,
            kind="parameter",
            reference="its own values",
            port="other values",
            message=f"{self.differing} of {self.compared} parameters hold other values: the weights were not copied",
            fix="call `tipchain.copy_weights(reference, port)`",
        )


def two_initializations(tensors: Tensors) -> Strange | None:
    """Return how many parameters hold numbers of their own where nearly all do, else None.

    A parameter whose elements are all equal on both sides (a norm's scale, a bias of zeros) is alike in any two fresh
    models and counts for nothing; one with torch's numbers in another order or scaled, or another tensor's, was copied,
    well or not: its values have to do with torch's.
    The small ones are looked at first: a few that agree settle it.
    """
    both = [
        (pair, pair.ours, pair.theirs)
        for pair in tensors.pairs
        if pair.ours is not None
        and pair.theirs is not None
        and pair.ours.kind == "parameter"
        and is_floating(pair.ours)
        and _elements(pair.ours) == _elements(pair.theirs)
        and (pair.kind == "own" or pair.ours.shape == pair.theirs.shape)
    ]
    others = _prints(tensors)
    copied = differing = unclear = 0
    for pair, ours, theirs in sorted(both, key=lambda one: _elements(one[1])):
        expected = tensors.array(ours)
        one = _values(tensors, pair, ours, theirs, others)
        if one is not None and one.code == VALUES:
            related = _are_related(expected, port_array(theirs))
            differing += related is False
            copied += related is True
            unclear += related is None
        elif one is not None or not is_constant(expected):
            copied += 1
        if copied > (1 - MOST) * len(both):
            return None
    if not differing or differing < MOST * (copied + differing):
        return None
    return Strange(differing=differing + unclear, compared=copied + differing + unclear)


def _are_related(expected: Array, actual: Array) -> bool | None:
    """Tell whether values that differ have to do with each other; None where there are too few to tell.

    The correlation of two independent draws of n numbers has a standard deviation of 1 / sqrt(n - 1).
    """
    if is_constant(expected) or is_constant(actual):
        return False
    bound = SIGMAS / np.sqrt(expected.size - 1)
    if bound >= 1:
        return None
    sums = [
        sum(parts)
        for parts in zip(*((ours.sum(), theirs.sum()) for ours, theirs in side_by_side(expected, actual)), strict=True)
    ]
    means = [float(one) / expected.size for one in sums]
    squares, product, others = 0.0, 0.0, 0.0
    for ours, theirs in side_by_side(expected, actual):
        mine, its = ours - means[0], theirs - means[1]
        squares += float(mine @ mine)
        product += float(mine @ its)
        others += float(its @ its)
    size = sqrt(squares) * sqrt(others)
    return bool(not np.isfinite(size) or abs(product) > bound * size)


def is_constant(array: Array) -> bool:
    """Tell whether all elements of an array are equal."""
    return not array.size or bool((array == array[(0,) * array.ndim]).all())


def _elements(slot: TensorSlot) -> int:
    return int(np.prod(slot.shape))


def _prints(tensors: Tensors) -> Names:
    @cache
    def names() -> Mapping[Print, list[str]]:
        found: dict[Print, list[str]] = defaultdict(list)
        for layer in tensors.layers[0]:
            for slot in layer.slots:
                found[print_of(tensors.array(slot))].append(slot.name)
        return found

    return names


def _parameter_finding(
    pair: TensorPair, code: str, reference: str, port: str, message: str, fix: str, *, effect: Effect = "here"
) -> Finding:
    return Finding(
        code=code,
        kind="parameter",
        reference_path=pair.layers.reference,
        port_path=pair.layers.port,
        reference=reference,
        port=port,
        message=message,
        fix=fix,
        effect=effect,
    )


def _alone(tensors: Tensors, pair: TensorPair) -> Iterator[Finding]:
    """Yield what a tensor comes to that only one side has."""
    ours, theirs, path = pair.ours, pair.theirs, pair.layers.port or "the model"
    code = _code_of(pair)
    if ours is not None:
        trained, array = tensors.trained(ours), tensors.array(ours)
        idle = ours.kind == "buffer" or (not trained and _idle(pair.leaf, array))
        yield _parameter_finding(
            pair,
            code,
            f"{ours.name} {list(ours.shape)}",
            "none",
            f"{path} has no {pair.leaf}, torch's {ours.name} has",
            f"give `{path}` a {pair.leaf} of shape {list(ours.shape)}",
            effect="none" if idle else "here",
        )
    elif theirs is not None:
        array = port_array(theirs)
        if theirs.fixed and not array.any():
            return
        idle = theirs.kind == "buffer" or (not port_trained(theirs) and _idle(pair.leaf, array))
        yield _parameter_finding(
            pair,
            code,
            "none",
            f"{port_name(theirs)} {list(theirs.shape)}",
            f"{path} has a {pair.leaf} that torch's {pair.layers.reference or 'model'} does not have",
            f"make `{path}` without {pair.leaf}",
            effect="none" if idle else "here",
        )


def _code_of(pair: TensorPair) -> str:
    if "bias" in pair.leaf:
        return "bias"
    if pair.leaf.startswith("running_"):
        return "statistics"
    return "affine" if pair.kind.endswith("Norm") else "missing-parameter"


def _idle(leaf: str, array: Array) -> bool:
    neutral = NEUTRAL.get("bias" if "bias" in leaf else leaf)
    return neutral is not None and bool((array == neutral).all())


def _shapes(pair: TensorPair, ours: TensorSlot, theirs: TensorSlot) -> Finding:
    shapes = list(ours.shape), list(theirs.shape)
    name, _, kind = paddle_leaf(ours.leaf).rpartition("_")
    dims = [magnitude_dim(one.shape, transposed=pair.kind == "Linear") for one in (ours, theirs)]
    if kind == "g" and name and None not in dims and dims[0] != dims[1]:
        told = [f"dim={'None' if one == -1 else one}" for one in dims]
        return _parameter_finding(
            pair,
            "weight-norm-dim",
            told[0],
            told[1],
            f"weight_norm of `{pair.layers.port}` has {told[1]}, the reference's is {told[0]} in Paddle's layout: {port_name(theirs)} is {shapes[1]} in torch's, torch's {ours.name} is {shapes[0]}",
            f"pass {told[0]} to the weight_norm of `{pair.layers.port}`",
        )
    return _parameter_finding(
        pair,
        "shape",
        str(shapes[0]),
        str(shapes[1]),
        f"{port_name(theirs)} is {shapes[1]} in torch's layout, torch's {ours.name} is {shapes[0]}",
        f"make `{pair.layers.port}` so that its {pair.leaf} is {shapes[0]} in torch's layout",
    )


def _divided(tensors: Tensors, pair: TensorPair, ours: TensorSlot, theirs: TensorSlot) -> Finding | None:
    """Return a note where one side keeps in two tensors what the other has in one: together they hold the same numbers.

    A layer for inputs that the other side joins first is such: its weight is a part of the other's. What else it does shows
    in outputs and gradients.
    """
    whole, part = print_of(tensors.array(ours)), print_of(port_array(theirs))
    rest = whole[0] - part[0], (whole[1] - part[1]) % 2**64, (whole[2] - part[2]) % 2**64
    if rest[0] > 0:
        rests = ((port_name(one), print_of(port_array(one)), port_trained(one)) for one in _unpaired(tensors, 1))
        trained = tensors.trained(ours)
    else:
        rest = -rest[0], -rest[1] % 2**64, -rest[2] % 2**64
        rests = ((one.name, print_of(tensors.array(one)), tensors.trained(one)) for one in _unpaired(tensors, 0))
        trained = port_trained(theirs)
    name = next((name for name, found, known in rests if any(rest[1:]) and (found, known) == (rest, trained)), None)
    if name is None:
        return None
    names = ours.name, port_name(theirs)
    joined = (f"{names[1]} and {name}", names[0]) if whole[0] > part[0] else (f"{names[0]} and {name}", names[1])
    return _parameter_finding(
        pair,
        "divided-weight",
        names[0],
        names[1],
        f"{joined[0]} hold together the numbers of {joined[1]}",
        "nothing: what is made of them is compared",
        effect="none",
    )


def _unpaired(tensors: Tensors, side: int) -> Iterator[TensorSlot]:
    return (slot for layer in tensors.unmatched[side] for slot in layer.slots if slot.kind == "parameter")


def _values(tensors: Tensors, pair: TensorPair, ours: TensorSlot, theirs: TensorSlot, others: Names) -> Finding | None:
    expected, actual = tensors.array(ours), port_array(theirs)
    if expected.shape != actual.shape:
        actual = _like_rows(expected, actual)
    told = difference(
        expected,
        actual,
        kind=pair.kind,
        leaf=pair.leaf,
        dtypes=(ours.dtype, theirs.dtype),
        others=others,
        own=ours.name,
    )
    if told is None:
        return None
    if len(theirs.parts) > 1 and told.code in UNCLEAR:
        told = _of_part(pair, expected, actual, theirs) or told
    counts = not is_floating(ours) and not is_floating(theirs) and not np.array_equal(expected, actual)
    return _parameter_finding(
        pair,
        told.code,
        ours.name,
        port_name(theirs),
        f"{port_name(theirs)} holds {told.text}",
        f"`{port_name(theirs)}`: {told.fix}",
        effect="none" if counts and ours.kind == theirs.kind == "buffer" else "here",
    )


def _of_part(pair: TensorPair, expected: Array, actual: Array, theirs: TensorSlot) -> ParameterDifference | None:
    """Say how the one tensor is wrong among those in which the port divides a tensor of torch's."""
    ends = np.cumsum([part.shape[0] for part in theirs.parts])[:-1]
    found = [
        (
            part,
            difference(
                ours,
                other,
                kind=pair.kind,
                leaf=pair.leaf,
                dtypes=(theirs.dtype, theirs.dtype),
                others=dict,
                own=part.names[0],
            ),
        )
        for part, ours, other in zip(theirs.parts, np.split(expected, ends), np.split(actual, ends), strict=True)
    ]
    wrong = [(part, one) for part, one in found if one is not None]
    if len(wrong) != 1:
        return None
    part, one = wrong[0]
    return replace(one, text=f"{one.text}, in {part.names[0]}")


def _like_rows(expected: Array, actual: Array) -> Array:
    """Return an array of a user's own layout in torch's: as it is or transposed, whichever has the same numbers."""
    if actual.ndim == 2 and np.array_equal(expected.reshape(-1), actual.T.reshape(-1)):
        actual = actual.T
    return actual.reshape(expected.shape)


def _frozen(tensors: Tensors) -> Iterator[Finding]:
    """Yield the parameters that one side trains and the other does not."""
    both = [
        (pair, tensors.trained(pair.ours), port_trained(pair.theirs))
        for pair in tensors.pairs
        if pair.ours is not None and pair.theirs is not None
    ]
    differing = [one for one in both if one[1] != one[2]]
    whole = differing and (not any(one[1] for one in both) or not any(one[2] for one in both))
    if whole:
        words = (
            ["requires_grad=False", "stop_gradient=False"]
            if differing[0][2]
            else ["requires_grad=True", "stop_gradient=True"]
        )
        side = "torch's model" if differing[0][2] else "the port"
        yield Finding(
            code="trainable",
            kind="parameter",
            reference=words[0],
            port=words[1],
            message=f"no parameter of {side} takes gradients; a training would show it",
            fix="freeze both models or neither",
            effect="elsewhere",
        )
        return
    for pair, ours, theirs in differing:
        assert pair.theirs is not None
        name = port_name(pair.theirs)
        yield _parameter_finding(
            pair,
            "trainable",
            f"requires_grad={ours}",
            f"stop_gradient={not theirs}",
            f"{name} has stop_gradient={not theirs} where torch's has requires_grad={ours}",
            f"set `{name}.stop_gradient = {not ours}`",
            effect="elsewhere",
        )


def _unmatched(tensors: Tensors) -> Iterator[Finding]:
    """Yield the layers that are in no pair, with whether the other side has their values anywhere.

    They fail nothing: what they add to the outputs is measured, and a port may well fuse or split layers.
    """
    for side, layers in enumerate(tensors.unmatched):
        trained = [layer for layer in layers if any(slot.kind == "parameter" for slot in layer.slots)]
        if not trained:
            continue
        names = [layer.path or "the model itself" for layer in trained]
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        told = _total(tensors, layers, side) == _total(tensors, tensors.unmatched[1 - side], 1 - side)
        where = "torch's model", "the port"
        there = (
            "the other side's unmatched layers hold the same numbers"
            if told
            else "no layer of the other side is known for them"
        )
        yield Finding(
            code="unmatched-parameters",
            kind="parameter",
            reference=shown if side == 0 else "",
            port=shown if side else "",
            message=f"{len(names)} layers of {where[side]} with parameters are in no pair ({shown}): {there}",
            fix="name their counterparts (`names`) where structure cannot tell",
            effect="none",
        )


def _total(tensors: Tensors, layers: Iterable[LayerTensors], side: int) -> Print:
    """Return one print of all numbers of some layers: it does not depend on how they are divided into tensors."""
    prints = [print_of(port_array(slot) if side else tensors.array(slot)) for layer in layers for slot in layer.slots]
    told = [one for one in prints if any(one[1:])]
    return (sum(one[0] for one in told), sum(one[1] for one in told) % 2**64, sum(one[2] for one in told) % 2**64)


# Weights that are one tensor in one model and several equal ones in the other: they are trained apart.


Key = tuple[int, float, float]


def check_ties(reference: Model, port: object) -> list[Finding]:
    """Return a finding for every weight that one model has once and the other several times.

    Equal values, in whatever order of elements, tell: copies of one tensor are equal, initial values hardly ever.
    Constant tensors tell nothing.
    """
    ours = {name: array_of(one) for name, one in reference.named_parameters()}
    theirs = {name: view_of(one) for name, one in _once(port)}
    keys = _keys(ours), _keys(theirs)
    several = {key for held in keys for key, count in Counter(held.values()).items() if count > 1}
    if not several:
        return []
    groups = _groups(ours, keys[0], several), _groups(theirs, keys[1], several)
    return [
        _tie_finding(names, groups[1][key])
        for key, names in groups[0].items()
        if groups[1].get(key) and len(names) != len(groups[1][key]) and 1 in (len(names), len(groups[1][key]))
    ]


def _once(port: Model) -> Iterator[tuple[str, object]]:
    """Yield the port's parameters, each under its first name."""
    seen: set[int] = set()
    for name, one in port.named_parameters():
        if id(one) not in seen:
            seen.add(id(one))
            yield name, one


def _keys(arrays: Mapping[str, Array]) -> Mapping[str, Key]:
    """Return what equal parameters have alike: size, least and largest; nothing of constants."""
    found = {name: (one.size, float(one.min()), float(one.max())) for name, one in arrays.items() if one.size}
    return {name: key for name, key in found.items() if key[1] < key[2]}


def _groups(arrays: Mapping[str, Array], keys: Mapping[str, Key], several: set[Key]) -> Mapping[Print, list[str]]:
    """Return the names of parameters by what they hold, of those that may stand several times."""
    found: dict[Print, list[str]] = defaultdict(list)
    for name, key in keys.items():
        if key in several:
            found[print_of(arrays[name].astype(np.float32, copy=False))].append(name)
    return found


def _tie_finding(ours: list[str], theirs: list[str]) -> Finding:
    split = len(theirs) > len(ours)
    names = theirs if split else ours
    one, many = (ours[0], "the port") if split else (theirs[0], "the reference")
    told = ", ".join(f"`{name}`" for name in names)
    kept = "the reference" if split else "the port"
    fix = f"use one tensor for {told}" if split else f"give {told} tensors of their own"
    return Finding(
        code="tied-weights",
        kind="parameter",
        reference_path=common_path(name.rpartition(".")[0] for name in ours),
        port_path=common_path(name.rpartition(".")[0] for name in theirs),
        reference=f"{len(ours)} tensors" if len(ours) > 1 else "one tensor",
        port=f"{len(theirs)} tensors" if len(theirs) > 1 else "one tensor",
        message=f"{told} of {many} hold the same values but are trained apart; {kept} has one tensor, `{one}`, tied",
        fix=fix,
    )
