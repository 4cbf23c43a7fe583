"""Which layers, calls and tensors of two models belong together, and how far apart two tensors are."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, pairwise, product, takewhile
from math import inf
from operator import attrgetter

import numpy as np

from tipchain.explain.locate.differences import PortLayout, finite_rms, laid_out, layouts, relative
from tipchain.explain.locate.trace import Call, NotHeld, Store, StoredArray, Trace, TracedValue, Traces
from tipchain.facts.layers import FAMILIES
from tipchain.framework_types import Array, Model
from tipchain.numbers.tolerance import SAME_SINGLE
from tipchain.weights.files import array_of, view_of
from tipchain.weights.given_names import expand_names
from tipchain.weights.matching import matchable_layers, paddle_leaves, torch_leaves
from tipchain.weights.sides import LayerTensors, Target, TensorSlot, torch_layers
from tipchain.weights.structure import group_by, match_by_structure

# Which layer that holds parameters is which of the port: by name, by values, then by structure.


Print = tuple[int, int, int]
State = Mapping[str, object] | None
Values = Sequence[TracedValue]
BLOCK = 2**14
"""Elements whose bits are mixed at a time: few enough for a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPair:
    """Two layers that belong together.

    Attributes:
        reference: the path in torch's model.
        port: the path in Paddle's.
        evidence: ``"name"``, ``"values"`` or ``"structure"``.
    """

    reference: str
    port: str
    evidence: str


def common_path(paths: Iterable[str]) -> str:
    """Return the path of the innermost layer that some layers are inside of, or are."""
    parts = [one.split(".") if one else [] for one in paths]
    shared = takewhile(lambda each: len(set(each)) == 1, zip(*parts, strict=False))
    return ".".join(each[0] for each in shared)


def pair_layers(reference: Model, port: Model, names: Mapping[str, str] | None = None) -> list[LayerPair]:
    """Pair the layers that hold parameters or buffers, in the reference's order of declaration.

    What agrees by name (or by ``names``, Paddle's by torch's) and type is paired first; then layers whose parameters
    hold the same values, in whatever order (a transposed or permuted weight does); then what is left in containers whose
    other layers belong together; then what shapes and order of declaration leave no doubt about; last, layers of one name and type whose tensors are others. What is left
    is not paired: nothing is guessed.
    """
    names = expand_names(names or {}, reference)
    rest = _Rest(*matchable_layers(reference, port, names))
    rest.take(_by_structure(rest, names, named=True), "name")
    # Layers of one kind whose parameters hold the same numbers, where no other layer's do.
    prints, port_prints = _by_prints(rest.ours, reference.state_dict()), _by_prints(rest.theirs)
    both = ((paths, port_prints.get(key, ())) for key, paths in prints.items())
    rest.take(((ours[0], theirs[0]) for ours, theirs in both if len(ours) == len(theirs) == 1), "values")
    rest.take(_by_containers(rest), "structure")
    rest.take(_by_structure(rest, names, named=False), "structure")
    named = {(layer.torch_path, layer.kind): path for path, layer in rest.theirs.items()}
    keys = ((path, (path, layer.kind)) for path, layer in rest.ours.items())
    rest.take(((path, named[key]) for path, key in keys if key in named), "name")
    # Layers without parameters or buffers that names name.
    ours, theirs = dict(reference.named_modules()), dict(port.named_sublayers(include_self=True))
    ours_taken, theirs_taken = {pair.reference for pair in rest.found}, {pair.port for pair in rest.found}
    given = ((one, other) for one, other in names.items() if one in ours and other in theirs)
    free = ((one, other) for one, other in given if one not in ours_taken and other not in theirs_taken)
    bare = ((one, other) for one, other in free if not ours[one].state_dict() and not theirs[other].state_dict())
    rest.found += [LayerPair(reference=one, port=other, evidence="name") for one, other in bare]
    order = {path: number for number, (path, _) in enumerate(reference.named_modules(remove_duplicate=False))}
    return sorted(rest.found, key=lambda pair: order[pair.reference])


def pair_packed(reference: Model, port: object, known: Sequence[LayerPair]) -> list[LayerPair]:
    """Return the pairs of one side's layer and the other's container of several that hold the same numbers together.

    Torch's ``MultiheadAttention`` is one layer; a port may have a layer of its own with a ``qkv`` and a projection inside.
    """
    taken, port_taken = {pair.reference for pair in known}, {pair.port for pair in known}
    if all(layer.path in taken or not _parameters(layer) for layer in torch_layers(reference)):
        return []
    ours, theirs = matchable_layers(reference, port, {})
    prints, port_prints = _sums(ours, taken, reference.state_dict()), _sums(theirs, port_taken)
    packed = [*_packed(prints, port_prints, port_taken)]
    packed += [(container, layer) for layer, container in _packed(port_prints, prints, taken)]
    return [LayerPair(reference=one, port=other, evidence="values") for one, other in packed]


def _sums(layers: Iterable[LayerTensors], taken: set[str], state: State = None) -> dict[str, Print]:
    """Return the prints of all parameters of layers that are in no pair."""
    slots = {layer.path: _parameters(layer) for layer in layers if layer.path not in taken}
    return {path: sum_of(_slot_print(slot, state) for slot in some) for path, some in slots.items() if some}


def _packed(prints: Mapping[str, Print], others: Mapping[str, Print], taken: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the layers of one side, each with the only container of the other's that holds the same numbers."""
    inside: dict[str, list[str]] = defaultdict(list)
    for path in (*others, *taken):
        for dot in re.finditer(r"\.", path):
            inside[path[: dot.start()]].append(path)
    # Containers of several layers, none of which is paired.
    free = ((one, paths) for one, paths in inside.items() if len(paths) > 1 and not taken.intersection(paths))
    held = {container: sum_of(others[path] for path in paths) for container, paths in free}
    for path, print_ in prints.items():
        fitting = [container for container, whole in held.items() if whole == print_]
        alone = sum(one == print_ for one in prints.values()) == 1
        if print_[1] and alone and len(fitting) == 1:
            yield path, fitting[0]


def sum_of(prints: Iterable[Print]) -> Print:
    """Return the print of all numbers that several prints are of."""
    sizes, plain, mixed = zip((0, 0, 0), *prints, strict=True)
    return sum(sizes), sum(plain) % 2**64, sum(mixed) % 2**64


class _Rest:
    def __init__(self, ours: Sequence[LayerTensors], theirs: Sequence[LayerTensors]) -> None:
        self.ours = {layer.path: layer for layer in ours}
        self.theirs = {layer.path: layer for layer in theirs}
        self.found: list[LayerPair] = []

    def take(self, pairs: Iterator[tuple[str, str]], evidence: str) -> None:
        """Pair the names in ``pairs`` that are left."""
        for ours, theirs in list(pairs):
            if ours in self.ours and theirs in self.theirs:
                del self.ours[ours], self.theirs[theirs]
                self.found.append(LayerPair(reference=ours, port=theirs, evidence=evidence))


def _by_structure(rest: _Rest, names: Mapping[str, str], *, named: bool) -> Iterator[tuple[str, str]]:
    """Yield the pairs by names, or else by kinds, shapes and order."""
    leaves = torch_leaves(rest.ours.values(), names), paddle_leaves(rest.theirs.values(), names)
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for ours, theirs in match_by_structure(*leaves).pairs.items():
        found[ours.layer.path][theirs.layer.path] = None
    shared = Counter(port for ports in found.values() for port in ports)
    given = {Target.parse(target).names[0]: name for name, target in names.items()}
    for path, ports in found.items():
        port = next(iter(ports))
        alike = rest.ours[path].kind == rest.theirs[port].kind  # others may keep their tensors in another layout
        by_name = path in (rest.theirs[port].torch_path, given.get(port))
        if alike and len(ports) == shared[port] == 1 and by_name == named:
            yield path, port


def _parameters(layer: LayerTensors) -> list[TensorSlot]:
    return [slot for slot in layer.slots if slot.kind == "parameter" and not slot.fixed]


def _by_containers(rest: _Rest) -> Iterator[tuple[str, str]]:
    """Yield the only layers left of one kind and shape in two containers that share all other pairs."""
    both = {(pair.reference.rpartition(".")[0], pair.port.rpartition(".")[0]) for pair in rest.found}
    ours, theirs = Counter(one for one, _ in both), Counter(other for _, other in both)
    partners = {one: other for one, other in both if ours[one] == theirs[other] == 1}

    def place(layer: LayerTensors) -> tuple[str | None, Hashable]:
        return layer.path.rpartition(".")[0], (layer.kind, *(slot.shape for slot in _parameters(layer)))

    left, port_left = (group_by(layers.values(), place) for layers in (rest.ours, rest.theirs))
    for (container, kind), layers in left.items():
        others = port_left.get((partners.get(str(container)), kind), ())
        if len(layers) == len(others) == 1:
            yield layers[0].path, others[0].path


def _by_prints(layers: Mapping[str, LayerTensors], state: State = None) -> dict[Hashable, list[str]]:
    """Return the paths of layers by their kinds and their parameters' contents."""
    found: dict[Hashable, list[str]] = defaultdict(list)
    for path, layer in layers.items():
        told = {(slot.leaf, _slot_print(slot, state)) for slot in _parameters(layer)}
        if any(plain for _, (_, plain, _) in told):
            found[layer.kind, frozenset(told)].append(path)
    return found


def _slot_print(slot: TensorSlot, state: State) -> Print:
    arrays = [array_of(state[slot.name])] if state is not None else [view_of(part.tensor) for part in slot.parts]
    return sum_of(map(print_of, arrays))


def print_of(array: Array) -> Print:
    """Return a number of elements and two sums over their bits, alike for the same values in whatever order.

    An array whose elements are all equal (a bias of zeros) says nothing: its sums are 0.
    """
    flat = np.ascontiguousarray(array if array.flags.c_contiguous else array.T).reshape(-1)
    if not flat.size or (flat == flat[0]).all():
        return flat.size, 0, 0
    bits, plain, mixed = flat.view(f"u{flat.dtype.itemsize}"), 0, 0
    for start in range(0, bits.size, BLOCK):
        words = bits[start : start + BLOCK].astype(np.uint64)
        plain += int(words.sum())
        words *= np.uint64(0x9E3779B97F4A7C15)
        mixed += int((words ^ (words >> np.uint64(29))).sum())
    return flat.size, plain % 2**64, mixed % 2**64


# Which call of the reference is which call of the port, from what is certain to what is likely.
#
# Calls of paired layers belong together in the order of their turns. Layers without parameters (activations, pooling,
# dropout) are aligned between them as two sequences are (Needleman and Wunsch 1970): by the layer's type, by shapes, and by the values
# that went in and came out. Code that is a layer on one side and a function on the other stays unmatched, and is listed.


Close = Callable[[TracedValue, TracedValue], bool]
"""Tells whether two values are the same up to rounding, whatever the order of their axes."""


_SAME, _RELATED, _OUTPUTS, _INPUTS, _SHAPES = 4.0, 2.0, 3.0, 2.0, 0.5
"""Votes for two calls being one: same kind, related kind, outputs, inputs, equal sizes.

Values decide before kinds: outputs that agree outweigh a related kind, and outputs with inputs any kind."""


@dataclass(frozen=True, slots=True)
class LayoutStep:
    """One side's step after its layer, before both sides' results are compared.

    Attributes:
        name: the path of another layer, or the name of a function that both frameworks have.
        function: which of them.
    """

    name: str
    function: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallPair:
    """Two calls that belong together.

    Attributes:
        reference: torch's.
        port: Paddle's.
        whole: they hold calls that were not matched, so that the pair is judged as a whole.
        then: what either side does to its layer's result, where the other side's layer does that itself.
    """

    reference: Call
    port: Call
    whole: bool = False
    then: tuple[tuple[LayoutStep, ...], tuple[LayoutStep, ...]] = ((), ())

    @property
    def calls(self) -> tuple[Call, Call]:
        """Both calls."""
        return self.reference, self.port

    def followed(self, number: int, step: LayoutStep, value: TracedValue) -> CallPair:
        """Return the pair with a step after the layer of the reference (0) or of the port (1), which gives ``value``."""
        if number == 0:
            return replace(self, reference=replace(self.reference, outputs=(value,)), then=((step,), ()))
        return replace(self, port=replace(self.port, outputs=(value,)), then=((), (step,)))


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """The calls of two traces.

    Attributes:
        pairs: what is judged, in the order in which the port's calls ended.
        containers: pairs of calls that hold others; the models' own first.
        reference_only: the reference's innermost calls that are in no pair.
        port_only: the port's.
        keepers: calls that are no counterparts, of layers that keep the same parameters beside others' layers.
    """

    pairs: tuple[CallPair, ...]
    containers: tuple[CallPair, ...]
    reference_only: tuple[Call, ...]
    port_only: tuple[Call, ...]
    keepers: tuple[CallPair, ...] = ()


def match_calls(reference: Trace, port: Trace, layers: Iterable[LayerPair], close: Close) -> Matching:
    """Match the calls of two traces of one input.

    Args:
        reference: torch's trace.
        port: Paddle's.
        layers: the layers with parameters that belong together.
        close: tells whether two tensors are the same up to rounding.
    """
    layers = list(layers)
    given = _uncrossed(_paired_calls(reference, port, layers, close), layers, (reference, port), close)

    def inside(path: str, around: Call) -> bool:
        return path == around.path or not around.path or path.startswith(f"{around.path}.")

    # One of two layers alone calls layers, and some of these are counterparts of layers outside the other.
    keepers = [
        pair
        for pair in given
        if bool(pair.reference.children) != bool(pair.port.children)
        and any(inside(one.reference, pair.reference) != inside(one.port, pair.port) for one in layers)
    ]
    given = [pair for pair in given if pair not in keepers]
    ours, theirs = _innermost(reference, given, 0), _innermost(port, given, 1)
    anchors = [pair for pair in given if pair.reference.number in ours and pair.port.number in theirs]
    found = list(anchors)
    paired, port_paired = {pair.reference for pair in layers}, {pair.port for pair in layers}
    for first, second in _segments(ours, theirs, anchors):
        # A layer whose counterpart is known is that of no other, however often it is called.
        free = [one for one in first if one.path not in paired]
        port_free = [one for one in second if one.path not in port_paired]
        scores = np.array([[_score(one, other, close) for other in port_free] for one in free])
        both = [(free[i], port_free[j]) for i, j in best_pairs(scores)] if scores.size else []
        for pairs in group_by(both, lambda pair: (pair[0].path, pair[1].path)).values():
            found += [CallPair(reference=one, port=other) for one, other in _same_turns(pairs, close)]
    left = _unmatched((ours, theirs), found)
    containers = _containers(reference, port, found, (ours, theirs))
    wholes: dict[int, CallPair] = {}  # the smallest paired container around each call that is in no pair, once
    for side, (trace, calls) in enumerate(zip((reference, port), left, strict=True)):
        holding = {pair.calls[side].number: pair for pair in containers}
        for call in (one for one in calls if not hands_on(one)):
            holders = (holding[one.number] for one in trace.around(call) if one.number in holding)
            wholes |= {one.port.number: replace(one, whole=True) for one in islice(holders, 1)}
    judged = sorted([*found, *wholes.values()], key=lambda pair: pair.port.ended)
    return Matching(tuple(judged), tuple(containers), *left, tuple(keepers))


def _unmatched(
    calls: tuple[Mapping[int, Call], Mapping[int, Call]], pairs: Sequence[CallPair]
) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    paired = [{pair.calls[side].number for pair in pairs} for side in (0, 1)]
    ours, theirs = (tuple(one[n] for n in one if n not in known) for one, known in zip(calls, paired, strict=True))
    return ours, theirs


def hands_on(call: Call) -> bool:
    """Tell whether a call gave back the very tensors that it was given."""
    return bool(call.outputs) and all(value in call.inputs for value in call.outputs)


def _paired_calls(reference: Trace, port: Trace, layers: Sequence[LayerPair], close: Close) -> list[CallPair]:
    """Return the paired layers' calls turn by turn, without inputs that fit another turn.

    A layer that is never called, whose container takes its tensors, is called where the container is that holds no other paired layer.
    """
    ended = ([call for call in trace.calls if call.ended >= 0] for trace in (reference, port))
    ours, theirs = (group_by(calls, attrgetter("path")) for calls in ended)
    paths, port_paths = [pair.reference for pair in layers], [pair.port for pair in layers]
    both = ((_calls_of(pair.reference, ours, paths), _calls_of(pair.port, theirs, port_paths)) for pair in layers)
    turns = (_same_turns([*zip(*calls, strict=False)], close) for calls in both)
    return [CallPair(reference=one, port=other) for pairs in turns for one, other in pairs]


def _calls_of(path: str, turns: Mapping[str, list[Call]], paired: Sequence[str]) -> list[Call]:
    while path not in turns:
        path = path.rpartition(".")[0]
        if not path or sum(one.startswith(f"{path}.") for one in paired) > 1:
            return []
    return turns[path]


def _same_turns(both: list[tuple[Call, Call]], close: Close) -> list[tuple[Call, Call]]:
    """Return calls of one layer paired by their inputs if telling, else turn by turn."""
    loose = [n for n, (one, other) in enumerate(both) if len(both) > 1 and not _alike(one.inputs, other.inputs, close)]
    left = [both[number][1] for number in loose]
    partners = {}
    for number in loose:
        partner = next((one for one in left if _alike(both[number][0].inputs, one.inputs, close)), None)
        if partner is not None:
            partners[number] = partner
            left = [one for one in left if one is not partner]
    paired = {number: partners.get(number) or left.pop(0) for number in loose}
    return _parted_by_gradients([(one, paired.get(number, other)) for number, (one, other) in enumerate(both)], close)


def _parted_by_gradients(both: list[tuple[Call, Call]], close: Close) -> list[tuple[Call, Call]]:
    """Return pairs of calls, those of equal inputs exchanged whose gradients are each other's: a detached tensor may come first."""
    loose = [n for n, pair in enumerate(both) if len(both) > 1 and not _alike_gradients(*pair, close)]
    for first, second in combinations(loose, 2):
        (one, its), (other, others) = both[first], both[second]
        crossed = _alike_gradients(one, others, close) and _alike_gradients(other, its, close)
        crossed = crossed and not (_alike_gradients(one, its, close) or _alike_gradients(other, others, close))
        if crossed and _alike(one.inputs, others.inputs, close) and _alike(other.inputs, its.inputs, close):
            both[first], both[second] = (one, others), (other, its)
    return both


def _alike_gradients(one: Call, other: Call, close: Close) -> bool:
    ours, theirs = ([value.gradient for value in (*each.inputs[:1], *each.outputs[:1])] for each in (one, other))
    return len(ours) == len(theirs) and all(
        mine is its if mine is None or its is None else close(TracedValue(mine), TracedValue(its))
        for mine, its in zip(ours, theirs, strict=True)
    )


def _uncrossed(pairs: list[CallPair], layers: Iterable[LayerPair], traces: Traces, close: Close) -> list[CallPair]:
    """Return the pairs, those that only their parameters' values tell put right where their inputs tell otherwise.

    Two layers that hold each other's parameters run where the other one runs in the reference.
    """
    told = {pair.reference for pair in layers if pair.evidence == "values"}
    found = list(pairs)
    loose = [number for number, pair in enumerate(pairs) if pair.reference.path in told and not pair.port.turn]
    for first in loose:
        for second in loose:
            both = one, other = found[first], found[second]
            crossed = one.reference.number < other.reference.number and one.port.number > other.port.number
            if not crossed or one.port.type != other.port.type:
                continue
            # Where they stand in modules of different types, the modules run in another order, no values are crossed.
            around = [[next(trace.around(each.calls[n]), None) for each in both] for n, trace in enumerate(traces)]
            other_modules = all(first and second and first.type != second.type for first, second in around)
            inputs = one.reference.inputs
            exchanged = _alike(inputs, other.port.inputs, close) and not _alike(inputs, one.port.inputs, close)
            if exchanged and not other_modules:
                found[first] = replace(one, port=other.port)
                found[second] = replace(other, port=one.port)
    return found


def _innermost(trace: Trace, given: Iterable[CallPair], side: int) -> dict[int, Call]:
    """Return the calls that are not looked into, by number: those without calls inside on either side of a pair."""
    closed = {pair.calls[side].number for pair in given if not all(call.children for call in pair.calls)}
    found: dict[int, Call] = {}
    for call in trace.calls:
        inside = any(one.number in found for one in trace.around(call))
        if not inside and call.ended >= 0 and (call.number in closed or not call.children):
            found[call.number] = call
    return found


def _segments(
    ours: Mapping[int, Call], theirs: Mapping[int, Call], anchors: Sequence[CallPair]
) -> list[tuple[list[Call], list[Call]]]:
    """Return the unpaired calls between each two anchors of the longest chain in common order."""
    pairs = sorted((pair.reference.number, pair.port.number) for pair in anchors)
    tails: list[int] = []  # indices into pairs
    before: list[int] = []
    for index, (_, second) in enumerate(pairs):
        place = bisect_left([pairs[one][1] for one in tails], second)
        before.append(tails[place - 1] if place else -1)
        tails[place : place + 1] = [index]
    chain, index = [], tails[-1] if tails else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    ends = [(-1, -1), *chain[::-1], (max(ours, default=-1) + 1, max(theirs, default=-1) + 1)]
    left, port_left = _unmatched((ours, theirs), anchors)

    def between(calls: Sequence[Call], start: int, end: int) -> list[Call]:
        return [call for call in calls if start < call.number < end]

    return [(between(left, one[0], two[0]), between(port_left, one[1], two[1])) for one, two in pairwise(ends)]


def best_pairs(scores: Array) -> list[tuple[int, int]]:
    """Return the pairs of two sequences, both in order, of which the sum of the scores is largest; 0 pairs nothing."""
    rows, columns = scores.shape
    best = np.zeros((rows + 1, columns + 1))
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best[i, j] = max(best[i + 1, j], best[i, j + 1], best[i + 1, j + 1] + scores[i, j])
    found, i, j = [], 0, 0
    while i < rows and j < columns:
        if scores[i, j] > 0 and best[i, j] == best[i + 1, j + 1] + scores[i, j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i, j] == best[i + 1, j]:
            i += 1
        else:
            j += 1
    return found


def _score(one: Call, other: Call, close: Close) -> float:
    """Return how likely two calls are the same layer; 0 or less: not."""
    kind, port_kind = one.type.lower(), other.type.lower()
    family, port_family = families = FAMILIES.get(kind), FAMILIES.get(port_kind)
    outputs = _alike(one.outputs, other.outputs, close)
    inputs = _alike(one.inputs, other.inputs, close)
    if kind == port_kind:
        likely = _SAME
    elif family and family == port_family:
        likely = _RELATED
    elif inputs and (outputs or None in families) and not _hand_on_otherwise(one, other, families, close):
        likely = _SHAPES  # a user's own class, or another type that does the same
    else:
        return 0.0
    sizes, port_sizes = ([sorted(value.shape) for value in call.outputs] for call in (one, other))
    return likely + _OUTPUTS * outputs + _INPUTS * inputs + _SHAPES * (sizes == port_sizes)


def _hand_on_otherwise(one: Call, other: Call, families: tuple[str | None, str | None], close: Close) -> bool:
    """Tell whether of two calls of different types one hands on the numbers it is given, and the other does not do so likewise.

    A flattening layer, and dropout in eval mode, give what they are given: equal inputs and outputs say nothing of them. Of two
    known types the layers are then no counterparts, of a user's own type they are if both change the shape alike.
    """
    if hands_on(one) or hands_on(other):
        return True
    if not any(_alike(call.inputs, call.outputs, close) for call in (one, other)):
        return False
    change, other_change = ([value.shape for value in (*call.inputs, *call.outputs)] for call in (one, other))
    return None not in families or change != other_change


def _alike(ours: Values, theirs: Values, close: Close) -> bool:
    return bool(ours) and bool(theirs) and close(ours[0], theirs[0])


def _containers(
    reference: Trace, port: Trace, found: Sequence[CallPair], inner: tuple[Mapping[int, Call], Mapping[int, Call]]
) -> list[CallPair]:
    """Pair the calls that hold the same pairs; of several, those of one path or type, else the outermost."""
    if any(0 in calls for calls in inner):
        return []

    def holders(trace: Trace, side: int) -> dict[frozenset[int], list[Call]]:
        below: dict[int, set[int]] = defaultdict(set)
        for number, pair in enumerate(found):
            for around in trace.around(pair.calls[side]):
                below[around.number].add(number)
        outer = (call for call in trace.calls if call.number in below and call.number not in inner[side])
        return group_by(outer, lambda call: frozenset(below[call.number]))

    held, port_held = holders(reference, 0), holders(port, 1)
    pairs = [CallPair(reference=reference.calls[0], port=port.calls[0])]
    for key in held:
        ours, theirs = ([call for call in one.get(key, ()) if call.parent is not None] for one in (held, port_held))
        if len(ours) == len(theirs):
            pairs += [CallPair(reference=one, port=other) for one, other in zip(ours, theirs, strict=True)]
            continue
        for same in (attrgetter("path"), attrgetter("type"), lambda _: None):
            for one, other in product(list(ours), list(theirs)):
                if one in ours and other in theirs and same(one) == same(other):
                    ours.remove(one)
                    theirs.remove(other)
                    pairs.append(CallPair(reference=one, port=other))
    return pairs


# Tensors of two runs held against each other, each pair once.


@dataclass(frozen=True, slots=True)
class TensorLink:
    """A tensor of the reference's call and the port's: their numbers, and how the port lays it out."""

    ours: int
    theirs: int
    layout: PortLayout


class Comparer:
    """Compares the tensors of two traces that one store holds.

    What no result of a model depends on is not compared where a call gives others; ``returned`` are the models' results.
    """

    def __init__(self, store: Store, returned: Iterable[TracedValue] = ()) -> None:
        self._store = store
        self._returned = {id(one) for one in returned}
        self._known: dict[tuple[int, int, PortLayout, bool], float] = {}
        self._layouts: dict[tuple[int, int], PortLayout | None] = {}
        self._sizes: dict[int, float] = {}
        self._linked: dict[tuple[int, int, str], tuple[CallPair, list[TensorLink]]] = {}

    def inputs(self, pair: CallPair) -> list[TensorLink]:
        """Link two calls' inputs, once; see `links`."""
        key, ours, theirs = (id(pair.reference), id(pair.port), "inputs"), pair.reference, pair.port
        if key not in self._linked:
            self._linked[key] = pair, self.links(ours.inputs, theirs.inputs, ours.input_names, theirs.input_names)
        return self._linked[key][1]

    def outputs(self, pair: CallPair) -> list[TensorLink]:
        """Link two calls' outputs, once; see `links`."""
        key, ours, theirs = (id(pair.reference), id(pair.port), "outputs"), pair.reference, pair.port
        if key in self._linked:
            return self._linked[key][1]
        found = self.links(ours.outputs, theirs.outputs, ours.output_names, theirs.output_names)
        used, port_used = (
            [id(one) in self._returned or bool(self.gradient_size(one)) for one in call.outputs] for call in pair.calls
        )
        alive = any(used) and any(port_used)
        found = [one for one in found if not alive or used[one.ours] or port_used[one.theirs]]
        self._linked[key] = pair, found
        return found

    def inputs_apart(self, pair: CallPair) -> float:
        """Return how far the inputs of two calls are apart."""
        return self.apart(pair.reference.inputs, pair.port.inputs, self.inputs(pair))

    def outputs_apart(self, pair: CallPair) -> float:
        """Return how far the outputs of two calls are apart."""
        return self.apart(pair.reference.outputs, pair.port.outputs, self.outputs(pair))

    def stands_for(self, pair: CallPair) -> bool:
        """Tell whether two calls are given the same tensors, and return as many of the same shapes."""
        ours, theirs = pair.reference, pair.port
        inputs, outputs = self.links(ours.inputs, theirs.inputs), self.links(ours.outputs, theirs.outputs)
        return (
            len(ours.inputs) == len(theirs.inputs) == len(inputs)
            and len(ours.outputs) == len(theirs.outputs) == len(outputs)
            and all(self._same(ours.inputs[link.ours], theirs.inputs[link.theirs]) for link in inputs)
        )

    def results(
        self, ours: Values, theirs: Values, our_names: Sequence[str], their_names: Sequence[str]
    ) -> list[TensorLink]:
        """Link two models' results: place by place in equal structures, else as `links` does."""
        if list(our_names) != list(their_names):
            return self.links(ours, theirs, our_names, their_names)
        fitting = ((n, self.layout(*both)) for n, both in enumerate(zip(ours, theirs, strict=True)))
        return [TensorLink(n, n, layout) for n, layout in fitting if layout is not None]

    def links(
        self, ours: Values, theirs: Values, our_names: Sequence[str] = (), their_names: Sequence[str] = ()
    ) -> list[TensorLink]:
        """Link the tensors of two calls: by name, by position where all fit, else by values and shapes in their order.

        What only one side has is in no link.
        """
        fits = len(ours) == len(theirs) and all(map(self.layout, ours, theirs))
        # Where they do not fit one by one, a tensor that is given several times is linked once.
        left, free = (
            [number for number, value in enumerate(side) if fits or value not in side[:number]]
            for side in (ours, theirs)
        )
        found: list[TensorLink] = []

        def link(one: int, other: int) -> None:
            layout = self.layout(ours[one], theirs[other])
            if layout is not None:
                found.append(TensorLink(one, other, layout))
                left.remove(one)
                free.remove(other)

        words, port_words = (  # the tensors' names without the positions before them
            {re.sub(r"^(\d+(\.|$))+", "", name): number for number, name in enumerate(names)}
            for names in (our_names, their_names)
        )
        for word, number in words.items():
            if word and number in left and port_words.get(word) in free:
                link(number, port_words[word])
        pairs = list(zip(left, free, strict=False))
        if len(left) != len(free) or not all(
            self.layout(ours[one], theirs[other]) for one, other in pairs
        ):  # those, in order on both sides, of which most hold the same values, and then most fit
            most, others = len(left) + len(free), [theirs[number] for number in free]
            scores = [
                [0.0 if self.layout(one, other) is None else 1.0 + most * self._same(one, other) for other in others]
                for one in (ours[number] for number in left)
            ]
            best = best_pairs(np.array(scores).reshape(len(left), len(free)))
            pairs = [(left[i], free[j]) for i, j in best]
        for one, other in pairs:
            link(one, other)
        for one, other in product(list(left), list(free)):
            if one in left and other in free:
                link(one, other)
        return sorted(found, key=lambda each: each.ours)

    def _same(self, one: TracedValue, other: TracedValue) -> bool:
        layout = self.layout(one, other)
        try:
            return layout is not None and self.between(one, other, layout) <= SAME_SINGLE
        except NotHeld:
            return False

    def layout(self, one: TracedValue, other: TracedValue) -> PortLayout | None:
        """Return how ``other`` lays out ``one``; None where it has another shape or kind."""
        if one.dtype.kind != other.dtype.kind and "f" in (one.dtype.kind, other.dtype.kind):
            return None
        key = id(one), id(other)
        if key not in self._layouts:
            fitting = layouts(one.shape, other.shape)
            told = not fitting or (len(fitting) == 1 and fitting[0].permutes)
            self._layouts[key] = next(iter(fitting), None)
            if not told:
                self._layouts[key] = laid_out(self._store.get(one.stored), self._store.get(other.stored))
        return self._layouts[key]

    def apart(self, ours: Values, theirs: Values, links: Sequence[TensorLink]) -> float:
        """Return how far linked tensors are apart, the largest; inf where none could be linked."""
        return inf if ours and theirs and not links else max(self.each(ours, theirs, links), default=0.0)

    def each(self, ours: Values, theirs: Values, links: Iterable[TensorLink]) -> list[float]:
        """Return how far each two linked tensors are apart."""
        return [self.between(ours[link.ours], theirs[link.theirs], link.layout) for link in links]

    def output_apart(self, pair: CallPair, link: TensorLink) -> float:
        """Return how far an output of two calls is apart."""
        return self.between(pair.reference.outputs[link.ours], pair.port.outputs[link.theirs], link.layout)

    def between(self, one: TracedValue, other: TracedValue, layout: PortLayout) -> float:
        """Return how far two tensors are apart; each pair is compared once."""
        key = id(one), id(other), layout, False
        if key not in self._known:
            self._known[key] = self._relative(one.stored, other.stored, layout)
        return self._known[key]

    def _relative(self, one: StoredArray, other: StoredArray, layout: PortLayout, *, gradient: bool = False) -> float:
        """Return how far two arrays are apart, of those that are not held about how far."""
        if layout.plain:
            if other.twin is one:
                return other.apart
            if one.outline is not None or other.outline is not None:
                return self._store.projected(one).relative(self._store.projected(other)) + other.apart
        ours, theirs = self._store.get(one), self._store.get(other)
        if gradient:
            return relative(layout.shared(ours), layout.back_shared(theirs)) + other.apart
        if ours.size > theirs.size:  # the reference repeats it: all of what it holds must be the port's
            return relative(ours, layout.back(theirs)) + other.apart
        return relative(layout.apply(ours), theirs) + other.apart

    def nan_in_one(self, one: TracedValue, other: TracedValue) -> str:
        """Return the port's contents where one tensor alone has NaN; empty for both or neither."""
        ours, theirs = (self._store.has_nan(each.stored) for each in (one, other))
        if ours == theirs:
            return ""
        return "NaN where the reference has none" if theirs else "no NaN where the reference has some"

    def size(self, stored: StoredArray) -> float:
        """Return the RMS of an array, of one with NaN or Inf that of its other elements, of one that is not held about that."""
        held = stored.twin or stored
        if id(held) not in self._sizes:
            whole = held.outline is None
            self._sizes[id(held)] = finite_rms(self._store.get(held)) if whole else self._store.projected(held).rms
        return self._sizes[id(held)]

    def gradient_size(self, value: TracedValue) -> float:
        """Return the RMS of a tensor's gradient; 0 without one."""
        return 0.0 if value.gradient is None else self.size(value.gradient)

    def gradients_apart(self, one: TracedValue, other: TracedValue, layout: PortLayout) -> float:
        """Return how far the gradients of two tensors are apart; each pair is compared once."""
        if one.gradient is None or other.gradient is None:
            return 0.0 if one.gradient is other.gradient else inf
        key = id(one), id(other), layout, True
        if key not in self._known:
            self._known[key] = self._relative(one.gradient, other.gradient, layout, gradient=True)
        return self._known[key]
