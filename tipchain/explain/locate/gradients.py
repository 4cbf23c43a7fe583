"""The errors of gradients: of layers' inputs and parameters, and of all parameters of two models."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, prod

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.locate.differences import PortLayout, distance, equal, layouts, orders, relative, rms, squeezed_as
from tipchain.explain.locate.matching import CallPair, LayerPair, print_of
from tipchain.explain.locate.rerun import BothModels, PairReruns, Rerun
from tipchain.explain.locate.runs import LargeWeight
from tipchain.explain.locate.trace import NotHeld
from tipchain.explain.locate.verdicts import Closeness, Measured, classify, frameworks_own, measure
from tipchain.framework_types import Array, Model
from tipchain.frameworks.live_models import LiveSide, Sides, has_hooks
from tipchain.numbers.tolerance import CONSTANT, EXPLAINED, NOISE, ROUGH, SAME_DOUBLE, SAME_SINGLE
from tipchain.weights.sides import join

Arrays = Mapping[str, Array]
LARGE = 2**17
"""Elements of a weight from which on its gradient is projected: 1 MiB of float64, as much as a core's own cache holds."""
PROJECTED = ("linear", "conv1d", "conv2d", "conv3d")
"""Layers of the frameworks whose weights are so large."""


def alike(models: BothModels, tolerance: float) -> bool:
    """Tell whether every parameter of one model's float64 copy is one of the other's, with gradients no further apart.

    Those that hold the same values, in whatever order, belong together, and their gradients are compared in the order of
    their size: a layout of its own changes neither. The others are compared element by element, by their values: one side may keep
    in several what the other joins.
    """
    groups, port_groups = (_groups(one.side, one.double.whole) for one in models if one.double is not None)
    shared = groups.keys() & port_groups.keys()
    gradients = [one for found in groups.values() for _, one in found]
    least = SAME_SINGLE * max(map(rms, gradients), default=0.0)
    pairs = []
    for key in shared:
        both = [np.concatenate([one for _, one in found]) for found in (groups[key], port_groups[key])]
        # Sizes are no further apart than the arrays are, in whatever order: most that differ need no sorting.
        sizes = [rms(one) for one in both]
        if both[0].size != both[1].size or not abs(sizes[0] - sizes[1]) <= (tolerance + NOISE) * max(sizes[0], least):
            return False
        pairs.append(both)
    left = [[one for key in each.keys() - shared for one in each[key]] for each in (groups, port_groups)]
    if any(left):
        if not all(left):
            return False
        joined = ([np.concatenate(arrays) for arrays in zip(*found, strict=True)] for found in left)
        (values, ours), (port_values, theirs) = joined
        if values.size != port_values.size or not np.array_equal(np.sort(values), np.sort(port_values)):
            return False
        ours, theirs = ours[np.lexsort((ours, values))], theirs[np.lexsort((theirs, port_values))]
        if distance(ours, theirs) > tolerance * max(rms(ours), least):
            return False
    return all(distance(*(np.sort(one) for one in both)) <= tolerance * max(rms(both[0]), least) for both in pairs)


def _groups(side: LiveSide, model: Model) -> Mapping[Hashable, list[tuple[Array, Array]]]:
    """Return the parameters and their gradients by the parameters' contents; none is as good as zeros."""
    found: dict[Hashable, list[tuple[Array, Array]]] = defaultdict(list)
    for _, one in side.parameters(model):
        gradient = side.framework.gradient(one)
        flat = np.ascontiguousarray(side.view(one), np.float32).reshape(-1)  # float64 copies hold no more
        told = print_of(flat)
        constant = float(flat[0]) if flat.size and not told[1] else None
        given = np.zeros(flat.size) if gradient is None else np.ascontiguousarray(side.view(gradient)).reshape(-1)
        found[told, constant].append((flat, given))
    return found


# The gradients of paired layers' parameters, as both models' whole runs left them.


@dataclass(frozen=True, slots=True)
class Shared:
    """A parameter of a pair of layers: how far its gradients are apart, RMS, and the reference's RMS."""

    pair: CallPair
    name: str
    apart: float
    size: float


@dataclass(frozen=True, slots=True)
class Laid:
    """Where a layer of the port keeps a parameter of the reference's, and how."""

    name: str
    layout: PortLayout

    def arranged(self, gradients: Arrays) -> Array | None:
        """Return its gradient as the reference's layer has it."""
        found = gradients.get(self.name)
        return None if found is None else self.layout.back(found)


def as_reference(held: Arrays, laid: Mapping[str, Laid]) -> dict[str, Array]:
    """Return the tensors of a layer of the port, those that it keeps otherwise as the reference's layer keeps them."""
    return {**held, **{name: array for name, one in laid.items() if (array := one.arranged(held)) is not None}}


def values_of(side: LiveSide, layer: Model) -> Arrays:
    """Return a layer's parameters by torch's names, not copied; none where they cannot be told."""
    try:
        return dict(side.framework.parameters(layer, {}, shared=True))
    except WeightsError:
        return {}


def laid_otherwise(ours: Arrays, theirs: Arrays) -> dict[str, Laid]:
    """Return how a layer of the port keeps each parameter of the reference's that it keeps otherwise: their values tell."""
    found: dict[str, Laid] = {}
    same = {name for name, one in ours.items() if name in theirs and equal(one, theirs[name])}
    rest = {name: other for name, other in theirs.items() if name not in same}
    for name, values in ((name, one) for name, one in ours.items() if name not in same):
        # Which array holds the same values in another layout: the one of that name, or the only one.
        shape, told = values.shape, list[Laid]()
        for other, array in ((other, one) for other, one in rest.items() if one.size == values.size):
            turned = [PortLayout(shape, shape, axes, shape) for axes in orders(shape, array.shape)]
            fitting = turned if shape == array.shape else layouts(shape, array.shape)
            told += [Laid(other, layout) for layout in fitting if equal(layout.apply(values), array)]
        told = [one for one in told if one.name == name] or told
        if len({one.name for one in told}) == 1:
            found[name] = told[0]
    return found


def users_of(layers: Iterable[Model]) -> Counter[int]:
    """Return how many layers have a parameter themselves, by its id."""
    # Both frameworks keep a layer's own ones so.
    return Counter(id(one) for layer in layers for one in layer._parameters.values() if one is not None)  # noqa: SLF001


def has_own_weight(layer: Model, kinds: Container[str], users: Mapping[int, int]) -> bool:
    """Tell whether a layer is one of some kinds of the framework's, with a weight of its own that no other layer has."""
    own = frameworks_own(layer) and type(layer).__name__.lower() in kinds
    return own and users.get(id(layer._parameters.get("weight"))) == 1  # noqa: SLF001


def large_weights(
    sides: Sides, models: tuple[Model, Model], pairs: Iterable[LayerPair]
) -> tuple[list[LargeWeight], list[LargeWeight]]:
    """Return the weights of both sides' own linear layers and convolutions that are large, trained and used by one layer."""
    ours: list[LargeWeight] = []
    theirs: list[LargeWeight] = []
    layers, port_layers = (dict(side.layers(model)) for side, model in zip(sides, models, strict=True))
    users = users_of([*layers.values(), *port_layers.values()])
    for pair in pairs:
        both: list[Model] = [layers.get(pair.reference), port_layers.get(pair.port)]
        if not all(has_own_weight(one, PROJECTED, users) and not has_hooks(one) for one in both):  # hooks may use it
            continue
        one, other = (layer.weight for layer in both)
        shape, port_shape, turned = tuple(one.shape), tuple(other.shape), one.ndim == 2
        trained = sides.reference.takes_gradient(one) and sides.port.takes_gradient(other)
        if prod(shape) >= LARGE and shape == (port_shape[::-1] if turned else port_shape) and trained:
            ours.append(LargeWeight(name=pair.reference, path=pair.reference, turned=False))
            theirs.append(LargeWeight(name=pair.reference, path=pair.port, turned=turned))
    return ours, theirs


class SharedParameters:
    """Compares them once, before layers are run again and overwrite them.

    Raises:
        NotHeld: such gradients differ.
    """

    def __init__(self, models: BothModels, pairs: Iterable[CallPair], projected: tuple[Arrays, Arrays]) -> None:
        ours, theirs = projected
        # How far the gradients of weights are apart, relative, and the RMS of the reference's, by projections of both.
        found = {name: (relative(one, theirs[name]), rms(one)) for name, one in ours.items() if name in theirs}
        close = all(apart <= CONSTANT and size < inf for apart, size in found.values())
        if not close or found.keys() != ours.keys() | theirs.keys():
            raise NotHeld
        self._models, self._projected = models, found
        self._found: list[Shared] = []
        self._layouts: dict[int, Mapping[str, Laid]] = {}
        self._largest = {pair.port.number: self._compare(pair) for pair in pairs}

    def largest(self, pair: CallPair) -> float | None:
        """Return how far the gradients of a pair's parameters are apart, relative; None where there are none."""
        return self._largest.get(pair.port.number)

    def beyond(self, tolerance: float, share: float = SAME_SINGLE) -> Sequence[Shared]:
        """Return those that are further apart than that; a gradient below a share of the largest has no scale of its own."""
        least = share * max((one.size for one in self._found), default=0.0)
        found = []
        for one in (each for each in self._found if not each.apart <= tolerance * max(each.size, least)):
            largest = max(other.size for other in self._found if other.pair is one.pair)
            # Else it is nothing but the rounding of terms that cancel, with constants in float32.
            if not (one.size <= SAME_SINGLE * largest and one.apart <= CONSTANT * largest):
                found.append(one)
        return found

    def apart(self) -> float:
        """Return how far the gradients of a parameter are apart at most, relative; inf where none could be compared."""
        least = SAME_SINGLE * max((one.size for one in self._found), default=0.0)
        sizes = [(one.apart, max(one.size, least)) for one in self._found]
        return max((apart / size if size else (inf if apart else 0.0) for apart, size in sizes), default=inf)

    def unlike(self, pairs: Iterable[CallPair], tolerance: float) -> Iterator[Shared]:
        """Yield the parameters that no pair of layers has and whose gradients differ, or only one side has: containers' own ones.

        Their counterparts have equal values. Each is told with the innermost of the ``pairs`` around it.
        """
        doubles = [(one.side, one.double.whole) for one in self._models if one.double is not None]
        if len(doubles) < len(self._models):
            return
        least = SAME_SINGLE * max((one.size for one in self._found), default=0.0)
        compared = {join(one.pair.reference.path, one.name) for one in self._found}
        ours, theirs = (values_of(side, model) for side, model in doubles)
        left = {name: one for name, one in ours.items() if name not in compared}
        if not left:
            return
        laid = laid_otherwise(left, theirs)
        gradients, port_gradients = (side.parameter_gradients(model) or {} for side, model in doubles)
        holders = sorted(pairs, key=lambda pair: len(pair.reference.path), reverse=True)
        around = {f"{pair.reference.path}." if pair.reference.path else "": pair for pair in holders}
        for name, values in left.items():
            if name not in laid and not (name in theirs and equal(values, theirs[name])):
                continue
            one = gradients.get(name)
            other = laid[name].arranged(port_gradients) if name in laid else port_gradients.get(name)
            one = np.zeros_like(other) if one is None and other is not None else one
            other = np.zeros_like(one) if other is None and one is not None else other
            path, pair = next(((path, one) for path, one in around.items() if name.startswith(path)), ("", None))
            if one is None or other is None or pair is None or one.shape != other.shape:
                continue
            apart, size = distance(one, other), rms(one)
            if apart > tolerance * max(size, least, rms(other)):
                yield Shared(pair, name.removeprefix(path), apart, size)

    def alike(self, tolerance: float) -> bool:
        """Tell whether the gradients of all parameters agree: layer by layer, or else however models arrange them.

        Raises:
            NotHeld: projections do not tell.
        """
        if self._found and not self.beyond(tolerance):
            return True
        if self._projected:
            if self.beyond(CONSTANT):
                raise NotHeld
            return False
        return alike(self._models, tolerance)

    def _compare(self, pair: CallPair) -> float | None:
        calls = tuple(zip(self._models, pair.calls, strict=True))
        ours, theirs = (one.side.parameter_gradients(call.layer) for one, call in calls)
        weight = self._projected.get(pair.reference.path)
        if ours is None or theirs is None or not (ours or theirs or weight):
            return None
        if not all(one.side.parameters(call.layer) for one, call in calls):  # frozen: the pre-flight tells
            return None
        if weight is not None:
            apart, size = weight
            self._found.append(Shared(pair, "weight", apart * size, size))
            return max(apart, self._apart(pair, ours, theirs, size))
        # Of a layer that is cut off none is as good as zeros.
        ours = ours or {name: np.zeros_like(one) for name, one in theirs.items()}
        theirs = theirs or {name: np.zeros_like(one) for name, one in ours.items()}
        return self._apart(pair, ours, theirs)

    def _apart(self, pair: CallPair, ours: Arrays, theirs: Arrays, largest: float = 0.0) -> float:
        def between(one: Array, other: Array | None) -> float | None:
            return None if other is None else distance(one, squeezed_as(other, one.shape))

        sizes = {name: rms(one) for name, one in ours.items()}
        least, found = SAME_SINGLE * max([largest, *sizes.values()]), []
        for name, one in ours.items():
            apart, size = between(one, theirs.get(name)), max(sizes[name], least)
            if (apart is None or apart > ROUGH * size) and name in (layouts := self.layouts(pair)):
                again = between(one, layouts[name].arranged(theirs))
                apart = apart if again is None else again
            if apart is not None:
                self._found.append(Shared(pair, name, apart, sizes[name]))
                found.append(0.0 if not apart else apart / size if size else inf)
        return max(found, default=0.0)

    def known_layouts(self, pair: CallPair) -> Mapping[str, Laid]:
        """Return the same as `layouts`, or nothing where the gradients gave no reason to ask."""
        return self._layouts.get(pair.port.number, {}) if self._largest else self.layouts(pair)

    def layouts(self, pair: CallPair) -> Mapping[str, Laid]:
        """Return how the port's layer keeps each parameter of the reference's that it keeps otherwise: their values tell.

        Nothing of a container, whose layers are in pairs of their own.
        """
        number = pair.port.number
        if pair.whole:
            return {}
        if number not in self._layouts:
            calls = zip(self._models, pair.calls, strict=True)
            self._layouts[number] = laid_otherwise(*(values_of(one.side, call.layer) for one, call in calls))
        return self._layouts[number]


# The errors of the gradients that a layer gives its inputs and its parameters.


ALONE = 1 - EXPLAINED
"""Relative gradient difference that a cause may leave: one layer's against the whole run's."""


def measure_gradients(
    reruns: PairReruns, kept: Mapping[str, Laid], *, truths: Arrays | None, known: float | None, double: bool
) -> Iterator[Measured]:
    """Measure the gradients that a layer gives its inputs, and its parameters.

    ``known`` is how far they are apart in float64 at most, None where the layers must be run again to tell; ``double`` says that the port runs in float64.
    ``truths`` are those of the reference's parameters in its float64 run, None where several calls added to them; ``kept`` says
    which parameters the port's layer keeps in another layout.
    """
    slow, fast = reruns.singles
    slow64 = None if known is not None else reruns.port64
    moved = None if double or slow64 is not None else reruns.moved
    for link in reruns.inputs:
        truth = reruns.gradient(reruns.pair.reference.inputs[link.ours])
        own = None if slow is None else slow.inputs[link.ours]
        alone = reruns.reference64 if known is None and (truth is None or slow is None) else None
        made = own if alone is None else alone.inputs[link.ours]
        if truth is not None and made is not None and not relative(truth, made) <= ALONE:
            truth = None  # other code takes the tensor too, and adds to its gradient
        if truth is None and known is None and reruns.reference64 is not None:
            truth = reruns.reference64.inputs[link.ours]
        port = None if fast is None else fast.inputs[link.theirs]
        port64 = None if slow64 is None else slow64.inputs[link.theirs]
        if truth is None or (port is None and port64 is None):
            continue
        ours, theirs = link.layout.shared, link.layout.back_shared
        shaken = None if moved is None else moved.inputs[link.ours]
        own, shaken = (None if one is None else ours(one) for one in (own, shaken))
        exact, port = known if port64 is None else theirs(port64), None if port is None else theirs(port)
        what = f"gradient of input {reruns.pair.port.input_names[link.theirs]}"
        yield measure(what, ours(truth), own, port, exact, shaken)
    if truths is None and known is None and reruns.reference64 is not None:
        truths = reruns.reference64.parameters
    least = SAME_SINGLE * max((rms(truth) for truth in (truths or {}).values()), default=0.0)
    for name, truth in (truths or {}).items():
        port, port64 = (_gradient(name, one, kept, truth.shape) for one in (fast, slow64))
        if port is None and port64 is None:
            continue
        if port64 is not None and not frameworks_own(reruns.pair.port.layer):
            arranged = relative(np.sort(truth, axis=None), np.sort(port64, axis=None))
            if arranged <= SAME_DOUBLE < relative(truth, port64):
                yield Measured(f"gradient of {name}", arranged)
                continue
        given = partial(_gradient, name, kept={}, shape=truth.shape)
        exact, terms = known if port64 is None else port64, reruns.terms(truth)
        measured = partial(measure, f"gradient of {name}", truth, given(slow), port, exact, least=least, terms=terms)
        found = measured(given(moved))
        if moved is None and classify([found])[0] is Closeness.LOWER_PRECISION:
            # A sum that is zero but for rounding is as coarse as its terms are many.
            found = measured(given(reruns.moved))
        yield found


def _gradient(name: str, rerun: Rerun | None, kept: Mapping[str, Laid], shape: tuple[int, ...]) -> Array | None:
    found = None if rerun is None else rerun.parameters
    if found is None:
        return None
    made = kept[name].arranged(found) if name in kept else found.get(name)
    return None if made is None else squeezed_as(made, shape)
