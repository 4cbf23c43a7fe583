"""One layer, and a pair of layers, run again on given tensors, apart from their models."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np

from tipchain.errors import class_and_line
from tipchain.explain.locate.differences import PortLayout
from tipchain.explain.locate.matching import CallPair, LayoutStep, TensorLink
from tipchain.explain.locate.runs import as_float
from tipchain.explain.locate.trace import Call, Store, StoredArray, Trace, TracedValue, put_back, take_out
from tipchain.framework_types import Array, Model, Nested, Options, Tensor
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draws

# One layer run again on given tensors, forward and backward, apart from its model.


class NotReplayed(Exception):  # noqa: N818  (it is no error: the layer cannot be compared by itself)
    """A layer raised when it was run apart from its model; the message has the error's class and first line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """The results of a layer.

    Attributes:
        outputs: its output tensors' values.
        inputs: the gradient of each input; None where there is none.
        parameters: the gradients of its parameters under torch's names and in torch's layout, as seen from the layer.
    """

    outputs: tuple[Array, ...]
    inputs: tuple[Array | None, ...] = ()
    parameters: Mapping[str, Array] | None = None


def replay(
    side: LiveSide,
    layer: Model,
    call: Call,
    inputs: Sequence[Array],
    cotangents: Sequence[Array | None] = (),
    *,
    double: bool,
    seed: int,
    then: Sequence[Callable[[Tensor], Tensor]] = (),
) -> Replayed:
    """Call a layer as ``call`` did, with other tensors.

    Args:
        side: the layer's framework.
        layer: the layer; its gradients and running statistics are changed.
        call: whose arguments other than tensors are used.
        inputs: an array for each of the call's tensors; floats are given in float64 or float32.
        cotangents: for each output, what backward starts from; None or nothing: not from that one.
        double: whether ``layer`` is in float64.
        seed: of random numbers, where the call's own are not known.
        then: what the layer's result is given to, one after the other.

    Raises:
        NotReplayed: the layer does not run apart from its model.
    """
    backward = any(one is not None for one in cotangents)
    side.seed(seed)
    try:
        with side.precision(double=double), side.randomness(drawn_again(call, seed)), side.recording(gradient=backward):
            leaves = [side.tensor(as_float(array, double=double), gradient=backward) for array in inputs]
            leaves = [leaves[number] for number in _first_given(call, inputs)]
            # A layer may write to what it is given, which a leaf does not allow.
            given = [one.clone() if side.takes_gradient(one) else one for one in leaves]
            args, kwargs = put_back(call.arguments, given)
            result = layer(*args, **kwargs)
            for one in then:
                result = one(take_out(result, side.is_tensor)[1][0])
            _, outputs, _ = take_out(result, side.is_tensor)
            values = tuple(side.view(one) for one in outputs)
            if not backward:
                return Replayed(outputs=values)
            side.clear_gradients(layer)
            parts = [
                (one, side.tensor(as_float(cotangent, double=double), gradient=False))
                for one, cotangent in zip(outputs, cotangents, strict=False)
                if cotangent is not None and side.takes_gradient(one)
            ]
            if parts:
                side.products(*zip(*parts, strict=True))
            gradients = [one.grad if side.takes_gradient(one) else None for one in leaves]
            return Replayed(
                outputs=values,
                inputs=tuple(None if one is None else side.view(one) for one in gradients),
                parameters=side.parameter_gradients(layer),
            )
    except Exception as error:  # a user's layer may raise anything
        raise NotReplayed(class_and_line(error)) from error


def _first_given(call: Call, inputs: Sequence[Array]) -> list[int]:
    """Return for each input the number of the first that is the same tensor: its gradients add up."""
    values, same = call.inputs, len(call.inputs) == len(inputs)
    return [
        next(
            (
                one
                for one in range(number)
                if same and values[one] is values[number] and np.array_equal(inputs[one], array)
            ),
            number,
        )
        for number, array in enumerate(inputs)
    ]


def drawn_again(call: Call, seed: int) -> Draws:
    """Return the random numbers that a call drew when it was traced; fresh ones if it drew none."""
    return Draws(seed) if call.draws is None or not call.drawn else call.draws.again(call.drawn.start)


# What both layers of a pair are given when they are run again, and what their results are held against.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayInputs:
    """The reference's tensors around one call, as its float64 run left them.

    Attributes:
        pair: the calls.
        inputs: which input of the reference's is which of the port's.
        outputs: likewise.
        take: returns what is held of a tensor.
        forward: no backward is run.
    """

    pair: CallPair
    inputs: Sequence[TensorLink]
    outputs: Sequence[TensorLink]
    take: Callable[[StoredArray], Array]
    forward: bool = False

    @property
    def comparable(self) -> bool:
        """Whether both calls have the same arguments."""
        return bool(self.inputs) or not (self.pair.reference.inputs and self.pair.port.inputs)

    @property
    def backward(self) -> bool:
        """Whether there is anything for backward to start from."""
        return not self.forward and any(
            self.pair.reference.outputs[link.ours].gradient is not None for link in self.outputs
        )

    def given(self) -> tuple[list[Array], list[Array]]:
        """Return the layers' inputs, the port's with its order of axes.

        What the reference's call has nothing for, the port's layer is given as it was.
        """
        ours = [self.take(value.stored) for value in self.pair.reference.inputs]
        by_number = {link.theirs: link.layout.apply(ours[link.ours]) for link in self.inputs}
        return ours, [
            by_number[number] if number in by_number else self.take(value.stored)
            for number, value in enumerate(self.pair.port.inputs)
        ]

    def output_name(self, link: TensorLink) -> str:
        """Return the name of an output in messages."""
        return f"output {self.pair.port.output_names[link.theirs]}"

    def result(self, number: int) -> Array:
        """Return one of the reference's outputs."""
        return self.take(self.pair.reference.outputs[number].stored)

    def gradient(self, number: int) -> Array | None:
        """Return the gradient of one of the reference's inputs, None where it has none."""
        return self._gradient(self.pair.reference.inputs[number])

    def cotangents(self) -> tuple[list[Array | None], list[Array | None]]:
        """Return the gradients that backward starts from, by output; none where none is run."""
        ours: list[Array | None] = [None] * len(self.pair.reference.outputs)
        theirs: list[Array | None] = [None] * len(self.pair.port.outputs)
        for link in () if self.forward else self.outputs:
            gradient = self._gradient(self.pair.reference.outputs[link.ours])
            if gradient is not None:
                ours[link.ours], theirs[link.theirs] = gradient, link.layout.apply_gradient(gradient)
        return ours, theirs

    def _gradient(self, value: TracedValue) -> Array | None:
        return None if value.gradient is None else self.take(value.gradient)


# A pair of layers run again on the reference's input, each precision at most once.


@dataclass(frozen=True, slots=True)
class Models:
    """Copies of one model's layers, by path.

    Attributes:
        side: its framework.
        model: the user's.
        training: the mode of fresh copies; None: each layer's own.
        double: in float64; None where it does not run so.
    """

    side: LiveSide
    model: Model
    training: bool | None
    double: Doubles | None

    def fresh(self, path: str, *, double: bool = False) -> Model:
        """Return a new copy of a layer, in float32 or float64."""
        switched = self.training is not None and self.model.training != self.training
        layer = dict(self.side.layers(self.model))[path]
        return self.side.copied(layer, double=double, training=self.training if switched else None)

    def layer(self, path: str) -> Model:
        """Return the layer of the copy in float64, or a new one in float32 where there is none."""
        return self.fresh(path) if self.double is None else self.double[path]


class BothModels(NamedTuple):
    """Copies of the layers of both."""

    reference: Models
    port: Models

    @property
    def sides(self) -> Sides:
        """Their frameworks."""
        return Sides(self.reference.side, self.port.side)


class PairReplays:
    """Both layers' results for the reference's inputs."""

    def __init__(self, models: BothModels, fed: ReplayInputs, seed: int) -> None:
        self.fed, self._models, self._seed = fed, models, seed

    @cached_property
    def _given(self) -> tuple[list[Array], list[Array]]:
        return self.fed.given()

    @cached_property
    def _cotangents(self) -> tuple[list[Array | None], list[Array | None]]:
        return self.fed.cotangents()

    @cached_property
    def moved(self) -> Replayed | None:
        """The reference's layer, its inputs and cotangents a unit in float32's last place up or down by a coin.

        In float64, if it runs so.
        """
        generator = np.random.default_rng(self._seed)

        def moved(one: Array) -> Array:
            if one.dtype.kind != "f":
                return one
            coins = generator.choice((-1.0, 1.0), one.shape)
            return np.asarray(one + np.spacing(np.abs(one).astype(np.float32)) * coins)

        (ours, _), (starts, _) = self._given, self._cotangents
        cotangents = [None if one is None else moved(one) for one in starts]
        double = self._models.reference.double is not None
        return self._run(0, [moved(one) for one in ours], double=double, cotangents=cotangents)

    def terms(self, parameter: Array) -> int:
        """Return how many terms a kernel adds up for an element of a parameter's gradient."""
        ours, _ = self._cotangents
        size = max((one.size for one in ours if one is not None), default=1)
        return max(1, size // max(parameter.shape[0] if parameter.ndim else 1, 1))

    @cached_property
    def reference32(self) -> Replayed | None:
        """The reference's layer in float32, if the port's is run so."""
        return self._run(0, double=False) if self._in_single else None

    @cached_property
    def port32(self) -> Replayed | None:
        """The port's layer in float32; None of a container that runs in float64."""
        return self._run(1, double=False) if self._in_single else None

    @property
    def _in_single(self) -> bool:
        return not self.fed.pair.whole or self._models.port.double is None

    @cached_property
    def reference64(self) -> Replayed | None:
        """The reference's layer in float64, for gradients that its run does not tell."""
        return self._run(0, double=True)

    @cached_property
    def port64(self) -> Replayed | None:
        """The port's layer in float64, if it runs so: alone, where the reference's model does and the port's does not."""
        if self._models.port.double is not None or self._models.reference.double is None:
            return self._run(1, double=True)
        with suppress(NotReplayed):
            return self._run(1, double=True, alone=True)
        return None

    def _run(
        self,
        number: Literal[0, 1],
        given: Sequence[Array] | None = None,
        *,
        double: bool,
        alone: bool = False,
        cotangents: Sequence[Array | None] | None = None,
    ) -> Replayed | None:
        models, call = self._models[number], (self.fed.pair.reference, self.fed.pair.port)[number]
        if double and not alone and models.double is None:
            return None
        layer = models.layer if double and not alone else partial(models.fresh, double=double)
        return replay(
            models.side,
            layer(call.path),
            call,
            self._given[number] if given is None else given,
            self._cotangents[number] if cotangents is None else cotangents,
            double=double,
            seed=self._seed,
            then=pair_steps(models.side, layer, self.fed.pair.then[number]),
        )


def pair_steps(
    side: LiveSide, layer: Callable[[str], Model], steps: Sequence[LayoutStep]
) -> Sequence[Callable[[Tensor], Tensor]]:
    """Return the functions called after a layer; ``layer`` returns one by its path."""
    return [getattr(side.functional, step.name) if step.function else layer(step.name) for step in steps]


CallKey = tuple[str, int]
"""A layer's path, and which call of it."""


@contextmanager
def each_call(
    side: LiveSide, model: Model, enter: Callable[[CallKey, Nested], None], leave: Callable[[CallKey, Nested], Nested]
) -> Iterator[None]:
    """Hand over each layer's call: nested inputs, and the result, which ``leave`` may replace."""
    paths, turns = {id(layer): path for path, layer in side.layers(model)}, Counter[str]()
    begun: list[CallKey] = []

    def before(layer: Model, args: tuple[Nested, ...], kwargs: Options) -> None:
        path = paths[id(layer)]
        begun.append((path, turns[path]))
        turns[path] += 1
        enter(begun[-1], (args, dict(kwargs)))

    def after(layer: Model, result: Nested) -> Nested:
        while begun[-1][0] != paths[id(layer)]:  # a call inside that raised, and was caught
            begun.pop()
        return leave(begun.pop(), result)

    with ExitStack() as stack:
        for _, layer in side.layers(model):
            stack.callback(side.watch(layer, before, after))
        yield


def with_results(side: LiveSide, result: Nested, changes: Mapping[int, Callable[[Tensor], Tensor]]) -> Nested:
    """Return a call's result with some of its tensors changed; None where none is, as `each_call` takes it."""
    if not changes or not (side.is_tensor(result) or isinstance(result, tuple | list)):
        return None
    structure, tensors, _ = take_out(result, side.is_tensor)
    for number, change in changes.items():
        tensors[number] = change(tensors[number])
    return put_back(structure, tensors)


def run_again(
    models: Models,
    root: Call,
    store: Store,
    seed: int,
    leave: Callable[[CallKey, Nested], Nested],
    starts: Callable[[Sequence[Tensor]], Sequence[tuple[Tensor, Tensor]]],
    *,
    enter: Callable[[CallKey, Nested], None] = lambda *_: None,
    gradient: bool = True,
) -> None:
    """Rerun a whole model on its inputs, forward and backward, with its layers' results replaced.

    Args:
        models: its copies.
        root: its call of the whole model.
        store: where tensors are.
        seed: of random numbers.
        leave: given which call it was, and its result, returns what stands in place of that; None: it stays.
        starts: given the model's output tensors, returns those that backward starts from, each with its gradient.
        enter: given which call it is, and what goes in.
        gradient: whether there is a backward.

    Raises:
        Exception: what the model raises.
    """
    side, double = models.side, models.double is not None
    model = models.layer("")
    with ExitStack() as stack:
        stack.enter_context(side.precision(double=double))
        stack.enter_context(side.randomness(drawn_again(root, seed)))
        stack.enter_context(side.recording(gradient=gradient))
        stack.enter_context(each_call(side, model, enter, leave))
        side.seed(seed)
        side.clear_gradients(model)
        given = [side.tensor(as_float(store.get(one.stored), double=double), gradient=False) for one in root.inputs]
        args, kwargs = put_back(root.arguments, given)
        parts = starts(take_out(model(*args, **kwargs), side.is_tensor)[1])
        if parts:
            side.products(*zip(*parts, strict=True))


class Corrections:
    """The reference's tensors that a port's calls are given, or give, in place of their own: where the port goes wrong."""

    def __init__(self, side: LiveSide, store: Store) -> None:
        self._side, self._store = side, store
        self._given: dict[CallKey, dict[int, tuple[PortLayout, StoredArray]]] = defaultdict(dict)
        self._made: dict[CallKey, dict[int, tuple[PortLayout, StoredArray]]] = defaultdict(dict)

    def at_exit(self, pair: CallPair, links: Sequence[TensorLink]) -> None:
        """Let a call return the reference's results."""
        for link in links:
            found = link.layout, pair.reference.outputs[link.ours].stored
            self._made[pair.port.path, pair.port.turn][link.theirs] = found

    def at_entry(self, pair: CallPair, links: Sequence[TensorLink], trace: Trace) -> None:
        """Give a call, and those around it with the same tensor, the reference's inputs."""
        for link in links:
            value = pair.port.inputs[link.theirs]
            first = next((one for one in trace.calls if value in one.inputs), pair.port)
            found = link.layout, pair.reference.inputs[link.ours].stored
            self._given[first.path, first.turn][first.inputs.index(value)] = found

    @contextmanager
    def applied(self, model: Model) -> Iterator[None]:
        """Apply them to one run of the model, which records nothing for backward."""
        side = self._side

        def enter(key: CallKey, given: Nested) -> None:
            tensors = take_out(given, side.is_tensor)[1]
            for number, found in self._given.get(key, {}).items():
                self._write(tensors[number], *found)  # what else takes this tensor is given the reference's, too

        def leave(key: CallKey, result: Nested) -> Nested:
            wanted = self._made.get(key, {})
            return with_results(side, result, {number: partial(written, found) for number, found in wanted.items()})

        def written(found: tuple[PortLayout, StoredArray], made: Tensor) -> Tensor:
            made = made.clone()
            self._write(made, *found)
            return made

        with each_call(side, model, enter, leave):
            yield

    def _write(self, tensor: Tensor, layout: PortLayout, stored: StoredArray) -> None:
        self._side.assign(tensor, layout.apply(self._store.get(stored)))


class Doubles:
    """The layers of a model's float64 copy by path; asked for one, it has its values."""

    def __init__(self, side: LiveSide, made: Model, model: Model) -> None:
        self._side, self._made, self._model = side, made, model
        self._layers = dict(side.layers(made))
        self._versions = self._written()
        self._take_up: Callable[[Model], None] | None = None

    def lay_aside(self) -> None:
        """Free each layer's values until it is asked for; `whole` has gradients and shapes all the same.

        Where forward wrote to a parameter, the copy alone has its values: then nothing is freed.
        """
        if self._take_up is None and self._written() == self._versions:
            self._take_up = self._side.lay_aside(self._made, self._model)

    def _written(self) -> list[int]:
        return [self._side.version(one) for one in self._made.parameters()]

    @property
    def whole(self) -> Model:
        """The model's copy, for its gradients and shapes."""
        return self._made

    def __getitem__(self, path: str) -> Model:
        if self._take_up is not None:
            self._take_up(self._layers[path])
        return self._layers[path]
