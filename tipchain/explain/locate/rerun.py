"""One side run again with something put in: other tensors, results of its layers, code; in float32 or float64, forward or backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np

from tipchain.errors import class_and_line
from tipchain.explain.locate.differences import PortLayout
from tipchain.explain.locate.matching import CallPair, LayoutStep, TensorLink
from tipchain.explain.locate.trace import (
    Call,
    CallKey,
    NotHeld,
    Store,
    StoredArray,
    Trace,
    TracedValue,
    each_call,
    put_back,
    take_out,
    with_results,
)
from tipchain.framework_types import Array, Function, Model, Nested, Options, Tensor
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draws

Start = Callable[[Sequence[Tensor]], Sequence["Array | None"]]
"""Returns the gradient that backward starts from at each output, None where it does not, given the outputs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rerun:
    """The results of a run.

    Attributes:
        outputs: its output tensors' values.
        inputs: the gradient of each input; None where there is none.
        parameters: the gradients of a layer's parameters under torch's names and in torch's layout, as seen from the layer.
    """

    outputs: tuple[Array, ...]
    inputs: tuple[Array | None, ...] = ()
    parameters: Mapping[str, Array] | None = None


@contextmanager
def conditions(
    side: LiveSide, *, double: bool, seed: int, draws: Draws, gradient: bool, casts: bool = False
) -> Iterator[None]:
    """Let a side run in float64 or float32, with known random numbers, recorded for backward or not.

    ``casts`` to float32 are left alone if asked for; ``seed`` is of numbers that ``draws`` does not reach.
    """
    side.seed(seed)
    with side.precision(double=double, casts=casts), side.randomness(draws), side.recording(gradient=gradient):
        yield


NORMS = ("torch.nn.modules.batchnorm", "torch.nn.modules.instancenorm", "paddle.nn.layer.norm")
"""Modules of the frameworks' norms: momentum tells their treatment of statistics."""


def buffers_of(side: LiveSide, model: object) -> dict[str, Array]:
    """Return copies of a model's buffers by name, but for those of the frameworks' norms and of classes made of them."""
    found: dict[str, Array] = {}
    for path, layer in side.layers(model):
        if any(one.__module__.startswith(NORMS) for one in type(layer).__mro__):
            continue
        for name, tensor in layer._buffers.items():  # noqa: SLF001  (both frameworks keep a layer's own ones so)
            if tensor is not None:
                found[f"{path}.{name}" if path else name] = np.array(side.array(tensor))
    return found


@contextmanager
def kept_buffers(side: LiveSide, model: Model) -> Iterator[None]:
    """Give a model its buffers and running statistics back as the context ends, so that it can run again as it did."""
    held: list[tuple[dict[str, Tensor], str, Tensor, Array]] = []
    for _, layer in side.layers(model):
        buffers, parameters = layer._buffers, layer._parameters  # noqa: SLF001
        statistics = {name: parameters.get(name) for name in ("_mean", "_variance")}  # Paddle's norms keep theirs there
        own = {**buffers, **statistics}.items()
        held += [(buffers, name, one, np.array(side.array(one))) for name, one in own if one is not None]
    try:
        yield
    finally:
        for buffers, name, tensor, values in held:
            if name in buffers:
                buffers[name] = tensor
            if side.array(tensor).tobytes() != values.tobytes():
                side.framework.assign(tensor, values)


def changed_buffers(before: Mapping[str, Array], after: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names of the arrays that changed."""
    return tuple(name for name, array in after.items() if name in before and array.tobytes() != before[name].tobytes())


def rerun(
    side: LiveSide,
    called: Function,
    arguments: Nested,
    inputs: Sequence[Array],
    start: Start | None = None,
    *,
    double: bool,
    seed: int = 0,
    draws: Draws | None,
    of_inputs: bool = False,
    same: Sequence[int] = (),
) -> Rerun:
    """Run a layer, a model or another function of a side with some tensors, and backward where it has a start.

    Args:
        side: the side.
        called: what is called; gradients are added to those that its parameters have.
        arguments: ``(args, kwargs)`` with `Hole` in place of tensors.
        inputs: an array for each of these; floats are given in float64 or float32.
        start: what backward starts from; None: there is none.
        double: in float64.
        seed: of random numbers that ``draws`` does not reach.
        draws: random numbers; None where the `conditions` are set around this.
        of_inputs: inputs of floats take gradients.
        same: for each input the number of the first that is the same tensor, where some are.

    Raises:
        Exception: whatever is called raises.
    """
    gradient = of_inputs or start is not None
    with nullcontext() if draws is None else conditions(side, double=double, seed=seed, draws=draws, gradient=gradient):
        leaves = [side.tensor(as_float(array, double=double), gradient=of_inputs) for array in inputs]
        leaves = [leaves[number] for number in same] if same else leaves
        # What is called may write to what it is given, which a leaf does not allow.
        given = [one.clone() if side.takes_gradient(one) else one for one in leaves]
        args, kwargs = put_back(arguments, given)
        outputs = take_out(called(*args, **kwargs), side.is_tensor)[1]
        values = tuple(side.view(one) for one in outputs)
        run_backward(side, outputs, () if start is None else start(outputs), double=double)
        gradients = (one.grad if side.takes_gradient(one) else None for one in leaves)
        return Rerun(outputs=values, inputs=tuple(None if one is None else side.view(one) for one in gradients))


def run_backward(
    side: LiveSide, outputs: Sequence[Tensor], cotangents: Sequence[Array | None], *, double: bool
) -> None:
    """Run backward from outputs, each with its gradient; None: not from that one. One that is there twice has both gradients."""
    sums: dict[int, tuple[Tensor, Array]] = {}
    for one, cotangent in zip(outputs, cotangents, strict=False):
        if cotangent is not None and side.takes_gradient(one):
            sums[id(one)] = one, sums[id(one)][1] + cotangent if id(one) in sums else cotangent
    if sums:
        ends = [(one, side.tensor(as_float(array, double=double), gradient=False)) for one, array in sums.values()]
        side.products(*zip(*ends, strict=True))


def as_float(array: Array, *, double: bool) -> Array:
    """Return floats in float64 or float32, anything else as it is."""
    if not np.issubdtype(array.dtype, np.floating):
        return array
    return array.astype(np.float64 if double else np.float32)


def drawn_again(call: Call, seed: int) -> Draws:
    """Return the random numbers that a call drew when it was traced; fresh ones if it drew none."""
    return Draws(seed) if call.draws is None or not call.drawn else call.draws.again(call.drawn.start)


# One layer run again on given tensors, forward and backward, apart from its model.


class NotReplayed(Exception):  # noqa: N818  (it is no error: the layer cannot be compared by itself)
    """A layer raised when it was run apart from its model; the message has the error's class and first line."""


def rerun_layer(
    side: LiveSide,
    layer: Model,
    call: Call,
    inputs: Sequence[Array],
    cotangents: Sequence[Array | None] = (),
    *,
    double: bool,
    seed: int,
    then: Sequence[Function] = (),
) -> Rerun:
    """Call a layer as ``call`` did, with other tensors.

    Args:
        side: the layer's framework.
        layer: the layer; its gradients and running statistics are changed.
        call: whose arguments other than tensors are used.
        inputs: an array for each of the call's tensors.
        cotangents: for each output, what backward starts from; None or nothing: not from that one.
        double: whether ``layer`` is in float64.
        seed: of random numbers, where the call's own are not known.
        then: what the layer's result is given to, one after the other.

    Raises:
        NotReplayed: the layer does not run apart from its model.
    """
    backward = any(one is not None for one in cotangents)
    values, alike = call.inputs, len(call.inputs) == len(inputs)
    same = []  # of each input the number of the first that is the same tensor: its gradients add up
    for number, array in enumerate(inputs):
        before = (n for n in range(number) if alike and values[n] is values[number])
        same.append(next((n for n in before if np.array_equal(inputs[n], array)), number))

    def called(*args: Nested, **kwargs: Nested) -> Nested:
        result = layer(*args, **kwargs)
        for one in then:
            result = one(take_out(result, side.is_tensor)[1][0])
        return result

    def start(_: object) -> Sequence[Array | None]:
        side.clear_gradients(layer)
        return cotangents

    try:
        draws: Options = {"seed": seed, "draws": drawn_again(call, seed)}
        begin = start if backward else None
        made = rerun(side, called, call.arguments, inputs, begin, double=double, of_inputs=backward, same=same, **draws)
        return replace(made, parameters=side.parameter_gradients(layer)) if backward else made
    except Exception as error:  # a user's layer may raise anything
        raise NotReplayed(class_and_line(error)) from error


def steps_after(side: LiveSide, steps: Sequence[LayoutStep], layer: Callable[[str], Model]) -> list[Function]:
    """Return the functions called after a layer; ``layer`` returns one by its path."""

    def call(name: str, value: Tensor) -> Tensor:
        # Looked up when it is called: what stands in its place then is meant.
        return getattr(side.functional, name)(value)

    return [partial(call, step.name) if step.function else layer(step.name) for step in steps]


# A model's copies, and both of a pair's layers run again on the reference's tensors, each precision at most once.


@dataclass(frozen=True, slots=True)
class Models:
    """Copies of one model's layers, by path.

    Attributes:
        side: its framework.
        model: the user's.
        training: the mode of fresh copies.
        double: in float64; None where it does not run so.
    """

    side: LiveSide
    model: Model
    training: bool
    double: Doubles | None

    def fresh(self, path: str, *, double: bool = False) -> Model:
        """Return a new copy of a layer, in float32 or float64."""
        switched = self.model.training != self.training
        layer = dict(self.side.layers(self.model))[path]
        return self.side.copied(layer, double=double, training=self.training if switched else None)

    def layer(self, path: str) -> Model:
        """Return the layer of the copy in float64, or a new one in float32 where there is none."""
        return self.fresh(path) if self.double is None else self.double[path]

    def rerun(
        self,
        root: Call,
        store: Store,
        seed: int,
        leave: Callable[[CallKey, Nested], Nested],
        start: Start | None = None,
        enter: Callable[[CallKey, Nested], None] = lambda *_: None,
    ) -> Rerun | None:
        """Run the whole model on its inputs, with its layers' results replaced; None where it refuses what it is handed.

        Args:
            root: its call of the whole model.
            store: where tensors are.
            seed: of random numbers.
            leave: given which call it was, and its result, returns what stands in place of that; None: it stays.
            start: what backward starts from; None: there is none.
            enter: given which call it is, and what goes in.

        Raises:
            NotHeld: a tensor that is needed is not held.
        """
        model, inputs = self.layer(""), [store.get(one.stored) for one in root.inputs]
        self.side.clear_gradients(model)
        double, draws = self.double is not None, drawn_again(root, seed)
        try:
            with kept_buffers(self.side, model), each_call(self.side, model, enter, leave):
                return rerun(self.side, model, root.arguments, inputs, start, double=double, seed=seed, draws=draws)
        except NotHeld:
            raise
        except Exception:  # noqa: BLE001  (whatever a user's model raises)
            return None


class BothModels(NamedTuple):
    """Copies of the layers of both."""

    reference: Models
    port: Models

    @property
    def sides(self) -> Sides:
        """Their frameworks."""
        return Sides(self.reference.side, self.port.side)


@dataclass(eq=False)
class PairReruns:
    """Both layers' results for the reference's tensors around one call, as its float64 run left them.

    Attributes:
        models: the copies of both.
        pair: the calls.
        inputs: which input of the reference's is which of the port's.
        outputs: likewise.
        store: where tensors are.
        seed: of random numbers.
        forward: no backward is run.
    """

    models: BothModels
    pair: CallPair
    inputs: Sequence[TensorLink]
    outputs: Sequence[TensorLink]
    store: Store
    seed: int
    forward: bool = False

    @property
    def backward(self) -> bool:
        """Whether there is anything for backward to start from."""
        outputs = self.pair.reference.outputs
        return not self.forward and any(outputs[link.ours].gradient is not None for link in self.outputs)

    def output_name(self, link: TensorLink) -> str:
        """Return the name of an output in messages."""
        return f"output {self.pair.port.output_names[link.theirs]}"

    def gradient(self, value: TracedValue) -> Array | None:
        """Return the gradient of a tensor of the reference's, None where it has none."""
        return None if value.gradient is None else self.store.get(value.gradient)

    @cached_property
    def _given(self) -> tuple[list[Array], list[Array]]:
        """The layers' inputs, the port's with its order of axes.

        What the reference's call has nothing for, the port's layer is given as it was.
        """
        ours = [self.store.get(value.stored) for value in self.pair.reference.inputs]
        by_number = {link.theirs: link.layout.apply(ours[link.ours]) for link in self.inputs}
        alone = {n: one for n, one in enumerate(self.pair.port.inputs) if n not in by_number}
        by_number |= {number: self.store.get(one.stored) for number, one in alone.items()}
        return ours, [by_number[number] for number in range(len(self.pair.port.inputs))]

    @cached_property
    def _cotangents(self) -> tuple[list[Array | None], list[Array | None]]:
        """The gradients that backward starts from, by output; none where none is run."""
        ours: list[Array | None] = [None] * len(self.pair.reference.outputs)
        theirs: list[Array | None] = [None] * len(self.pair.port.outputs)
        for link in () if self.forward else self.outputs:
            gradient = self.gradient(self.pair.reference.outputs[link.ours])
            if gradient is not None:
                ours[link.ours], theirs[link.theirs] = gradient, link.layout.apply_gradient(gradient)
        return ours, theirs

    @cached_property
    def moved(self) -> Rerun | None:
        """The reference's layer, its inputs and cotangents a unit in float32's last place up or down by a coin.

        In float64, if it runs so.
        """
        generator = np.random.default_rng(self.seed)

        def moved(one: Array) -> Array:
            if one.dtype.kind != "f":
                return one
            coins = generator.choice((-1.0, 1.0), one.shape)
            return np.asarray(one + np.spacing(np.abs(one).astype(np.float32)) * coins)

        (ours, _), (starts, _) = self._given, self._cotangents
        cotangents = [None if one is None else moved(one) for one in starts]
        double = self.models.reference.double is not None
        return self.run(0, [moved(one) for one in ours], double=double, cotangents=cotangents)

    def terms(self, parameter: Array) -> int:
        """Return how many terms a kernel adds up for an element of a parameter's gradient."""
        ours, _ = self._cotangents
        size = max((one.size for one in ours if one is not None), default=1)
        return max(1, size // max(parameter.shape[0] if parameter.ndim else 1, 1))

    @cached_property
    def singles(self) -> tuple[Rerun | None, Rerun | None]:
        """Both layers in float32; None of a container that runs in float64."""
        if self.pair.whole and self.models.port.double is not None:
            return None, None
        return self.run(0, double=False), self.run(1, double=False)

    @cached_property
    def reference64(self) -> Rerun | None:
        """The reference's layer in float64, for gradients that its run does not tell."""
        return self.run(0, double=True)

    @cached_property
    def port64(self) -> Rerun | None:
        """The port's layer in float64, if it runs so: alone, where the reference's model does and the port's does not."""
        if self.models.port.double is not None or self.models.reference.double is None:
            return self.run(1, double=True)
        with suppress(NotReplayed):
            return self.run(1, double=True, alone=True)
        return None

    def run(
        self,
        number: Literal[0, 1],
        given: Sequence[Array] | None = None,
        *,
        double: bool,
        alone: bool = False,
        cotangents: Sequence[Array | None] | None = None,
    ) -> Rerun | None:
        """Run the layer of the reference (0) or of the port (1); None where it does not run in float64.

        It is run on the reference's tensors, backward from its gradients, unless others are ``given``. ``alone``: in float64 though
        its model does not run so.
        """
        models, call = self.models[number], self.pair.calls[number]
        if double and not alone and models.double is None:
            return None
        layer = models.layer if double and not alone else partial(models.fresh, double=double)
        side, called = models.side, layer(call.path)
        given = self._given[number] if given is None else given
        starts = self._cotangents[number] if cotangents is None else cotangents
        then = steps_after(side, self.pair.then[number], layer)
        with kept_buffers(side, called):
            return rerun_layer(side, called, call, given, starts, double=double, seed=self.seed, then=then)


class Corrections:
    """The reference's tensors that a port's calls are given, or give, in place of their own: where the port goes wrong."""

    def __init__(self, side: LiveSide, store: Store) -> None:
        self._side, self._store = side, store
        self._given: dict[CallKey, dict[int, tuple[PortLayout, StoredArray]]] = defaultdict(dict)
        self._made: dict[CallKey, dict[int, tuple[PortLayout, StoredArray]]] = defaultdict(dict)

    def at_exit(self, pair: CallPair, links: Sequence[TensorLink]) -> None:
        """Let a call return the reference's results."""
        for link in links:
            self._made[pair.port.key][link.theirs] = link.layout, pair.reference.outputs[link.ours].stored

    def at_entry(self, pair: CallPair, links: Sequence[TensorLink], trace: Trace) -> None:
        """Give a call, and those around it with the same tensor, the reference's inputs."""
        for link in links:
            value = pair.port.inputs[link.theirs]
            first = next((one for one in trace.calls if value in one.inputs), pair.port)
            found = link.layout, pair.reference.inputs[link.ours].stored
            self._given[first.key][first.inputs.index(value)] = found

    def enter(self, key: CallKey, given: Nested) -> None:
        """Write the reference's inputs into a call's, in a run that records nothing for backward."""
        tensors = take_out(given, self._side.is_tensor)[1]
        for number, found in self._given.get(key, {}).items():
            self._write(tensors[number], *found)  # what else takes this tensor is given the reference's, too

    def leave(self, key: CallKey, result: Nested) -> Nested:
        """Return a call's result with the reference's in its place; None where the call keeps its own."""

        def written(found: tuple[PortLayout, StoredArray], made: Tensor) -> Tensor:
            made = made.clone()
            self._write(made, *found)
            return made

        wanted = self._made.get(key, {})
        return with_results(self._side, result, {number: partial(written, one) for number, one in wanted.items()})

    def _write(self, tensor: Tensor, layout: PortLayout, stored: StoredArray) -> None:
        self._side.assign(tensor, layout.apply(self._store.get(stored)))


class Doubles:
    """The layers of a model's float64 copy by path; asked for one, it has its values.

    Attributes:
        whole: the copy, for its gradients and shapes.
    """

    def __init__(self, side: LiveSide, made: Model, model: Model) -> None:
        self._side, self.whole, self._model = side, made, model
        self._layers = dict(side.layers(made))
        self._versions = self._written()
        self._take_up: Callable[[Model], None] | None = None

    def lay_aside(self) -> None:
        """Free each layer's values until it is asked for; `whole` has gradients and shapes all the same.

        Where forward wrote to a parameter, the copy alone has its values: then nothing is freed.
        """
        if self._take_up is None and self._written() == self._versions:
            self._take_up = self._side.lay_aside(self.whole, self._model)

    def _written(self) -> list[int]:
        return [self._side.version(one) for one in self.whole.parameters()]

    def __getitem__(self, path: str) -> Model:
        if self._take_up is not None:
            self._take_up(self._layers[path])
        return self._layers[path]
