"""Parameters and buffers of matched layers: which is which, in torch's layout, and their values and ties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import WeightsError
from tipchain.explain.findings import Diagnosis, Effect, difference, shown_path
from tipchain.explain.locate.differences import equal, rms, side_by_side
from tipchain.explain.locate.matching import LayerPair, Print, common_path, print_of, sum_of
from tipchain.facts.settings import OWN_KIND
from tipchain.framework_types import Array, Model, Tensor
from tipchain.numbers.tolerance import CONSTANT, ROUGH, SAME_SINGLE
from tipchain.weights.files import array_of, view_of
from tipchain.weights.matching import match_models, matchable_layers
from tipchain.weights.sides import TensorSlot, assemble, without
from tipchain.weights.structure import group_by

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

    @property
    def paths(self) -> tuple[str, str]:
        """Both layers' paths."""
        return self.layers.reference, self.layers.port

    @property
    def fits(self) -> bool:
        """Whether both sides have it, with as many elements; of a known layer also in one shape."""
        if self.ours is None or self.theirs is None or _elements(self.ours) != _elements(self.theirs):
            return False
        return self.kind == OWN_KIND or self.ours.shape == self.theirs.shape


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
        self.layers = matchable_layers(reference, port, names or {})
        inner = (layer.path for layer in self.layers[1] if layer.inner)
        inside = {path for path in inner if any(pair.port.startswith(f"{path}.") for pair in known)}
        if inside:
            self.layers = matchable_layers(reference, port, names or {}, frozenset(inside))
        references, ports = ({layer.path: layer for layer in side} for side in self.layers)
        self.pairs: list[TensorPair] = []
        for pair in known:
            ours, theirs = references.get(pair.reference), ports.get(pair.port)
            if ours is None or theirs is None:
                continue
            kind, leaves = ours.kind if ours.kind == theirs.kind else OWN_KIND, {slot.leaf for slot in ours.slots}
            left = {slot.leaf: slot for slot in theirs.slots if not (slot.fixed and slot.leaf in leaves)}
            both = [(slot, left.pop(slot.leaf, None)) for slot in ours.slots]
            for mine, other in (*both, *((None, slot) for slot in left.values())):
                self.pairs.append(TensorPair(layers=pair, kind=kind, ours=mine, theirs=other))
        # The layers in no pair, with those of their tensors that no layer in a pair has too.
        taken, port_taken = {pair.reference for pair in known}, {pair.port for pair in known}
        shared = {id(self.live[slot.name]) for path in taken & references.keys() for slot in references[path].slots}
        slots = (slot for path in port_taken & ports.keys() for slot in ports[path].slots)
        shared |= {id(part.tensor) for slot in slots for part in slot.parts}

        def is_shared(slot: TensorSlot) -> bool:
            return slot.fixed or slot.again or all(id(part.tensor) in shared for part in slot.parts)

        alone = without(
            (one for one in self.layers[0] if one.path not in taken), lambda slot: id(self.live[slot.name]) in shared
        )
        self.unmatched = alone, without((one for one in self.layers[1] if one.path not in port_taken), is_shared)
        if any(pair.ours is None or pair.theirs is None for pair in self.pairs):
            self._pair_across_layers(reference, port, names)

    def _pair_across_layers(self, reference: object, port: object, names: Mapping[str, str] | None) -> None:
        """Pair a tensor that its layer's partner lacks with the weights' match's of another layer.

        A matrix that one model keeps itself may be a Linear's in the other. Where the whole models do not match, something
        is missing, and what holds the same values is paired.
        """
        alone = [pair for pair in self.pairs if pair.ours is None or pair.theirs is None]
        try:
            slots = match_models(reference, port, names).slots
        except WeightsError:
            # The port's of the shape and values of torch's; of constants those of one layer.
            same: dict[Hashable, tuple[list[TensorSlot], list[TensorSlot]]] = defaultdict(lambda: ([], []))
            for pair in alone:
                for side, one in enumerate((pair.ours, pair.theirs)):
                    if one is not None:
                        array = port_array(one) if side else self.array(one)
                        within = pair.layers if is_constant(array) else None
                        same[within, array.shape, array.tobytes()][side].append(one)
            alike = (both for both in same.values() if len(both[0]) == len(both[1]) == 1)
            slots = {ours[0].name: theirs[0] for ours, theirs in alike}
        reference_only, port_only = self.unmatched
        mine = {pair.ours.name: pair.layers.reference for pair in alone if pair.ours is not None}
        its = {_first_tensor(pair.theirs): pair.layers.port for pair in alone if pair.theirs is not None}
        ours = mine | {slot.name: layer.path for layer in reference_only for slot in layer.slots}
        theirs = its | {_first_tensor(slot): layer.path for layer in port_only for slot in layer.slots}
        held = {slot.name: slot for layer in self.layers[0] for slot in layer.slots}
        both = ((name, _first_tensor(slot)) for name, slot in slots.items() if name in ours)
        found = {name: one for name, one in both if one in theirs and (name in mine or one in its)}
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
            without(reference_only, lambda slot: slot.name in found),
            without(port_only, lambda slot: _first_tensor(slot) in taken),
        )

    @cached_property
    def by_print(self) -> Mapping[Print, list[TensorSlot]]:
        """Torch's tensors by what they hold."""
        slots = (slot for layer in self.layers[0] for slot in layer.slots)
        return group_by(slots, lambda slot: print_of(self.array(slot)))

    def array(self, slot: TensorSlot) -> Array:
        """Return the values of a tensor of torch's."""
        return numbers(array_of(self.live[slot.name].detach()), slot.dtype)

    def trained(self, slot: TensorSlot) -> bool:
        """Tell whether a tensor of torch's takes gradients."""
        return slot.kind == "parameter" and bool(self.live[slot.name].requires_grad)


def _first_tensor(slot: TensorSlot) -> int:
    return id(slot.parts[0].tensor)


def port_array(slot: TensorSlot) -> Array:
    """Return the values of a tensor of the port's, in torch's layout; those of a single part are not copied."""
    return numbers(assemble([view_of(part.tensor) for part in slot.parts], slot), slot.dtype)


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


ROUNDED = {"float64": SAME_SINGLE, "float32": SAME_SINGLE, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Relative difference up to which values are the same, by the coarser dtype: of 16-bit ones, their spacing."""
LOAD = "load `{name}` of `{path}` from the reference's weights"
VALUES = "wrong-values"
"""The code of values that are the reference's in no other order, and no other tensor's."""
Told = tuple[str, str, str]
"""A slug, a tensor's fault, and its fix; ``{name}`` and ``{path}`` name tensor and layer."""


def describe_values(expected: Array, actual: Array, elsewhere: Callable[[], str | None]) -> Told:
    """Return the fault of a tensor of one shape, in torch's layout, whose values differ, or are another's ``elsewhere``."""
    ours, theirs = (one if one.dtype.kind in "fc" else one.astype(np.float64) for one in (expected, actual))
    found = _arranged(ours, theirs)
    if found is not None:
        return found
    other = elsewhere()
    if other is not None:
        fix = f"load `{{name}}` of the reference into `{{path}}`, not `{other}`"
        return "weight-of-another-layer", f"holds the reference's `{other}`", fix
    off = ~np.isclose(ours, theirs, rtol=SAME_SINGLE, atol=CONSTANT * _largest(ours), equal_nan=True)
    at = tuple(map(int, np.unravel_index(int(off.argmax()), off.shape)))
    first = f"{list(at)} {theirs[at]:.6g} for {ours[at]:.6g}"
    return VALUES, f"has {int(np.count_nonzero(off))} wrong of {off.size} values: {first}", LOAD


def _arranged(ours: Array, theirs: Array) -> Told | None:
    """Tell that the same numbers stand in another order: of axes, or another."""
    if not ours.ndim or abs(rms(ours) - rms(theirs)) > SAME_SINGLE * _largest(ours):  # cheaper than sorting
        return None
    if not same_values(np.sort(ours, axis=None), np.sort(theirs, axis=None)):
        return None
    for axes in list(permutations(range(ours.ndim)))[1:]:
        turned = ours.transpose(axes)
        if ours.ndim == 2 and same_values(turned.reshape(theirs.shape), theirs):
            return "transposed-weight", "is transposed", "transpose the weight of `{path}`: `weight.T`"
        if same_values(turned, theirs):
            what = f"has its axes in the order {list(axes)}"
            return "permuted-weight", what, f"give `{{path}}` the weight without `transpose({list(axes)})`"
    what = "has the reference's values in another order"
    return "permuted-weight", what, "load `{name}` of `{path}` in the reference's order"


def _largest(array: Array) -> float:
    found = float(np.abs(array).max(initial=0.0))
    return found if np.isfinite(found) else 0.0


def same_values(one: Array, other: Array) -> bool:
    """Tell whether an array is another one, up to float32's rounding of its largest value."""
    limit = SAME_SINGLE * _largest(one)
    return one.shape == other.shape and all(
        bool(np.abs(theirs - ours).max() <= limit) for ours, theirs in side_by_side(one, other)
    )


SHOWN = 6
"""Parameters or layers that a message names."""
MANY, MOST = 5, 0.8
"""From so many tensors on, and if this share of them differ, weights were not copied at all: fewer, and a wrong initialization of
one kind of layer would be taken for it."""
SIGMAS = 6
"""Standard deviations within which the correlation of independent values lies: beyond once in 5e8."""
ENOUGH = 1 << 16
"""Values that tell whether two tensors have to do with each other."""
NOT_COPIED = "weights-not-copied"
NEUTRAL = {"bias": 0.0, "weight": 1.0}
"""Values of a parameter without effect, by its torch name in the layer."""


def check_parameters(tensors: Tensors) -> list[Diagnosis]:
    """Compare the parameters and buffers of matched layers: which there are, shapes, values, which are trained.

    Values are those in the models now. A tensor that holds torch's numbers in another order, or those of another layer, is
    said to. What torch has and Paddle never does (``num_batches_tracked``), and biases that Paddle keeps as constant zeros,
    count for nothing.

    Returns:
        The findings in the order of the pairs, then those about layers that are in no pair.
    """
    found: list[Diagnosis] = []
    of_values: dict[int, Diagnosis | None] = {}
    alone = {pair.layers for pair in tensors.pairs if pair.ours is None or pair.theirs is None}
    joined = {layers for layers in alone if _joined_otherwise(tensors, layers)}
    for pair in tensors.pairs:
        if pair.ours is None or pair.theirs is None:
            found += [] if pair.layers in joined else _alone(tensors, pair)
        elif not pair.fits:
            expected, actual = str(list(pair.ours.shape)), str(list(pair.theirs.shape))
            if not _divided(tensors, pair.ours, pair.theirs):
                told = f"{port_name(pair.theirs)} is {actual} in torch's layout, torch's {pair.ours.name} is {expected}"
                fix = f"make `{pair.layers.port}` so that its {pair.leaf} is {expected} in torch's layout"
                found.append(difference("shape", (expected, actual), told, fix, code="parameter", paths=pair.paths))
        else:
            one = of_values[id(pair)] = _values(tensors, pair, pair.ours, pair.theirs)
            found += [] if one is None else [one]
    if any(one.name == VALUES for one in found):
        strange = two_initializations(tensors, of_values)
        if strange is not None and strange.compared >= MANY:
            found = [strange.finding, *(one for one in found if one.name != VALUES)]
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
    def finding(self) -> Diagnosis:
        """The finding that stands for all of them."""
        both, fix = ("its own values", "other values"), "call `tipchain.copy_weights(reference, port)`"
        told = f"{self.differing} of {self.compared} parameters hold other values: the weights were not copied"
        return difference(NOT_COPIED, both, told, fix, code="parameter")


def two_initializations(tensors: Tensors, of_values: Mapping[int, Diagnosis | None] | None = None) -> Strange | None:
    """Return how many parameters hold numbers of their own where nearly all do, else None.

    A parameter whose elements are all equal on both sides (a norm's scale, a bias of zeros) is alike in any two fresh
    models and counts for nothing; one with torch's numbers in another order, or another tensor's, or values that have
    to do with torch's, was copied, well or not.
    The small ones are looked at first: a few that agree settle it. ``of_values``: what is known of the values of pairs, by
    their ``id``.
    """
    both = [
        (pair, pair.ours, pair.theirs)
        for pair in tensors.pairs
        if pair.ours is not None and pair.theirs is not None and pair.fits
        if pair.ours.kind == "parameter" and is_floating(pair.ours)
    ]
    known = of_values or {}
    copied = differing = unclear = 0
    for pair, ours, theirs in sorted(both, key=lambda one: _elements(one[1])):
        expected = tensors.array(ours)
        one = known[id(pair)] if id(pair) in known else _values(tensors, pair, ours, theirs)
        if one is not None and one.name == VALUES:
            some = [array.reshape(-1)[:ENOUGH] for array in (expected, port_array(theirs))]
            related: bool | None = False
            if not any(map(is_constant, some)):
                # The correlation of two independent draws of n numbers has a standard deviation of 1 / sqrt(n - 1).
                bound = SIGMAS / np.sqrt(some[0].size - 1)
                related = None if bound >= 1 else not abs(np.corrcoef(some[0], some[1])[0, 1]) <= bound
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


def is_constant(array: Array) -> bool:
    """Tell whether all elements of an array are equal."""
    return not array.size or bool((array == array[(0,) * array.ndim]).all())


def _elements(slot: TensorSlot) -> int:
    return int(np.prod(slot.shape))


def _alone(tensors: Tensors, pair: TensorPair) -> Iterator[Diagnosis]:
    ours, theirs, path = pair.ours, pair.theirs, pair.layers.port or "the model"
    if ours is not None:
        trained, array, told = tensors.trained(ours), tensors.array(ours), f"{ours.name} {list(ours.shape)}"
        values = told, "none"
        message = f"{path} has no {pair.leaf}, torch's {ours.name} has"
        fix = f"give `{path}` a {pair.leaf} of shape {list(ours.shape)}"
    else:
        assert theirs is not None
        trained, array, told = port_trained(theirs), port_array(theirs), f"{port_name(theirs)} {list(theirs.shape)}"
        values = "none", told
        message = f"{path} has a {pair.leaf} that torch's {pair.layers.reference or 'model'} does not have"
        fix = f"make `{path}` without {pair.leaf}"
        if theirs.fixed and not array.any():
            return
    is_buffer = (ours or theirs).kind == "buffer"  # type: ignore[union-attr]
    neutral = NEUTRAL.get("bias" if "bias" in pair.leaf else pair.leaf)
    idle = is_buffer or (not trained and neutral is not None and bool((array == neutral).all()))
    effect: Effect = "none" if idle else "here"
    name = "affine" if pair.kind.endswith("Norm") else "missing-parameter"
    name = "bias" if "bias" in pair.leaf else "statistics" if pair.leaf.startswith("running_") else name
    yield difference(name, values, message, fix, code="parameter", paths=pair.paths, effect=effect)


def _joined_otherwise(tensors: Tensors, layers: LayerPair) -> bool:
    """Tell whether the tensors that only one side's layer has, and the unpaired layers in it, hold the same numbers on both sides."""
    both = [(pair.ours, pair.theirs) for pair in tensors.pairs if pair.layers == layers]
    alone = [one for one, other in both if one and not other], [other for one, other in both if other and not one]
    sums = []
    for side, (path, read) in enumerate(((layers.reference, tensors.array), (layers.port, port_array))):
        prints = [print_of(read(slot)) for slot in alone[side]]
        if any(plain == 0 for _, plain, _ in prints):
            return False  # constants tell nothing
        inside = [one for one in tensors.unmatched[side] if not path or one.path.startswith(f"{path}.")]
        slots = (slot for one in inside for slot in one.slots if slot.kind == "parameter" and not slot.fixed)
        sums.append(sum_of([*prints, *(print_of(read(slot)) for slot in slots)]))
    return sums[0] == sums[1]


def _divided(tensors: Tensors, ours: TensorSlot, theirs: TensorSlot) -> bool:
    """Tell whether one side keeps one tensor of the other's in several, as layers for inputs that the other joins."""
    whole, part, layers, read = tensors.array(ours), port_array(theirs), tensors.unmatched[1], port_array
    if whole.size < part.size:
        whole, part, layers, read = part, whole, tensors.unmatched[0], tensors.array
    if part.size == whole.size or is_constant(part) or not np.isin(part, whole).all():
        return False
    pieces = [part, *(read(slot) for layer in layers for slot in layer.slots)]
    return bool(np.isin(whole, np.concatenate([one.reshape(-1) for one in pieces])).all())


def _values(tensors: Tensors, pair: TensorPair, ours: TensorSlot, theirs: TensorSlot) -> Diagnosis | None:
    expected, actual = tensors.array(ours), port_array(theirs)
    if expected.shape != actual.shape:
        # Of a user's own layout: as it is or transposed, whichever has the same numbers.
        if actual.ndim == 2 and np.array_equal(expected.reshape(-1), actual.T.reshape(-1)):
            actual = actual.T
        actual = actual.reshape(expected.shape)
    if _equal(expected, actual, max(ROUNDED.get(one.dtype, 0.0) for one in (ours, theirs))):
        return None

    reference, port = ours.name, port_name(theirs)
    parts = [(port, expected, actual)]
    if len(theirs.parts) > 1:
        ends, names = np.cumsum([one.shape[0] for one in theirs.parts])[:-1], (one.names[0] for one in theirs.parts)
        parts = list(zip(names, np.split(expected, ends), np.split(actual, ends), strict=True))
    tolerance = ROUNDED.get(theirs.dtype, 0.0)
    wrong = [(name, one, other) for name, one, other in parts if not _equal(one, other, tolerance)]
    where, expected, actual = wrong[0] if len(wrong) == 1 else (port, expected, actual)

    def elsewhere() -> str | None:
        print_ = print_of(actual.astype(expected.dtype, copy=False))
        alike = tensors.by_print.get(print_, ()) if any(print_[1:]) else ()
        held = [slot.name for slot in alike if slot.name != ours.name]
        return held[0] if len(held) == 1 else None

    code, what, fix = describe_values(expected, actual, elsewhere)
    path = pair.layers.port
    name = " + ".join(one.removeprefix(f"{path}.") for one in where.split(" + "))
    counts = not is_floating(ours) and not is_floating(theirs) and not np.array_equal(expected, actual)
    effect: Effect = "none" if counts and ours.kind == theirs.kind == "buffer" else "here"
    told, fix = f"{shown_path(path)}: its `{name}` {what}", fix.format(name=name, path=path or "the model")
    return difference(code, (reference, port), told, fix, code="parameter", paths=pair.paths, effect=effect)


def _equal(expected: Array, actual: Array, tolerance: float) -> bool:
    if equal(expected, actual):
        return True
    if expected.dtype.kind not in "fc" or actual.dtype.kind not in "fc":
        return False
    size = rms(expected)
    atol = tolerance * ROUGH * (size if np.isfinite(size) else 0.0)
    close = partial(np.isclose, rtol=tolerance, atol=atol, equal_nan=True)
    return all(close(other, one).all() for one, other in side_by_side(expected, actual))


def _frozen(tensors: Tensors) -> Iterator[Diagnosis]:
    for wanted in (True, False):
        both = ((pair.layers, pair.ours, pair.theirs) for pair in tensors.pairs if pair.ours and pair.theirs)
        trained = ((layers, theirs) for layers, ours, theirs in both if tensors.trained(ours) is wanted)
        apart = [(layers, port_name(one)) for layers, one in trained if port_trained(one) is not wanted]
        if not apart:
            continue
        shown = listed([name for _, name in apart], SHOWN)
        told = f"stop_gradient={wanted} where torch's has requires_grad={wanted}: {shown}"
        values, fix = (
            (f"requires_grad={wanted}", f"stop_gradient={wanted}"),
            f"set `stop_gradient = {not wanted}` of {shown}",
        )
        paths = common_path(one.reference for one, _ in apart), common_path(one.port for one, _ in apart)
        yield difference("trainable", values, told, fix, code="parameter", paths=paths, effect="elsewhere")


def _unmatched(tensors: Tensors) -> Iterator[Diagnosis]:
    """Yield the layers that are in no pair.

    They fail nothing: what they add to the outputs is measured, and a port may well fuse or split layers.
    """
    for side, where in enumerate(("torch's model", "the port")):
        trained = (one for one in tensors.unmatched[side] if any(slot.kind == "parameter" for slot in one.slots))
        names = [layer.path or "the model itself" for layer in trained]
        if not names:
            continue
        shown = listed(names, SHOWN)
        both, fix = (
            ("", shown) if side else (shown, ""),
            "name their counterparts (`names`) where structure cannot tell",
        )
        told = f"{len(names)} layers of {where} with parameters are in no pair: {shown}"
        yield difference("unmatched-parameters", both, told, fix, code="parameter", effect="none")
